"""Plans the positions of consumer groups on the target of a restore, as a value. Planning changes nothing.

1. Positions are read from the archive, as of a time; the archiver's own groups are left out.
2. Each position in a restored topic is translated, in each target of that topic.
3. Positions that are not set are listed with a reason, and so are partitions without a committed position.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from archiver.archive.format.handle import Archive
from archiver.codec.selection import LAST_LONG
from archiver.config.model import ArchiverConfig
from archiver.errors import NotWholeError, UsageError
from archiver.groups.positions.archived_position import ArchivedPosition
from archiver.groups.positions.shown import PositionFilter, read_all_groups, show_groups
from archiver.groups.target.application import ReportProgress, apply_positions
from archiver.groups.target.application_decisions import UNSET, ApplicationReport, WantedGroup, WantedPosition
from archiver.groups.target.backup_groups import NAMELESS, groups_left_out
from archiver.groups.target.translation import (
    OPEN_REASONS,
    UNTOLD,
    Reason,
    TranslatedPosition,
    settle_ambiguous,
    translate,
    unset_reason,
)
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.login.settings import KafkaSettings
from archiver.process.output.text import spell_count, spell_name, spell_some
from archiver.restore.groups.removed_positions import Removed, judge_removed, removal_warnings, with_lost_positions
from archiver.restore.groups.restored_partitions import (
    RestoredTopic,
    RestoredTopics,
    find_restored_topics,
    survey_targets,
)
from archiver.store.address import group_of

_MOST_NAMED: Final = 20
RESET_BY_TIME: Final = (
    "stop the group's consumers and reset it to a time before its oldest unread record: `kafka-consumer-groups.sh --bootstrap-server"
    " HOST:PORT --group GROUP --topic TOPIC --reset-offsets --to-datetime 2026-11-20T14:00:00.000 --execute`"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRequest:
    """The wanted groups, their time, and their new names.

    `removed`: the treatment of positions that were removed before that time.
    """

    config: ArchiverConfig
    wanted: PositionFilter
    renames: Mapping[str, str]
    removed: Removed = Removed.AUTO

    @property
    def as_of_ms(self) -> int | None:
        """The time of the wanted positions; None: the newest."""
        return None if self.wanted.as_of_ms == LAST_LONG else self.wanted.as_of_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedGroup:
    """One group: positions to set, unset positions, and partitions of its restored topics without a committed position."""

    group: str  # on the target
    source: str  # in the archive
    positions: tuple[TranslatedPosition, ...]
    unset: tuple[TranslatedPosition, ...]
    without_commit: tuple[tuple[str, int], ...]  # topic and partition of the target

    @property
    def wanted(self) -> list[WantedPosition]:
        """The positions to set; empty: the group gets none."""
        return [one.target for one in self.positions if one.target is not None]

    @property
    def untold(self) -> list[WantedPosition]:
        """A partition whose archived position is unknown now. An earlier run may have known it."""
        held = {one.place for one in self.wanted}
        places = {one.target for one in self.unset if one.reason in UNTOLD and one.target is not None}
        return sorted(one for one in places if one.partition != UNSET and one.place not in held)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """All groups, by their names on the target; and the groups left out: the archiver's own, and the one without a name."""

    restored: RestoredTopics
    groups: tuple[PlannedGroup, ...]
    left_out: tuple[str, ...]

    @property
    def warnings(self) -> list[str]:
        """Return omissions that are no fault."""
        left = (one.position for group in self.groups for one in group.unset if one.reason is Reason.REMOVED)
        there = (one.position for group in self.groups for one in group.positions if one.position.was_removed)
        return [*([NAMELESS] if "" in self.left_out else []), *removal_warnings(left, there)]

    @property
    def open(self) -> list[TranslatedPosition]:
        """Positions that should be set but cannot be, because of the archive or the restore."""
        return [one for group in self.groups for one in group.unset if one.reason in OPEN_REASONS]

    @property
    def is_whole(self) -> bool:
        return not self.open and not self.restored.unreadable

    @property
    def known_from_ms(self) -> int | None:
        """The earliest time without unknown positions; None: no such time, or all are known."""
        times = [one.position.known_from_ms for one in self.open if one.reason is Reason.UNKNOWN]
        return max(times) if times and min(times) >= 0 else None


