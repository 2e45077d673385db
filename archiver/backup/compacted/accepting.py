"""What of a topic's logs stands against its copies, and that a user accepts it: then copies that are read no more go again."""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from archiver.archive.accepted_logs import AcceptedEnd, AcceptedLog, accept_logs
from archiver.archive.handle import Archive
from archiver.archive.roles import CompleteCopy, RolePlace
from archiver.archive.topics import TopicFact, read_cluster, read_newest_topic_facts
from archiver.backup.compacted.clearing import (
    ClearingRules,
    LogBounds,
    Situation,
    accepts_start,
    begins_lower,
    is_end_fallen,
    is_left,
    is_start_risen,
)
from archiver.backup.compacted.clearing_survey import AskLogs, ClearingSurvey, Surveyed
from archiver.backup.compacted.live_logs import ask_logs
from archiver.errors import ArchiverError, NotWholeError, StrangerError, UsageError
from archiver.kafka.client import KafkaClient
from archiver.kafka.settings import KafkaSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class InQuestion:
    """What of one partition stands against its copies, and is not accepted yet."""

    place: RolePlace
    log: LogBounds
    begins: int  # the lowest log start that a copy has seen
    reached: int  # up to where the holder was read
    accepted: AcceptedLog  # what is accepted by accepting this


def asker_of(archive: Archive, settings: KafkaSettings, report_refusal: Callable[[ArchiverError], None]) -> AskLogs:
    """Return what asks the cluster where logs begin and end, each time through a client of its own. Raises StrangerError.

    `report_refusal` is called with why the cluster does not tell that of a topic.
    """

    async def ask(places: Collection[RolePlace]) -> Mapping[RolePlace, LogBounds]:
        names = {place.topic for place in places}
        facts = {
            name: fact
            for name, fact in read_newest_topic_facts(archive, names.__contains__).items()
            if isinstance(fact, TopicFact)
        }
        async with KafkaClient(settings) as client:
            archived_of, cluster_id = read_cluster(archive), await client.cluster_id()
            if archived_of not in {None, cluster_id}:
                raise StrangerError(
                    f"kafka.bootstrap.servers leads to cluster {cluster_id}, and this archive belongs to {archived_of}"
                )
            return await ask_logs(client, facts, places, report_refusal)

    return lambda places: asyncio.run(ask(places))


def find_in_question(archive: Archive, topic: str, ask: AskLogs, now_ms: int) -> list[InQuestion]:
    """Find what of a topic's logs stands against its copies. Raises UsageError, NotWholeError."""
    survey = ClearingSurvey.of(archive, ClearingRules(delay_ms=0), 0, ask, asks_all=True)
    surveyed = survey.survey(topic, now_ms)
    if not surveyed:
        raise UsageError(f"topic {topic}: has no role log; `archiver compacted status` shows which topics have")
    for one in surveyed:
        if one.situation is None:
            raise NotWholeError(one.log.problem)
    return [found for one in surveyed for found in _in_question(one)]


def _in_question(one: Surveyed) -> Iterator[InQuestion]:
    situation = one.situation
    if situation is None or situation.log is None or not isinstance(situation.entry.holder, CompleteCopy):
        return
    left = [copy.state for copy in situation.standing if copy.state and is_left(situation.entry, copy.generation)]
    is_start = is_start_risen(situation) or any(begins_lower(situation, state) for state in left)
    start = situation.log.log_start if is_start and not accepts_start(situation) else None
    end = _end_in_question(situation, situation.log)
    if start is not None or end is not None:
        begins = min([situation.holder_begins, *(state.begins for state in left)])
        accepted = AcceptedLog(log_start=start, end=end)
        yield InQuestion(
            place=one.place, log=situation.log, begins=begins, reached=situation.reached, accepted=accepted
        )


def _end_in_question(situation: Situation, log: LogBounds) -> AcceptedEnd | None:
    if not is_end_fallen(situation) or situation.accepted.accepts_end(log.log_end, situation.reached):
        return None
    return AcceptedEnd(log_end=log.log_end, position=situation.reached)


def accept(archive: Archive, found: Collection[InQuestion]) -> None:
    """Write down that a user accepts what was found, for exactly these ends, and for log starts from these on."""
    for topic, life in sorted({(one.place.topic, one.place.life) for one in found}):
        logs = {
            one.place.partition: one.accepted for one in found if (one.place.topic, one.place.life) == (topic, life)
        }
        accept_logs(archive, topic, life, logs)
