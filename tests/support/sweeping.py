"""Carries out what is planned of one topic, its partitions one after the other: tests count on the order of effects."""

from collections.abc import Callable

from archiver.archive.format.handle import Archive
from archiver.archive.notes.swept import read_swept
from archiver.upkeep.retention.planning.survey import PartitionSweep
from archiver.upkeep.retention.planning.sweep_plan import TopicSweep
from archiver.upkeep.retention.sweeping.sweep import StillHolds, TopicSweepResult, TopicWork, sweep_topics
from archiver.upkeep.retention.sweeping.swept_corrections import take_back_all


def sweep_topic(
    archive: Archive,
    topic: TopicSweep,
    still_holds: StillHolds,
    ensure: Callable[[PartitionSweep], None] = lambda _: None,
    left_alone_ms: int = 0,
    look: StillHolds = lambda _: "",
) -> TopicSweepResult:
    """No time of others is waited for, unless it is said."""
    take_back_all(archive, read_swept(archive, topic.topic), left_alone_ms)
    (done,) = sweep_topics(
        archive, [TopicWork(topic, still_holds, look, ensure)], left_alone_ms=left_alone_ms, at_once=1
    )
    return done
