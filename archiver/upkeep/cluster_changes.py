"""Compares noted cluster metadata with a target cluster, and adds missing rows there. `archiver cluster` and restores use it."""

import asyncio
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from archiver.archive.format.handle import Archive
from archiver.archive.notes.cluster_metadata import ClusterPart, NotedPart, read_noted_parts, survey_part
from archiver.archive.notes.topics import list_known_topics, read_cluster
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.login.settings import KafkaSettings
from archiver.kafka.topics.cluster_parts import NOTED, SENSITIVE, Part, Row, add_rows
from archiver.kafka.topics.configs import topic_configs_each
from archiver.process.output.defects import as_ours
from archiver.process.output.text import spell_some

_MOST_NAMED: Final = 10


class RowState(StrEnum):
    """How a row differs, and whether `cluster apply` adds it."""

    ADDED = "missing, apply adds it"
    BY_HAND = "missing, apply cannot add it"
    DIFFERS = "different, stays as it is"
    EXTRA = "only on the target, stays"


@dataclass(frozen=True, slots=True)
class Change:
    """A different row: of the archive, or of the target alone. `on_target`: the target's value, if both have the row."""

    part: Part
    row: Row
    state: RowState
    on_target: str | None = None


@dataclass(frozen=True, slots=True)
class ClusterDiff:
    """All differences. `unknown`: unreadable parts with the reason; apply adds nothing to them."""

    changes: Sequence[Change]
    unknown: Sequence[str]

    def of(self, *states: RowState) -> Sequence[Change]:
        return [one for one in self.changes if one.state in states]

    def added(self) -> Mapping[Part, Sequence[Row]]:
        """Return the rows that apply adds."""
        return {part: [one.row for one in self.of(RowState.ADDED) if one.part is part] for part in NOTED}


def diff_cluster(kafka: KafkaSettings, noted: Mapping[Part, NotedPart], *, applies: bool = False) -> ClusterDiff:
    """Compare parts with a target. `applies`: add missing rows. Raises KafkaError for a row that brokers refuse."""

    async def compare() -> ClusterDiff:
        async with KafkaClient(kafka) as client:
            diff = await _compare(client, noted)
            if applies:
                await add_rows(client, diff.added())
            return diff

    return asyncio.run(compare())


async def _compare(client: KafkaClient, noted: Mapping[Part, NotedPart]) -> ClusterDiff:
    changes, unknown = list[Change](), list[str]()
    for part, one in noted.items():
        source, target = await _survey(client, one.found)
        where = ("in the archive", source.unread), ("on the target", target.unread)
        unread = [f"{part}: unknown {place}: {why}" for place, why in where if why is not None]
        unknown += unread
        if not unread:
            changes += _changes_of(source, target)
    return ClusterDiff(changes, unknown)


async def _survey(client: KafkaClient, source: ClusterPart) -> tuple[ClusterPart, ClusterPart]:
    """Read a part of the target. Returns both sides to compare; configs only of topics that both have."""
    if source.part is not Part.TOPICS:
        return source, await survey_part(client, source.part)
    there, hidden = await client.describe_each({str(row[0]) for row in source.rows})
    found, refused = await topic_configs_each(client, there)
    rows = [(topic, name, value) for topic, one in found.items() for name, value in one.own.items()]
    unread = spell_some([str(error) for error in (hidden | refused).values()], 1)
    common = tuple(row for row in source.rows if row[0] in found)
    return replace(source, rows=common), ClusterPart(part=Part.TOPICS, rows=tuple(rows), unread=unread or None)


def _can_be_set(part: Part, row: Row) -> bool:
    """Return whether apply adds a row. It adds no users (brokers return no passwords) and no config without a value.

    Configs of topics are set by restores, which need other ones while they fill a topic.
    """
    is_secret = part is Part.CONFIGS and (row[2] is None or row[4] == SENSITIVE)
    return not is_secret and part not in {Part.USERS, Part.TOPICS}


def _changes_of(source: ClusterPart, target: ClusterPart) -> Iterator[Change]:
    """Compare one part, without configs of single brokers: the target has other brokers."""
    part, there = source.part, {source.part.identity(row): row for row in target.rows}
    for row in source.rows:
        found = there.pop(part.identity(row), None)
        if part is Part.CONFIGS and row[0] is not None:
            continue
        if found is None:
            yield Change(part, row, RowState.ADDED if _can_be_set(part, row) else RowState.BY_HAND)
        elif part is not Part.USERS and found[2] != row[2]:
            yield Change(part, row, RowState.DIFFERS, found[2])
    for row in there.values():
        if part is not Part.TOPICS and (part is not Part.CONFIGS or row[0] is None):
            yield Change(part, row, RowState.EXTRA)


def missing_lines(archive: Archive, kafka: KafkaSettings, restored: Collection[str]) -> list[str]:
    """Return a line for each part that a restore into another cluster does not restore; none for the archive's own cluster."""

    async def compare() -> list[str]:
        async with KafkaClient(kafka) as client:
            if await client.cluster_id() == read_cluster(archive):
                return []
            diff = await _compare(client, read_noted_parts(archive, NOTED))
            found, refused = await client.describe_each(None)
        counts = Counter((one.part, one.state) for one in diff.changes if one.state is not RowState.EXTRA)
        topics = list_known_topics(archive) - found.keys() - refused.keys() - set(restored)
        return [
            *diff.unknown,
            *(f"{part}: {count:,} {state}" for (part, state), count in counts.items()),
            *([f"topics: {spell_some(sorted(topics), _MOST_NAMED)}"] if topics else []),
        ]

    try:
        return asyncio.run(compare())
    except Exception as error:  # noqa: BLE001 - the restore itself is done, and its result must be printed
        return [f"the rest of the archive's cluster could not be compared: {as_ours(error)}"]
