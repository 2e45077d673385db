"""Decides what follows a failed or empty fetch: retry, skip with a hole, pass a proved gap, or stop."""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from archiver.archive.segments.segment_facts import HoleCause
from archiver.backup.partition.feed import Feed
from archiver.errors import (
    ArchiverError,
    CutBackError,
    KafkaError,
    KafkaTemporaryError,
    LostTopicIdError,
    TopicGoneError,
)
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.cluster import AbsentError
from archiver.kafka.records.emptiness import prove_empty
from archiver.kafka.records.fetch import Fetched, FetchProblem

_FOLLOWER_S: Final = 5.0  # a follower that keeps up is half a second behind its leader


class Way(Enum):
    """How a partition is fetched next."""

    SAME = auto()
    ELSEWHERE = auto()  # from another broker
    FROM_LEADER = auto()  # from no follower for a while
    ALONE = auto()  # in a request of its own, which may take longer


@dataclass(frozen=True, slots=True)
class Retry:
    """Fetch again: a later fetch may succeed."""

    error: KafkaTemporaryError
    way: Way = Way.SAME


@dataclass(frozen=True, slots=True)
class Skip:
    """Continue at this offset and leave a hole below it: Kafka no longer has those records, or they are unreadable."""

    next_offset: int
    cause: HoleCause = HoleCause.EXPIRED
    why: str = ""


@dataclass(frozen=True, slots=True)
class PassOver:
    """Continue at this offset: it is proved that no record exists below it."""

    next_offset: int
    stable_end: int  # the last stable offset of the proof


@dataclass(frozen=True, slots=True)
class Take:
    """Take these records: the second request returned them whole."""

    answer: Fetched


Diagnosis = Retry | Skip | PassOver | Take | ArchiverError  # an ArchiverError ends the partition


async def judge(client: KafkaClient, feed: Feed, answer: Fetched) -> Diagnosis:  # noqa: PLR0911 - a table
    """Judge the error in an answer; ask the brokers if the error alone is not enough. Raises their errors."""
    source, problem = feed.source, answer.error
    cause = "" if problem is None else problem.name
    match problem:
        case FetchProblem.NOT_LEADER | FetchProblem.TEMPORARY:
            what = f"{source}: broker error {answer.error_code}"
            return Retry(KafkaTemporaryError(what, cause=cause), Way.ELSEWHERE)
        case FetchProblem.THROTTLED:
            # The client pauses before its next request, as the quota asks. Batches above the quota's window never arrive.
            what = f"{source}: nothing but throttled answers; raise this client's consumer_byte_rate"
            return Retry(KafkaTemporaryError(what, cause=cause))
        case FetchProblem.OFFSET_OUT_OF_RANGE if feed.fetches.replica is not None:
            what = f"{source}: the follower {feed.fetches.replica} does not have offset {feed.fetches.offset}"
            return Retry(KafkaTemporaryError(what, cause=cause), Way.ELSEWHERE)
        case FetchProblem.OFFSET_OUT_OF_RANGE:
            return await _judge_gap(client, feed)
        case FetchProblem.DIVERGING_EPOCH:
            return _parted(feed)
        case FetchProblem.UNKNOWN_TOPIC_ID | FetchProblem.UNKNOWN_TOPIC_OR_PARTITION:
            return await _judge_topic(client, feed)
        case FetchProblem.DENIED:
            return KafkaError(f"{source}: may not be read; grant this user Read on topic {feed.source.topic}")
        case _:
            return KafkaError(f"{source}: fetch at offset {feed.fetches.offset}: broker error {answer.error_code}")


async def judge_silence(client: KafkaClient, feed: Feed, lasted_s: float) -> Diagnosis:
    """Judge two empty answers for a partition that was first in the requests and has records ahead. The position moves only if no record is proved to exist."""
    what = f"{feed.source}: nothing comes at offset {feed.fetches.offset}"
    if feed.fetches.replica is not None:
        what = (
            f"{what} from the follower {feed.fetches.replica}, though its leader has offsets up to {feed.last_stable}"
        )
        way = Way.FROM_LEADER if lasted_s > _FOLLOWER_S else Way.SAME
        return Retry(KafkaTemporaryError(what, cause="FOLLOWER_BEHIND"), way)
    emptiness = await prove_empty(client, feed.fetches.target)
    if emptiness.reaches > feed.fetches.offset:
        return PassOver(min(emptiness.reaches, feed.end_offset), stable_end=emptiness.reaches)
    if feed.has_end:
        high_watermark = (await client.offsets([feed.key]))[feed.key].high_watermark
        if high_watermark < feed.end_offset:
            return CutBackError(
                f"{feed.source}: its end was offset {feed.end_offset} when this backup began, and the log ends at"
                f" {high_watermark}: the log was cut back"
            )
    what = f"{what}, though the end is {feed.known_end}; {emptiness.advice(feed.fetches.offset)}"
    return Retry(KafkaTemporaryError(what, cause="EMPTY"), Way.ALONE)


async def _judge_gap(client: KafkaClient, feed: Feed) -> Diagnosis:
    """Judge a position outside the log: a hole below its start, a truncation above its end."""
    offsets = (await client.offsets([feed.key]))[feed.key]
    if feed.fetches.offset < offsets.log_start:
        return Skip(offsets.log_start)
    if feed.fetches.offset > offsets.high_watermark or offsets.leader_epoch < feed.fetches.epoch:
        # The position is above the end; or it is in range, and the log does not know the epoch that we have read.
        return _parted(feed)
    what = f"{feed.source}: refused at offset {feed.fetches.offset}, which its leader says it has"
    return Retry(KafkaTemporaryError(what, cause="OFFSET_OUT_OF_RANGE"))


async def _judge_topic(client: KafkaClient, feed: Feed) -> Diagnosis:
    """Judge a topic that a broker does not know. The broker may be behind; if the metadata say the same, the topic is gone."""
    source = feed.source
    found = (await client.describe_topics([source.topic])).get(source.topic)
    if found is None:
        return Retry(AbsentError(f"{source}: the topic was deleted; what is archived is kept"))
    if not found.topic_id:
        return Retry(LostTopicIdError(source.topic))
    if found.topic_id != source.topic_id:
        return TopicGoneError(f"{source}: the topic was deleted, and created again; what is archived is kept")
    return Retry(KafkaTemporaryError(f"{source}: unknown to its leader", cause="UNKNOWN_TOPIC"), Way.ELSEWHERE)


def _parted(feed: Feed) -> CutBackError:
    return CutBackError(
        f"{feed.source}: what was read of it reaches offset {feed.fetches.offset}, and the log there is not the one that was"
        " read: the log was cut back"
    )
