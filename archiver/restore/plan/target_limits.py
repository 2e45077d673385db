"""Counts the restored records that brokers would delete, change or refuse by the configs of a target."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from archiver.archive.format.message_format import FORMAT_KEY, has_old_format
from archiver.archive.segments.parts import FactsOfParts
from archiver.archive.segments.record_counts import Count, count_records
from archiver.codec.selection import LAST_LONG
from archiver.kafka.topics.log_dirs import LogSizes
from archiver.process.output.shell import spell_command, spell_configs
from archiver.process.output.text import spell_count
from archiver.process.values.columns import total
from archiver.restore.plan.estimate import BatchLimits
from archiver.restore.plan.request import RETENTION_KEYS, SENT_BATCH_BYTES
from archiver.restore.plan.restore_plan import FILL_CONFIGS, PartitionPlan, TopicPlan

# The largest overhead around the records of a batch, in it and in lz4's frame, and around key and value of the only record
# of a batch, without headers. A block that does not compress is sent uncompressed.
_BATCH_OVERHEAD_BYTES = 72
_RECORD_OVERHEAD_BYTES = 20
_LENGTH_BYTES, _BLOCK_BYTES = 4, 256 * 1024
# Incompressible data grows if brokers compress it again: by the codec's frame, and by a 255th at most.
_REPACKED_OVERHEAD_BYTES = 256
_WORST_CODEC = 254 / 256
_SIZE_LIMITS = ("max.message.bytes", "segment.bytes")
_REQUEST_OVERHEAD_BYTES = 1024  # a request around a batch: topic name, client name, numbers
NOTHING_HELD = LogSizes({})
_LARGEST = "give --retention largest, with which it is filled with the largest that the cluster takes, and keeps it"
_ALLOW = "have that allowed for as long as the restore takes"
_CREATE = "create the topic first, with {}={}, and restore into it"
_KEPT_AS_SENT = frozenset({"producer", "lz4"})  # of compression.type; for any other, brokers compress our batches again


def records_before(topic: TopicPlan, moment_ms: int) -> Count:
    """Count the records that are older than a moment; those without a timestamp do not count."""
    return _records_within(topic, 0, moment_ms - 1)


def wanted_records(partition: PartitionPlan) -> Count:
    """Count the records of a partition that are restored."""
    if not partition.facts:
        return Count(0, 0)
    return count_records(FactsOfParts.of(partition.facts), partition.selection)


def expiring_records(topic: TopicPlan, configs: Mapping[str, str], now_ms: int) -> Count:
    """Count the records that brokers will delete, for their age, from a topic with these configs."""
    retention_ms = int(configs.get("retention.ms", -1))
    if retention_ms < 0 or "delete" not in configs.get("cleanup.policy", "delete"):
        return Count(0, 0)
    return records_before(topic, now_ms - retention_ms)


def is_limited(configs: Mapping[str, str]) -> bool:
    """Return whether these configs let brokers delete the oldest records of a topic by its size in bytes."""
    return int(configs.get("retention.bytes", -1)) >= 0 and "delete" in configs.get("cleanup.policy", "delete")


def oversized_partitions(topic: TopicPlan, configs: Mapping[str, str], held: LogSizes = NOTHING_HELD) -> int:
    """Count the partitions of a topic with these configs whose oldest records brokers may delete, for their size.

    `held` is their present size.
    """
    if not is_limited(configs):
        return 0
    limit, sizes = int(configs["retention.bytes"]), _sizes(topic)
    if topic.repartition is not None:  # keys decide, and facts do not have them
        total = sum(sizes.values())
        return topic.repartition if total and total + max(held.bytes.values(), default=0) > limit else 0
    return sum(size > 0 and size + held.bytes.get(number, 0) > limit for number, size in sizes.items())


def _sizes(topic: TopicPlan) -> dict[int, int]:
    """Return the possible size of each partition on a broker's disk: the compression ratio is unknown before."""
    return {
        one.partition: max(total(FactsOfParts.of(one.facts).numbers(name)) for name in ("bytes", "source_bytes"))
        for one in topic.partitions
    }


def batch_limits(configs: Mapping[str, str], asked_bytes: int, request_bytes: int | None = None) -> BatchLimits:
    """Return the largest size of a batch in a topic with these configs, if so many bytes of records were requested.

    `request_bytes`: the brokers' limit for a request.
    """
    unpacked = most_unpacked_bytes(configs)
    sent = min(SENT_BATCH_BYTES, most_batch_bytes(configs), (request_bytes or LAST_LONG) - _REQUEST_OVERHEAD_BYTES)
    return BatchLimits(
        records=asked_bytes if unpacked is None else min(asked_bytes, unpacked),
        sent=max(1, sent),  # with 0, a topic takes nothing
    )


def is_small(request_bytes: int | None) -> bool:
    """Return whether the limit for requests is smaller than our batches."""
    return request_bytes is not None and request_bytes - _REQUEST_OVERHEAD_BYTES < SENT_BATCH_BYTES


