"""Sets consumer groups of a target cluster to wanted positions, and rolls them back: each position only from its noted value.

Steps for each group; after a kill at any step, the same command continues:

1. Read the group's positions.
2. Decide on each position.
3. Note the present and the wanted position, if not noted yet; a rollback notes that no position is applied any more.
4. Read again, and set the unchanged positions in one request, unless the group has moved in any partition.
5. Read back, and compare.
6. Note the positions that were read back as wanted. Only this note proves that a group with a later position has run on.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from archiver.archive.format.fact_model import MOST_NAME_BYTES
from archiver.archive.format.handle import Archive
from archiver.errors import ArchiverError, NotWholeError, UsageError
from archiver.groups.log.position_rows import is_utf8
from archiver.groups.target.application_decisions import (
    ApplicationReport,
    Decision,
    GroupReport,
    PositionOutcome,
    TopicIds,
    WantedGroup,
    WantedGroups,
    decide_application,
    decide_rollback,
    decide_untold,
    is_same,
    moved_places,
    noted_move,
)
from archiver.groups.target.application_notes import ApplicationNotes, GroupNote, NotedMove
from archiver.groups.target.position_moves import live_topics, make_moves
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.cluster import TopicPartition
from archiver.kafka.groups.group_coordinators import settled_positions
from archiver.kafka.groups.group_positions import (
    UNLISTED,
    ListedGroup,
    Positions,
    list_groups,
    positions_of,
)
from archiver.kafka.topics.configs import broker_configs
from archiver.process.output.text import spell_count
from archiver.process.running.failpoints import reach
from archiver.process.running.workers import Workers, workers

_GROUPS_AT_ONCE: Final = 8
_EXPIRY: Final = "offsets.retention.minutes"
ReportProgress = Callable[[str], None]
Given = TypeVar("Given")


async def apply_positions(
    client: KafkaClient,
    archive: Archive,
    restore_id: str,
    wanted: WantedGroups,
    report_progress: ReportProgress,
    *,
    as_of_ms: int | None,
    is_dry_run: bool,
) -> ApplicationReport:
    """Set groups to the positions as of a time; None: the newest. Failed groups are reported, and the others continue."""
    sendable = {group for group in wanted if is_utf8(group)}
    with workers(_GROUPS_AT_ONCE, "groups") as pool:
        notes = ApplicationNotes(archive, restore_id, await client.cluster_id())
        noted, unreadable = await pool.call(notes.read, sendable)
        errors = {group: unreadable.get(notes.stream(group)) for group in sendable}
        asked = {group: one for group, one in wanted.items() if one.positions or group in noted or errors.get(group)}
        known = (wanted[group] for group in asked.keys() & sendable)
        topics = {place.topic for one in known for place in (*one.positions, *one.untold)}
        topics |= {name for note in noted.values() for name in note.topics}
        run = await _Run.begin(client, notes, pool, topics, as_of_ms, is_dry_run=is_dry_run)
        reports = await _each(
            asked,
            lambda group: _apply_group(run, group, wanted[group], noted.get(group), errors.get(group)),
            report_progress,
        )
    return await _report(run, reports, is_rollback=False)


async def roll_back_positions(
    client: KafkaClient,
    archive: Archive,
    restore_id: str,
    groups: re.Pattern[str],
    report_progress: ReportProgress,
    *,
    is_dry_run: bool,
) -> ApplicationReport:
    """Set groups back to their positions before a restore's positions were applied. Raises UsageError if none was applied."""
    with workers(_GROUPS_AT_ONCE, "groups") as pool:
        notes = ApplicationNotes(archive, restore_id, await client.cluster_id())
        all_noted, unreadable = await pool.call(notes.read)
        noted = {group: note for group, note in all_noted.items() if group and groups.fullmatch(group)}
        if not noted and not unreadable:
            raise UsageError(
                f"no note below control/{notes.parent}/ is of a group that matches {groups.pattern!r} on this cluster; check the"
                " id of the restore, the target and --groups"
            )
        topics = {topic for note in noted.values() for topic in note.topics}
        run = await _Run.begin(client, notes, pool, topics, None, is_dry_run=is_dry_run)
        reports = await _each(noted, lambda group: _roll_back_group(run, noted[group]), report_progress)
        # The keys of notes do not contain the group's name.
        reports += [
            GroupReport(group=f"control/{stream}/", source_group="", error=error)
            for stream, error in unreadable.items()
        ]
    return await _report(run, reports, is_rollback=True)


