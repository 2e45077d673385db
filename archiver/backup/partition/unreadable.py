"""Judges an unreadable batch for the fetcher: whether it is broken for good, its end, and the next offset."""

import asyncio
import logging
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import google_crc32c

from archiver.archive.segments.segment_facts import HoleCause
from archiver.backup.partition.diagnosis import Diagnosis, Retry, Skip, Take, judge
from archiver.backup.partition.feed import Feed
from archiver.backup.partition.fetched_batches import fault_of
from archiver.codec.batch import first_batch_bytes, first_batch_offset, whole_batches
from archiver.codec.kernels import batches as batch_kernels
from archiver.config.model import UnreadablePolicy
from archiver.config.quantities import spell_exact_size
from archiver.errors import CorruptBatchError, KafkaError, KafkaTemporaryError, LargeBatchError, MisplacedBatchError
from archiver.kafka.brokers.broker_requests import Lane
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.codes import code_text
from archiver.kafka.records.fetch import Fetched, FetchProblem, fetch

log = logging.getLogger(__name__)

_ONE_BATCH = 1  # byte: a broker sends the first batch however large it is
_OFFSET_BYTES = 8  # of the offset that a batch begins with
_WAIT_MS = 500
_MAGIC = 2
_MESSAGE_SETS = (0, 1)  # magic bytes of the formats before Kafka 0.11
_MESSAGE_SET_CRC_END = 16  # the CRC covers everything behind itself
_LAST_DELTA_END = 27  # brokers need no more of a batch of any later magic


# Errors of the leader that say more: the batch is not there any more, or may not be read any more.
_SAYS_MORE = frozenset({
    FetchProblem.OFFSET_OUT_OF_RANGE,
    FetchProblem.DIVERGING_EPOCH,
    FetchProblem.UNKNOWN_TOPIC_ID,
    FetchProblem.UNKNOWN_TOPIC_OR_PARTITION,
    FetchProblem.DENIED,
})  # fmt: skip


class Head(NamedTuple):
    """The header of an unreadable batch."""

    base_offset: int
    last_offset: int
    is_as_written: bool  # its bytes match the checksum of its producer


@dataclass(frozen=True, slots=True)
class Copy:
    """One replica's batch at a position: its header, if that can be read, and its fault."""

    node: int
    head: Head | None
    fault: CorruptBatchError


async def judge_broken(client: KafkaClient, feed: Feed, broken: CorruptBatchError) -> Diagnosis:
    """Ask the leader once more for the batch at the writer's position, and then every replica in sync.

    Networks and disks damage bytes. A batch is broken for good only if its producer wrote it so, as its checksum
    shows, or if no replica has it whole. When a replica does not answer, the partition ends with an error, and skips nothing.
    """
    try:
        return await client.persist(lambda: _judge(client, feed, broken))
    except (KafkaError, KafkaTemporaryError) as error:
        return _stop(feed, broken, f"{broken}; whether that is so for good is not known: {error}")


async def _judge(client: KafkaClient, feed: Feed, broken: CorruptBatchError) -> Diagnosis:
    copies: list[Copy] = []
    for node in await client.replicas_in_sync(*feed.key):
        answer = await _ask(client, node, feed, feed.fetches.offset)
        if answer.error in _SAYS_MORE and not copies:  # of the leader: retention may have moved on
            try:
                return await judge(client, feed, answer)
            except KafkaTemporaryError as temporary:
                return Retry(temporary)
            except KafkaError as final:
                return final
        _refuse_none(node, answer)
        head, sink = _head_of(answer.records), feed.writer.sink
        fault = await asyncio.to_thread(
            fault_of, answer.records, feed.fetches.offset, answer.aborted, sink.most_batch_bytes, sink.decoding
        ) or await _displacement(client, node, feed, answer, head)
        if fault is None:
            log.warning("%s: %s; asked for once more, of broker %d, it came whole", feed.source, broken, node)
            return Take(answer)
        copies.append(Copy(node, head, fault))
        is_there = head is not None and head.base_offset <= feed.fetches.offset <= head.last_offset
        if head is not None and head.is_as_written and is_there and not isinstance(fault, MisplacedBatchError):
            break  # the checksum matches: no replica has other bytes
    return await _judge_for_good(client, feed, copies)


def _refuse_none(node: int, answer: Fetched) -> None:
    if answer.error is not None or not len(answer.records):
        code = f": {code_text(answer.error_code)}" if answer.error_code else ""
        raise KafkaTemporaryError(f"broker {node} does not send it once more{code}")


async def _displacement(
    client: KafkaClient, node: int, feed: Feed, answer: Fetched, head: Head | None
) -> MisplacedBatchError | None:
    """Return the error if the first batch of an answer is not at the position, not before the next one, or not in the log.

    The end of the log is asked for after the batch came, because the batch may have been appended just before.
    """
    size = first_batch_bytes(answer.records)
    more = await _ask(client, node, feed, feed.fetches.offset, most_bytes=size + _OFFSET_BYTES)
    _refuse_none(node, more)
    if more.records[:size] != answer.records[:size]:
        raise KafkaTemporaryError(f"broker {node} sends another batch each time")
    last_stable = (await client.offsets([feed.key]))[feed.key].last_stable
    behind = more.records[size:]
    is_last = len(behind) < _OFFSET_BYTES
    after = last_stable if is_last else first_batch_offset(behind)
    if head is None or feed.fetches.offset <= head.last_offset < min(after, last_stable):
        return None
    follows = "" if is_last else f" the next one begins at {after}, and"
    return MisplacedBatchError(
        f"offset {feed.fetches.offset}: the batch that stands there says that it has offsets"
        f" {head.base_offset}-{head.last_offset}, and{follows} the log ends at {last_stable}",
        next_offset=after,
    )