def largest_request(topic: TopicPlan) -> tuple[int, int]:
    """Return the size of the largest record, and of an uncompressed request with it alone."""
    largest = _largest_record(topic)
    needed = largest + _RECORD_OVERHEAD_BYTES
    return largest, needed + _around_batch(needed) + _REQUEST_OVERHEAD_BYTES


def most_batch_bytes(configs: Mapping[str, str]) -> int:
    """Return the largest stored size of a batch in a topic with these configs."""
    return min((int(configs[name]) for name in _SIZE_LIMITS if name in configs), default=LAST_LONG)


def most_unpacked_bytes(configs: Mapping[str, str]) -> int | None:
    """Return the largest uncompressed size of a batch's records; None: only the sent size is limited.

    Brokers check a batch that they compress again against the same limits.
    """
    if configs.get("compression.type", "producer") in _KEPT_AS_SENT:
        return None
    return max(1, int((most_batch_bytes(configs) - _REPACKED_OVERHEAD_BYTES) * _WORST_CODEC))


def alter_command(
    cluster: Sequence[str], topic: str, added: Mapping[str, str], taken_back: Collection[str] = ()
) -> str:
    """Spell an operator's command to change a topic's configs; `cluster`: its connection options.

    Raises ValueError for configs that a command cannot set.
    """
    words = ["kafka-configs.sh", *cluster, "--entity-type", "topics", "--entity-name", topic, "--alter"]
    words += ["--add-config", spell_configs(added)] if added else []
    return spell_command([*words, *(["--delete-config", ",".join(taken_back)] if taken_back else [])])


def limit_problems(
    topic: TopicPlan, configs: Mapping[str, str], now_ms: int, cluster: Sequence[str], held: LogSizes = NOTHING_HELD
) -> list[str]:
    """Return the harm of a topic's configs to the restored records, a line for each config.

    `held`: the present size of its partitions.
    """
    return [
        f"{topic.target}: {found.name}={found.value} {found.harm}; change it first, such as with"
        f" `{alter_command(cluster, topic.target, {found.name: found.harmless})}`, or restore into another topic with"
        f" --rename {topic.source}=NEW"
        for found in _harms(topic, configs, now_ms, held)
    ]


def fill_problems(
    topic: TopicPlan, configs: Mapping[str, str], refused: Mapping[str, str], now_ms: int, *, has_largest: bool
) -> list[str]:
    """Return the harm of filling a topic with these configs because its cluster has refused others.

    `refused`: the reasons of the cluster, by config. `has_largest`: its retention is the largest that the cluster accepts.
    """
    problems = []
    for found in _harms(topic, configs, now_ms, NOTHING_HELD):
        told = f"{found.name}={found.value} {found.harm}"
        if found.name in refused:
            way = _ALLOW if has_largest or found.name not in RETENTION_KEYS else f"{_LARGEST}, or {_ALLOW}"
            way = f"{_CREATE.format(found.name, found.harmless)}, or {_ALLOW}" if found.name in _SIZE_LIMITS else way
            told = f"the cluster refuses {found.name}={FILL_CONFIGS[found.name]} ({refused[found.name]}), and {told}; {way}"
        else:
            told += f"; {_CREATE.format(found.name, found.harmless)}"
        problems.append(f"{topic.target}: {told}")
    return problems


@dataclass(frozen=True, slots=True)
class _Harm:
    name: str
    value: object
    harm: str
    harmless: str  # a harmless value of the config


def _harms(topic: TopicPlan, configs: Mapping[str, str], now_ms: int, held: LogSizes) -> Iterator[_Harm]:
    if not topic.records:
        return
    total = _records(topic)
    policy = configs.get("cleanup.policy", "delete")
    if "compact" in policy:
        harm = f"would drop those of the {total} that have a later one of their key"
        yield _Harm("cleanup.policy", policy, harm, "delete")
    if has_old_format(configs):
        harm = "is a message format without headers, which cannot be written exactly once"
        yield _Harm(FORMAT_KEY, configs[FORMAT_KEY], harm, "0.11.0")
    yield from _size_harms(topic, configs)
    yield from _retention_bytes_harms(topic, configs, held)
    if configs.get("message.timestamp.type") == "LogAppendTime":
        harm = f"would replace the timestamps of all {total} with the time of now"
        yield _Harm("message.timestamp.type", "LogAppendTime", harm, "CreateTime")
        return  # and no timestamp is too old or too new then
    expiring = expiring_records(topic, configs, now_ms)
    if expiring:
        harm = f"would have the brokers delete {expiring} of the {total}, which are older"
        yield _Harm("retention.ms", configs["retention.ms"], harm, "-1")
    yield from _time_harms(topic, configs, now_ms)


def _record(topic: TopicPlan) -> str:
    return "chosen record" if topic.is_chosen else "record"