@dataclass(frozen=True, slots=True)
class _Run:
    """State that all groups of a run share."""

    client: KafkaClient
    notes: ApplicationNotes
    pool: Workers
    listed: Mapping[str, ListedGroup]
    live: TopicIds
    as_of_ms: int | None
    is_dry_run: bool

    @classmethod
    async def begin(
        cls,
        client: KafkaClient,
        notes: ApplicationNotes,
        pool: Workers,
        topics: set[str],
        as_of_ms: int | None,
        *,
        is_dry_run: bool,
    ) -> "_Run":
        listed, live = await list_groups(client), await live_topics(client, topics)
        return cls(client, notes, pool, listed, live, as_of_ms, is_dry_run)

    async def read(self, group: str) -> Positions:
        """Read a group's positions. A dry run does not ask for the coordinator: that makes brokers create the offsets topic."""
        return await (positions_of if self.is_dry_run else settled_positions)(self.client, group)

    async def note(
        self,
        note: GroupNote | None,
        group: str,
        source_group: str,
        moves: Mapping[TopicPartition, NotedMove],
    ) -> GroupNote | None:
        """Put the given moves, if any, into the note of a group. A dry run puts nothing."""
        if self.is_dry_run or not moves:
            return note
        return await self.pool.call(self.notes.put, note, group, source_group, moves, self.live)


async def _apply_group(
    run: _Run, group: str, wanted: WantedGroup, note: GroupNote | None, error: NotWholeError | None
) -> GroupReport:
    """Set a group; if its note is damaged (`error`), leave the group and the note unchanged."""
    if error is not None:
        return GroupReport(group=group, source_group=wanted.source_group, error=error)
    if refusal := _refusal(run, group, wanted, note):
        return GroupReport(group=group, source_group=wanted.source_group, refusal=refusal)
    stands = await run.read(group)  # 1.
    has_moved = bool(moved_places(note, stands, run.live))
    decisions = _beside_members(run, group, _decisions(run, wanted, stands, note), has_moved=has_moved)  # 2.
    to_note = {} if has_moved else _with_seen(dict(_to_note(decisions, note, run.as_of_ms)), decisions, stands, note)
    noted = await run.note(note, group, wanted.source_group, to_note)  # 3.
    if noted is None or not _moves_any(run, decisions):
        return _looked(group, wanted.source_group, decisions, stands)
    reach("positions.noted")
    report = await _move(run, noted, decisions)  # 4., 5.
    return await _note_applied(run, report, noted)  # 6.


def _refusal(run: _Run, group: str, wanted: WantedGroup, note: GroupNote | None) -> str:
    """Return why a group cannot be set under this name; empty: it can."""
    listed = run.listed.get(group, UNLISTED)
    if not is_utf8(group):
        return f"group {group!r}: its name is not UTF-8, and cannot be sent to Kafka; give it another one with --rename-group"
    if len(group.encode()) > MOST_NAME_BYTES:
        return (
            f"group {group[:40]!r}...: its name has {len(group.encode()):,} bytes, and Kafka takes {MOST_NAME_BYTES:,}"
        )
    if not listed.has_positions:
        return (
            f"group {group} is one of kind {listed.kind!r} on the target, which has no positions; give the positions to another"
            " group with --rename-group"
        )
    if note is not None and wanted.positions and note.source_group != wanted.source_group:
        return (  # a rollback could not separate the two
            f"an earlier run of this restore has given it the positions of group {note.source_group}: give that of"
            f" {wanted.source_group} another name (--rename-group)"
        )
    return ""


def _decisions(run: _Run, wanted: WantedGroup, stands: Positions, note: GroupNote | None) -> list[Decision]:
    found = decide_application(wanted.positions, stands, note, run.live)
    if note is not None and note.source_group == wanted.source_group:
        found += decide_untold(wanted.untold, stands, note, run.live, run.as_of_ms)
    return sorted(found, key=lambda one: one.place)


def _to_note(
    decisions: Iterable[Decision], note: GroupNote | None, as_of_ms: int | None
) -> Iterator[tuple[TopicPartition, NotedMove]]:
    """Yield the moves to note before setting, also of positions that are already as wanted: a rollback needs them."""
    for one in decisions:
        noted = noted_move(note, one)
        if one.outcome is PositionOutcome.SET:
            yield one.place, NotedMove.of(one.before, one.wanted, as_of_ms)
        elif one.outcome is PositionOutcome.STOOD_THERE and (noted is None or _was_seen_there(noted, one)):
            yield one.place, NotedMove.of(one.before, one.wanted, as_of_ms, applied=True)
        elif one.outcome is PositionOutcome.HAS_MEMBERS and noted is None:
            yield one.place, NotedMove.of(one.before, None)
        elif one.outcome is PositionOutcome.SET_EARLIER and noted is not None and not noted.applied:
            yield one.place, replace(noted, applied=True)


def _was_seen_there(noted: NotedMove, one: Decision) -> bool:
    return noted.goal is None and is_same(noted.stood, one.wanted)