def plan_group_positions(
    positions: Collection[ArchivedPosition],
    restored: RestoredTopics,
    *,
    renames: Mapping[str, str],
    own_groups: Collection[str],
    backup_group: str,
) -> GroupPlan:
    """Plan the positions of groups. `backup_group` is a name that no group may get. Raises UsageError for other renames."""
    kept = [one for one in positions if one.group not in own_groups]
    names = _target_names({one.group for one in kept}, renames, backup_group)
    translated: dict[str, list[TranslatedPosition]] = defaultdict(list)
    for one in _translated(kept, restored):
        translated[one.position.group].append(one)
    return GroupPlan(
        restored=restored,
        groups=tuple(
            _planned_group(source, names[source], translated[source], restored)
            for source in sorted(names, key=names.__getitem__)
        ),
        left_out=tuple(sorted({one.group for one in positions} & set(own_groups))),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRestore:
    """The result for the groups of a restore. `problems`: unreadable parts of the archive."""

    plan: GroupPlan
    report: ApplicationReport
    problems: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        is_whole = self.plan.is_whole and not self.problems
        return max(self.report.exit_code, 0 if is_whole else NotWholeError.exit_code)


def read_positions(
    archive: Archive, asked: GroupRequest, report_problem: Callable[[str], None]
) -> Sequence[ArchivedPosition]:
    """Read the wanted positions from the archive. Raises UsageError if no positions are archived, and for wrong renames."""
    found = show_groups(archive, asked.wanted, asked.config.storage.index, report_problem)
    positions = [one.position for one in found.positions]
    groups = {one.group for one in positions} - groups_left_out(asked.config, positions)
    _target_names(groups, asked.renames, group_of(asked.config))
    return positions


async def read_group_plan(
    archive: Archive,
    kafka: KafkaSettings,
    restore_id: str,
    asked: GroupRequest,
    positions: Sequence[ArchivedPosition],
    report_problem: Callable[[str], None],
) -> GroupPlan:
    """Survey the target, and plan the groups' positions there. Writes nothing."""
    use = asked.config.storage.index
    async with KafkaClient(kafka) as client:
        targets = await survey_targets(archive, client, restore_id)
        positions = with_lost_positions(archive, asked.wanted, use, positions, targets.lives, report_problem)
        positions = await judge_removed(archive, client, asked.removed, positions)
        own = groups_left_out(asked.config, positions)
        places = {(one.topic, one.partition) for one in positions if one.group not in own}
        restored = await find_restored_topics(archive, client, targets, places, use)
    return plan_group_positions(
        positions, restored, renames=asked.renames, own_groups=own, backup_group=group_of(asked.config)
    )


def restore_groups(
    archive: Archive,
    kafka: KafkaSettings,
    restore_id: str,
    asked: GroupRequest,
    positions: Sequence[ArchivedPosition],
    problems: list[str],
    report_progress: ReportProgress,
    *,
    is_dry_run: bool = False,
) -> GroupRestore:
    """Plan the groups' positions on the target, and set them. `problems`: the problems of reading the positions."""
    plan = asyncio.run(read_group_plan(archive, kafka, restore_id, asked, positions, problems.append))
    if not plan.groups and (problem := unmatched_problem(archive, asked, plan.restored.sources)):
        problems.append(problem)
    wanted = {
        group.group: WantedGroup(source_group=group.source, positions=group.wanted, untold=group.untold)
        for group in plan.groups
        if group.wanted or group.untold
    }

    async def apply() -> ApplicationReport:
        async with KafkaClient(kafka) as client:
            return await apply_positions(
                client, archive, restore_id, wanted, report_progress, as_of_ms=asked.as_of_ms, is_dry_run=is_dry_run
            )

    report = asyncio.run(apply())
    return GroupRestore(plan=with_set_earlier(plan, report), report=report, problems=tuple(problems))


def unmatched_problem(archive: Archive, asked: GroupRequest, sources: Collection[str]) -> str:
    """Name the archived groups of the source topics of a restore; empty: no group, so nothing is missed.

    For a request that matches no group, perhaps by a typing error. Reads all positions once more.
    """
    asked_for = [one for one in sources if asked.wanted.topics.fullmatch(one)]
    positions = (
        read_all_groups(archive, asked.wanted, asked_for or sources, asked.config.storage.index) if sources else []
    )
    groups = sorted({one.group for one in positions} - groups_left_out(asked.config, positions))
    if not groups:
        return ""
    if not asked_for:
        return (
            f"--topics {asked.wanted.topics.pattern!r} matches none of the restored topics: {_named(sorted(sources))}. Run the"
            " command again with an expression that matches the whole name of each wanted topic, as the archive has it"
        )
    have = spell_count(len(groups), "group has", "groups have")
    return (
        f"--groups {asked.wanted.groups.pattern!r} matches none of those that the archive has: {have} positions in the restored"
        f" topics: {_named(groups)}. Run the command again with an expression that matches the whole name of each wanted group"
    )


def _named(names: Sequence[str]) -> str:
    return spell_some([*map(spell_name, names)], _MOST_NAMED)


def with_set_earlier(plan: GroupPlan, report: ApplicationReport) -> GroupPlan:
    """Mark positions that the archive no longer has as set by an earlier run: these need no action."""
    done = {group.group: {one.place for one in group.positions if one.outcome.is_done} for group in report.groups}

    def settled(group: PlannedGroup) -> PlannedGroup:
        places = {one for one in group.untold if one.place in done.get(group.group, ())}
        unset = (
            one._replace(reason=Reason.SET_EARLIER) if one.reason in UNTOLD and one.target in places else one
            for one in group.unset
        )
        return replace(group, unset=tuple(unset))

    return replace(plan, groups=tuple(map(settled, plan.groups)))


def parse_group_renames(texts: Iterable[str]) -> dict[str, str]:
    """Parse `OLD=NEW` pairs of --rename-group. Raises UsageError."""
    renames: dict[str, str] = {}
    for text in texts:
        old, _, new = text.partition("=")
        if not (old and new) or old in renames:
            raise UsageError(f"--rename-group {text}: must be OLD=NEW, each OLD once")
        renames[old] = new
    return renames


def _target_names(groups: Collection[str], renames: Mapping[str, str], backup_group: str) -> dict[str, str]:
    absent = sorted(renames.keys() - groups)
    if absent:
        raise UsageError(
            f"--rename-group of {', '.join(absent)}: not among the groups that have archived positions as of then"
        )
    names = {group: renames.get(group, group) for group in groups}
    doubled = sorted(name for name, count in Counter(names.values()).items() if count > 1)
    if doubled:
        raise UsageError(f"two groups would both become {', '.join(doubled)}; rename one of them with --rename-group")
    if backup_group in names.values():
        raise UsageError(f"--rename-group to {backup_group}: that is a group of the archiver's backups")
    return names


def _planned_group(
    source: str, name: str, translated: Sequence[TranslatedPosition], restored: RestoredTopics
) -> PlannedGroup:
    reasons = settle_ambiguous([(one.position, one.reason) for one in translated])
    positions = tuple(sorted((one for one in translated if one.is_set), key=_order))
    left = (one._replace(reason=why) for one, why in zip(translated, reasons, strict=True) if why is not None)
    unset = tuple(sorted(left, key=_order))
    return PlannedGroup(
        group=name,
        source=source,
        positions=positions,
        unset=unset,
        without_commit=tuple(_without_commit(positions, unset, restored)),
    )


def _order(one: TranslatedPosition) -> tuple[str, int, int, str]:
    position = one.position
    return position.topic, position.life, position.partition, "" if one.target is None else one.target.topic


def _without_commit(
    positions: Iterable[TranslatedPosition], unset: Iterable[TranslatedPosition], restored: RestoredTopics
) -> Iterator[tuple[str, int]]:
    told = {(one.position.topic, one.position.partition) for one in unset if one.reason is not Reason.ANOTHER_LIFE}
    held = {one.target.place for one in positions if one.target is not None}
    topics = {topic for topic, _ in held}
    for topic in sorted(restored.topics, key=lambda one: one.target):
        if topic.target in topics:
            for number in topic.partitions:
                if (topic.target, number) not in held and (topic.source, number) not in told:
                    yield topic.target, number


# --- each position


def _translated(positions: Iterable[ArchivedPosition], restored: RestoredTopics) -> Iterator[TranslatedPosition]:
    """Translate positions, by partition, into each target of their topic."""
    topics: dict[str, list[RestoredTopic]] = defaultdict(list)
    for topic in restored.topics:
        topics[topic.source].append(topic)
    places: dict[tuple[str, int, int], list[ArchivedPosition]] = defaultdict(list)
    for one in positions:
        places[one.topic, one.partition, one.life].append(one)
    for (source, number, life), some in places.items():
        found = topics.get(source, [])
        of_life = [topic for topic in found if topic.root == life] or found[:1]
        if not found:
            yield from (TranslatedPosition(one, None, reason=Reason.NOT_RESTORED) for one in some)
        for topic in of_life:
            yield from _into(topic, number, some)


def _into(topic: RestoredTopic, number: int, positions: Sequence[ArchivedPosition]) -> Iterator[TranslatedPosition]:
    partition = topic.restored.get(number)
    if partition is not None:
        yield from translate(positions, partition)
        return
    reason, told = _refusal(topic, number)
    target = WantedPosition(topic.target, topic.topic_id, UNSET)
    for one in positions:
        known = unset_reason(one, topic.root)  # reasons from the archive come first
        yield TranslatedPosition(one, target, reason=known or reason, told="" if known else told)


def _refusal(topic: RestoredTopic, number: int) -> tuple[Reason, str]:
    if topic.problem:
        return Reason.REFUSED, topic.problem
    if topic.repartition is not None:
        return Reason.REPARTITIONED, f"the restored partitions have no offset map; {RESET_BY_TIME}"
    return Reason.REFUSED, topic.refused.get(number, f"{topic.target}-{number} was not asked for")