def _records(topic: TopicPlan) -> str:
    return spell_count(topic.records, _record(topic))


def _largest_record(topic: TopicPlan) -> int:
    facts = (FactsOfParts.of(one.facts) for one in topic.partitions if one.facts)
    return max((int(some.numbers("largest_record").max()) for some in facts), default=0)


def _place_of_largest(topic: TopicPlan) -> str:
    """Spell the partition and the offset range of the largest record."""
    largest = _largest_record(topic)
    for one in topic.partitions:
        sizes = FactsOfParts.of(one.facts).numbers("largest_record")
        if len(sizes) and int(sizes.max()) == largest:
            part = one.parts[int(sizes.argmax())]
            until = "" if part.end_offset is None else f" to {part.end_offset - 1}"
            return f"{topic.source}-{one.partition}, from offset {part.from_offset}{until}"
    return topic.source


def _around_batch(records_bytes: int) -> int:
    return _BATCH_OVERHEAD_BYTES + _LENGTH_BYTES * (1 + records_bytes // _BLOCK_BYTES)


def _size_harms(topic: TopicPlan, configs: Mapping[str, str]) -> Iterator[_Harm]:
    largest = _largest_record(topic)
    needed = largest + _RECORD_OVERHEAD_BYTES
    if most_unpacked_bytes(configs) is None:
        needed += _around_batch(needed)
    else:
        needed = math.ceil(needed / _WORST_CODEC) + _REPACKED_OVERHEAD_BYTES
    for name in _SIZE_LIMITS:
        if name in configs and int(configs[name]) < needed:
            wanted = str(needed + needed // 64)  # for its headers, which facts do not count
            harm = (
                f"is too small for the largest {'of the chosen records' if topic.is_chosen else 'record'}, of {largest:,} bytes"
                f" ({_place_of_largest(topic)})"
            )
            yield _Harm(name, configs[name], harm, max(wanted, str(2**20), key=int))


def _retention_bytes_harms(topic: TopicPlan, configs: Mapping[str, str], held: LogSizes) -> Iterator[_Harm]:
    """Return how many records partitions would lose for their size, once they have their own and ours."""
    if not is_limited(configs):
        return
    limit, sizes = int(configs["retention.bytes"]), _sizes(topic)
    too_large = oversized_partitions(topic, configs, held)
    oldest = "records there" if held.unknown or any(held.bytes.values()) else f"of the {_record(topic)}s"
    if too_large and topic.repartition is not None:  # at worst all of them go to one
        gets = f"a partition gets up to {sum(sizes.values()):,} bytes{_behind(max(held.bytes.values(), default=0))}"
        yield _Harm("retention.bytes", limit, f"may have the brokers delete the oldest {oldest}: {gets}", "-1")
    elif too_large:
        largest = max(
            (number for number in sizes if sizes[number]), key=lambda one: sizes[one] + held.bytes.get(one, 0)
        )
        gets = (
            f"{too_large} of {spell_count(len(sizes), 'partition')} {'gets' if too_large == 1 else 'get'} more,"
            f" partition {largest} up to {sizes[largest]:,} bytes{_behind(held.bytes.get(largest, 0))}"
        )
        yield _Harm("retention.bytes", limit, f"would have the brokers delete the oldest {oldest}: {gets}", "-1")
    elif held.unknown and any(sizes.values()):
        harm = (
            f"may have the brokers delete the oldest {oldest}: how many bytes it has now is not known ({held.unknown})"
        )
        yield _Harm("retention.bytes", limit, harm, "-1")


def _behind(held_bytes: int) -> str:
    return f" behind the {held_bytes:,} that it has" if held_bytes else ""


def _time_harms(topic: TopicPlan, configs: Mapping[str, str], now_ms: int) -> Iterator[_Harm]:
    """Brokers before 4.0 also have one limit for both directions, which applies if the newer limits are not set."""
    for side in ("before", "after"):
        name = f"message.timestamp.{side}.max.ms"
        if int(configs.get(name, LAST_LONG)) == LAST_LONG:
            name = "message.timestamp.difference.max.ms"
        limit = int(configs.get(name, LAST_LONG))
        if side == "before":
            refused = records_before(topic, now_ms - limit)
        else:
            refused = _records_within(topic, now_ms + limit + 1, LAST_LONG)
        if refused:
            which = "older" if side == "before" else "further in the future"
            harm = f"would have the brokers refuse {refused} of the {_records(topic)}, which are {which}"
            yield _Harm(name, limit, harm, str(LAST_LONG))


def _records_within(topic: TopicPlan, first_ms: int, last_ms: int) -> Count:
    counts = [
        count_records(FactsOfParts.of(partition.facts), partition.selection, first_ms, last_ms)
        for partition in topic.partitions
        if partition.facts
    ]
    return Count(sum(one.at_least for one in counts), sum(one.at_most for one in counts))