def _with_seen(
    moves: dict[TopicPartition, NotedMove], decisions: Iterable[Decision], stands: Positions, note: GroupNote | None
) -> Mapping[TopicPartition, NotedMove]:
    """Add the other positions of the group in topics that are noted for the first time: a position missing in the note did not exist then."""
    noted = {one.topic for one in decisions if note is not None and note.has_topic(one.topic, one.topic_id)}
    new = {topic for topic, _ in moves} - noted
    seen = {place: NotedMove.of(stood, None) for place, stood in stands.items() if place[0] in new}
    return {**seen, **moves}


async def _note_applied(run: _Run, report: GroupReport, note: GroupNote) -> GroupReport:
    """Note the positions that were read back. A failure is reported although the positions are set; the same command repeats the note."""
    seen = (one for one in report.positions if one.outcome is PositionOutcome.SET)
    moves = {one.place: replace(note.topics[one.topic].partitions[one.partition], applied=True) for one in seen}
    try:
        await run.note(note, report.group, report.source_group, moves)
    except ArchiverError as error:
        return replace(report, error=report.error or error)
    return report


async def _roll_back_group(run: _Run, note: GroupNote) -> GroupReport:
    stands = await run.read(note.group)  # 1.
    has_moved = bool(moved_places(note, stands, run.live))
    decisions = _beside_members(run, note.group, decide_rollback(note, stands, run.live), has_moved=has_moved)  # 2.
    to_note = {} if has_moved else dict(_not_applied_any_more(decisions, note))
    noted = await run.note(note, note.group, note.source_group, to_note)  # 3.
    if noted is None or not _moves_any(run, decisions):
        return _looked(note.group, note.source_group, decisions, stands)
    return await _move(run, noted, decisions)  # 4., 5.


def _not_applied_any_more(decisions: Iterable[Decision], note: GroupNote) -> Iterator[tuple[TopicPartition, NotedMove]]:
    """Yield the moves to undo by a rollback. A group that continues from its earlier position has then not run on from `wanted`."""
    for one in decisions:
        noted = noted_move(note, one)
        is_back = one.outcome in {PositionOutcome.SET, PositionOutcome.STOOD_THERE}
        if is_back and noted is not None and noted.applied and not is_same(noted.stood, noted.goal):
            yield one.place, replace(noted, applied=False)


async def _move(run: _Run, note: GroupNote, decisions: Sequence[Decision]) -> GroupReport:
    positions, error = await make_moves(run.client, note, decisions)
    return GroupReport(group=note.group, source_group=note.source_group, positions=positions, error=error)


def _looked(group: str, source_group: str, decisions: Sequence[Decision], stands: Positions) -> GroupReport:
    positions = [one._replace(after=stands.get(one.place)) for one in decisions]
    return GroupReport(group=group, source_group=source_group, positions=positions)


def _moves_any(run: _Run, decisions: Sequence[Decision]) -> bool:
    return not run.is_dry_run and any(one.outcome is PositionOutcome.SET for one in decisions)


def _beside_members(run: _Run, group: str, decisions: Sequence[Decision], *, has_moved: bool) -> Sequence[Decision]:
    """Move no position of a group that has moved or has members. Brokers also refuse a group whose members come later."""
    if not has_moved and not run.listed.get(group, UNLISTED).has_members:
        return decisions
    left = PositionOutcome.GROUP_MOVED if has_moved else PositionOutcome.HAS_MEMBERS
    return [one._replace(outcome=left) if one.outcome is PositionOutcome.SET else one for one in decisions]


async def _each(
    groups: Mapping[str, Given], work: Callable[[str], Awaitable[GroupReport]], report_progress: ReportProgress
) -> list[GroupReport]:
    """Work on several groups at once. Report a group's failure with the group."""
    left = iter(sorted(groups))
    reports: list[GroupReport] = []

    async def go_on() -> None:
        for group in left:
            try:
                reports.append(await work(group))
            except ArchiverError as error:
                reports.append(GroupReport(group=group, source_group="", error=error))
            report_progress(f"{len(reports):,} of {spell_count(len(groups), 'group')}")

    await asyncio.gather(*(go_on() for _ in range(_GROUPS_AT_ONCE)))
    return sorted(reports, key=lambda one: one.group)


async def _report(run: _Run, reports: Sequence[GroupReport], *, is_rollback: bool) -> ApplicationReport:
    configs = await broker_configs(run.client, [_EXPIRY])
    told = [int(some[_EXPIRY]) for some in configs.values() if some.get(_EXPIRY, "").isdecimal()]
    return ApplicationReport(
        restore_id=run.notes.restore_id,
        groups=reports,
        is_rollback=is_rollback,
        is_dry_run=run.is_dry_run,
        expiry_ms=min(told) * 60_000 if told else None,
    )