async def _ask(client: KafkaClient, node: int, feed: Feed, offset: int, *, most_bytes: int = _ONE_BATCH) -> Fetched:
    target = (
        feed.fetches.target
        if offset == feed.fetches.offset
        else replace(feed.fetches.target, offset=offset, last_fetched_epoch=-1)
    )
    (answer,) = await fetch(
        client,
        node,
        [target],
        max_bytes=most_bytes,
        partition_bytes=most_bytes,
        max_wait_ms=_WAIT_MS,
        min_bytes=1,
        lane=Lane.FETCH_ALONE,
    )
    return answer


async def _judge_for_good(client: KafkaClient, feed: Feed, copies: Sequence[Copy]) -> Diagnosis:
    copy = max(copies, key=lambda one: (one.head is not None, one.head is not None and one.head.is_as_written))
    head, what = copy.head, f"{copy.fault}; {_whose(copy, copies)}"
    if feed.writer.sink.unreadable is UnreadablePolicy.STOP:
        return _stop(feed, copy.fault, f"{what}. {_choices(feed, copy.fault)}")
    after = None if head is None else await _reach(client, feed, head, copy.fault)
    if head is None or after is None:
        return _stop(
            feed,
            copy.fault,
            f"{what}. How far it reaches cannot be told, so it is not skipped: kafka-delete-records up to an offset behind it"
            " lets the backup go on there",
        )
    # The hole begins at the position: the checksum does not cover a batch's offset, and skipped offsets must be in a hole.
    return Skip(after, HoleCause.UNREADABLE, why=f"{what}. It is skipped (backup.unreadable: skip)")


async def _reach(client: KafkaClient, feed: Feed, head: Head, fault: CorruptBatchError) -> int | None:
    """Return the offset of the next batch; None: unproved.

    The checksum covers a batch's number of offsets, but not its first offset. So the log must end, or the next batch begin,
    at the end in this batch's header.
    """
    last_stable = (await client.offsets([feed.key]))[feed.key].last_stable
    if isinstance(fault, MisplacedBatchError):  # only its length is known, and the offset in the next batch's header
        length = head.last_offset - head.base_offset + 1
        return fault.next_offset if feed.fetches.offset + length <= fault.next_offset <= last_stable else None
    after = head.last_offset + 1
    if not feed.fetches.offset < after <= last_stable:
        return None
    if after == last_stable:
        return after
    answer = await _ask(client, await client.leader(*feed.key), feed, after)
    if answer.error is not None or not len(answer.records):
        raise KafkaTemporaryError(f"{feed.source}: its leader does not tell what stands at offset {after}")
    following = _head_of(answer.records)
    if following is None or not after <= following.base_offset < last_stable:
        return None
    # Offsets between the two batches may belong to either, if the length may be damaged.
    return after if head.is_as_written else following.base_offset


def _head_of(records: memoryview) -> Head | None:
    try:
        batches, content = whole_batches(records, 0)
    except CorruptBatchError:
        return None
    size, base, magic, crc, last = batches[
        [
            batch_kernels.SIZE,
            batch_kernels.BASE_OFFSET,
            batch_kernels.MAGIC,
            batch_kernels.CRC,
            batch_kernels.LAST_OFFSET,
        ],
        0,
    ].tolist()
    batch = content[:size].tobytes()
    if magic in _MESSAGE_SETS:  # the offset of a message set is that of its last message
        told = int.from_bytes(batch[batch_kernels.LOG_OVERHEAD : _MESSAGE_SET_CRC_END], "big")
        return Head(base, base, is_as_written=zlib.crc32(batch[_MESSAGE_SET_CRC_END:]) == told)
    if magic != _MAGIC:
        last = base + int.from_bytes(batch[batch_kernels.CRC_END + 2 : _LAST_DELTA_END], "big", signed=True)
        return Head(base, last, is_as_written=False)
    return Head(base, last, is_as_written=google_crc32c.value(batch[batch_kernels.CRC_END :]) == crc)


def _whose(copy: Copy, copies: Sequence[Copy]) -> str:
    head, nodes = copy.head, ", ".join(str(one.node) for one in copies)
    which = "every replica in sync (brokers" if len(copies) > 1 else "the only replica in sync (broker"
    if isinstance(copy.fault, MisplacedBatchError):
        return f"no checksum covers where a batch begins, and it is not where it can be on {which} {nodes})"
    if head is not None and head.is_as_written:
        return (
            f"offsets {head.base_offset}-{head.last_offset} are as a producer wrote them, by their checksum: whoever may write to"
            " the topic can write such a batch"
        )
    return f"its bytes do not have the checksum of a batch, on {which} {nodes})"


def _choices(feed: Feed, fault: CorruptBatchError) -> str:
    skip = "set backup.unreadable: skip, to go on behind it with a hole that is told"
    if not isinstance(fault, LargeBatchError):
        return skip[0].upper() + skip[1:]
    return f"Raise backup.batch.bytes (now {spell_exact_size(feed.writer.sink.most_batch_bytes)}), or {skip}"


def _stop(feed: Feed, fault: CorruptBatchError, what: str) -> CorruptBatchError:
    return type(fault)(f"{feed.source}: {what}; everything before it is archived")
