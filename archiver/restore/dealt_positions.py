"""Where groups go on in topics that a restore has dealt into another number of partitions: which tasks find that out, and what comes of their reports."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from archiver.codec.frame import Longs
from archiver.config.model import StorageConfig
from archiver.errors import NotWholeError, TargetError
from archiver.groups.approximation import Approximation, DealtPosition
from archiver.kafka.cluster import TopicDescription
from archiver.kafka.settings import KafkaSettings
from archiver.process.columns import Numbers
from archiver.restore.claim_check import check_topic_claim
from archiver.restore.claims import TopicClaim
from archiver.restore.deal_replay import Replay, ReplayTask
from archiver.restore.dealt_log import DealtLogReport, DealtLogTask
from archiver.restore.plan import PartitionPlan, TopicPlan
from archiver.restore.target_limits import wanted_records
from archiver.restore.task import TaskReport


@dataclass(frozen=True, kw_only=True)
class DealtTopic:
    """A topic that was dealt into another number of partitions, and where groups stood in its source.

    `plan` is what the restore has noted, and its caller has checked (archiver.restore.plan_check). Positions are offsets of the life
    that was restored; a source partition without one counts as its beginning.
    """

    restore_id: str
    storage: StorageConfig
    kafka: KafkaSettings  # of the target
    plan: TopicPlan
    claim: TopicClaim
    committed: Mapping[str, Mapping[int, int]]  # group -> source partition -> offset

    @property
    def target(self) -> str:
        return self.plan.target

    @cached_property
    def groups(self) -> tuple[str, ...]:
        """The groups that are placed: one that has committed nothing gets nothing."""
        return tuple(name for name, offsets in self.committed.items() if offsets)

    @cached_property
    def sources(self) -> tuple[PartitionPlan, ...]:
        """What was dealt; the other partitions were refused, and the target has no records of them."""
        return tuple(one for one in self.plan.partitions if not one.problem)

    @property
    def refused(self) -> tuple[int, ...]:
        """The source partitions of which the restore brought nothing back."""
        return tuple(one.partition for one in self.plan.partitions if one.problem)

    def check(self, live: TopicDescription | None) -> None:
        """Refuse a target that was not read back, or is another topic by now. Raises ArchiverError."""
        if self.plan.repartition is None or self.claim.verified is None:
            raise TargetError(
                f"{self.target}: was not read back after it was dealt out; run the restore again, with the same options and"
                f" --id {self.restore_id}"
            )
        check_topic_claim(self.claim, self.replay_tasks, self.plan.repartition)
        if live is None or live.topic_id != self.claim.target_topic_id:
            raise TargetError(
                f"{self.target}: is not the topic that restore {self.restore_id} has filled: that was deleted since; restore again"
                " with another --id"
            )

    @cached_property
    def replay_tasks(self) -> list[ReplayTask]:
        """Return a task for each source partition."""
        verified = self.claim.verified
        return [
            ReplayTask(
                restore_id=self.restore_id,
                storage=self.storage,
                source_topic=self.plan.source,
                target_topic=self.target,
                partition=one.partition,
                parts=one.planned_parts,
                selection=one.selection,
                wanted=wanted_records(one),
                appends=self.plan.appends,
                skipped=self.claim.skipped,
                noted=None if verified is None else verified.sources.get(one.partition),
                target_partitions=self.plan.target_partitions,
                offsets=np.unique(self._offsets[:, place]),
            )
            for place, one in enumerate(self.sources)
        ]

    @cached_property
    def _offsets(self) -> Longs:
        """Where each group stood in each source partition, [group, source]."""
        rows = [[self.committed[group].get(one.partition, 0) for one in self.sources] for group in self.groups]
        return np.array(rows, np.int64).reshape(len(self.groups), len(self.sources))

    def log_tasks(self, replays: Sequence[Replay]) -> list[DealtLogTask]:
        """Return a task for each target partition, by what was dealt again of all source partitions."""
        found = {one.partition: one for one in replays}
        ordered = [found[one.partition] for one in self.sources]
        pairs = zip(self.replay_tasks, ordered, strict=True)
        places = [np.searchsorted(task.offsets, self._offsets[:, at]) for at, (task, _) in enumerate(pairs)]
        identities = self.claim.identities
        return [
            DealtLogTask(
                kafka=self.kafka,
                topic=self.target,
                topic_id=self.claim.target_topic_id,
                partition=target,
                start=start,
                end=self.claim.verified_ends[target],
                source_topic=self.plan.source,
                sources=tuple(one.partition for one in self.sources),
                producer_ids=tuple(identities[one.partition].producer_id for one in self.sources),
                dealt=np.array([one.dealt[target] for one in ordered], np.int64),
                read=_read(ordered, places, target, len(self.groups)),
            )
            for target, start in enumerate(self.claim.start_offsets)
        ]


def _read(replays: Sequence[Replay], places: Sequence[Longs], target: int, groups: int) -> Numbers:
    """Return how many records that each source dealt to a target each group had read, [group, source]."""
    columns = [one.below[rows, target] for one, rows in zip(replays, places, strict=True)]
    return np.column_stack(columns) if columns else np.empty((groups, 0), np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class DealtPositions:
    """Where groups go on in a topic that was dealt out; none where `error` says why."""

    topic: str  # the target
    groups: Mapping[str, Sequence[DealtPosition]] = field(default_factory=dict)  # by target partition
    refused: tuple[int, ...] = ()  # source partitions of which the restore brought nothing back
    error: str = ""
    exit_code: int = 0

    def read_again(self, group: str) -> int:
        """Return how many records a group reads again."""
        return sum(one.read_again for one in self.groups[group])

    def deleted(self, group: str) -> int:
        """Return how many records brokers have deleted that a group had not read."""
        return sum(one.deleted for one in self.groups[group])


def positions_of(topic: DealtTopic, reports: Iterable[DealtLogReport]) -> DealtPositions:
    """Put together what was found in each target partition. There are no positions of a topic without all of them."""
    ordered = sorted(reports, key=lambda one: one.partition)
    found = [one.positions for one in ordered if one.positions is not None]
    if len(found) < len(ordered):
        return failed_positions(topic, (one.failure for one in ordered))
    return DealtPositions(
        topic=topic.target,
        groups={group: _of_group(found, place) for place, group in enumerate(topic.groups)},
        refused=topic.refused,
    )


def _of_group(found: Sequence[Approximation], place: int) -> tuple[DealtPosition, ...]:
    return tuple(one.position(place) for one in found)


def failed_positions(topic: DealtTopic, failures: Iterable[TaskReport | None]) -> DealtPositions:
    """Report why there are no positions of a topic: what a rerun does not mend goes first."""
    told = [one for one in failures if one is not None]
    worst = max(told, key=lambda one: one.exit_code == NotWholeError.exit_code)
    return DealtPositions(topic=topic.target, refused=topic.refused, error=worst.error, exit_code=worst.exit_code)
