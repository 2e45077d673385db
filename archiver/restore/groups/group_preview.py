"""Previews the groups of a restore that has not begun: without offset maps, positions are only counted."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from archiver.archive.format.handle import Archive
from archiver.groups.positions.archived_position import ArchivedPosition
from archiver.groups.target.backup_groups import groups_left_out
from archiver.groups.target.translation import OPEN_REASONS, Reason, settle_ambiguous, unset_reason
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.cluster import TopicPartition
from archiver.kafka.groups.group_positions import UNLISTED, ListedGroup, list_groups
from archiver.kafka.login.settings import KafkaSettings
from archiver.restore.groups.group_restore import GroupRequest
from archiver.restore.groups.removed_positions import judge_removed
from archiver.restore.groups.source_lives import SourceLives
from archiver.restore.plan.restore_plan import TopicPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPreview:
    """One group: the number of positions that would be set, and of unset ones by reason."""

    group: str  # on the target
    source: str
    positions: int
    unset: Mapping[Reason, int]
    has_members: bool  # on the target, now: its positions would not be set
    takes_positions: bool = True  # False: the target has a group of that name, of a kind without positions
    removed: tuple[ArchivedPosition, ...] = ()  # in restored topics: both unset and set ones

    @property
    def is_open(self) -> bool:
        """Whether a position that should be set would not be."""
        is_left = self.has_members or not self.takes_positions
        return not OPEN_REASONS.isdisjoint(self.unset) or (is_left and self.positions > 0)


async def preview_groups(
    archive: Archive,
    kafka: KafkaSettings,
    asked: GroupRequest,
    positions: Sequence[ArchivedPosition],
    topics: Sequence[TopicPlan],
) -> list[GroupPreview]:
    """Count the positions that would be set. Changes nothing."""
    async with KafkaClient(kafka) as client:
        listed = await list_groups(client)
        positions = await judge_removed(archive, client, asked.removed, positions)
    own = groups_left_out(asked.config, positions)
    lives = SourceLives(archive, {topic.source for topic in topics}, asked.config.storage.index)
    roots = {topic.source: lives.root_of(topic.source, topic.life) for topic in topics}
    whole = {(topic.source, one.partition) for topic in topics for one in topic.partitions if not one.problem}
    return count_positions([one for one in positions if one.group not in own], roots, whole, asked.renames, listed)


def count_positions(
    positions: Iterable[ArchivedPosition],
    roots: Mapping[str, int],
    whole: Collection[TopicPartition],
    renames: Mapping[str, str],
    listed: Mapping[str, ListedGroup],
) -> list[GroupPreview]:
    """Count positions by outcome.

    `roots`: the parentless life of each restored topic; `whole`: the source partitions that would be restored; `listed`: the
    target's groups.
    """
    by_group: dict[str, list[tuple[ArchivedPosition, Reason | None]]] = {}
    for one in positions:
        by_group.setdefault(one.group, []).append((one, _reason(one, roots, whole)))
    counts = {group: Counter(settle_ambiguous(found)) for group, found in by_group.items()}
    removed = {
        group: tuple(one for one, why in found if why is Reason.REMOVED or (why is None and one.was_removed))
        for group, found in by_group.items()
    }
    names = {source: renames.get(source, source) for source in counts}
    return [
        GroupPreview(
            group=names[source],
            source=source,
            positions=found[None],
            unset={why: count for why, count in found.items() if why is not None},
            has_members=listed.get(names[source], UNLISTED).has_members,
            takes_positions=listed.get(names[source], UNLISTED).has_positions,
            removed=removed[source],
        )
        for source, found in sorted(counts.items(), key=lambda item: names[item[0]])
    ]


def _reason(position: ArchivedPosition, roots: Mapping[str, int], whole: Collection[TopicPartition]) -> Reason | None:
    if position.topic not in roots:
        return Reason.NOT_RESTORED
    why = unset_reason(position, roots[position.topic])
    return Reason.REFUSED if why is None and (position.topic, position.partition) not in whole else why
