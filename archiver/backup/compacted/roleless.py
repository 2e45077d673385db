"""Compacted topics without any archive, because no instance has a role in them: `verify` reports them.

Silence alone is no complaint: the copies of instances that rest, or of a cluster that is gone, are as whole as they were.
"""

import re
from collections.abc import Callable, Iterator

from archiver.archive.handle import Archive
from archiver.backup.compacted.alarms import AlarmKind, alarms_in
from archiver.backup.compacted.status import CompactedStatus, StatusReader
from archiver.config.model import ArchiverConfig

_ANY = re.compile(".*", re.DOTALL)


def find_roleless(
    archive: Archive, config: ArchiverConfig, now_ms: int, wanted: Callable[[str], bool] | None = None
) -> Iterator[str]:
    """Yield problems of the wanted topics: those without a copy, and first copies without a working process."""
    status = StatusReader(archive, config, now_ms, asks_objects=False).read(_ANY)
    for problem, topic in (*_not_begun(archive, status), *_left_alone(status)):
        if wanted is None or wanted(topic):
            yield problem


def _not_begun(archive: Archive, status: CompactedStatus) -> Iterator[tuple[str, str]]:
    """Find topics without a role log and without a record under `topics/`: neither an instance nor a backup takes them."""
    begun = {one.place.topic for one in status.partitions}
    for topic, life in sorted({(place.topic, place.life) for place in status.missing}):
        is_archived = next(iter(archive.store.list(archive.layout.topic_prefix(topic, life))), None) is not None
        if topic not in begun and not is_archived:
            name = f"{topic}@{life}" if life else topic
            why = "is compacted, and neither an instance nor a backup has archived anything of it"
            yield f"{name}: {why}; run both instances (`archiver compacted run`)", topic


def _left_alone(status: CompactedStatus) -> Iterator[tuple[str, str]]:
    without = {one.place for one in status.partitions if one.holder is None}
    for alarm in alarms_in(status):
        if alarm.kind is AlarmKind.OVERDUE and alarm.place in without:
            yield f"{alarm.text}, and no copy is complete; run both instances", alarm.place.topic
