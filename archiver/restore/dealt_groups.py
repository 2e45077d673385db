"""Groups in topics that a restore has dealt out by key: what is asked about them, and what becomes of the plan by the answers."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from archiver.archive.handle import Archive
from archiver.codec.selection import LAST_LONG
from archiver.groups.archived_position import ArchivedPosition
from archiver.groups.translation import Reason, TranslatedPosition, offsets_on_log
from archiver.kafka.settings import KafkaSettings
from archiver.restore.dealt_positions import DealtPositions, DealtTopic
from archiver.restore.group_restore import DealtGroup, GroupPlan, GroupRequest, PlannedGroup
from archiver.restore.notes import RestoreNotes
from archiver.restore.plan import TopicPlan
from archiver.restore.source_lives import SourceLives

Committed = Mapping[str, Mapping[int, int]]  # group of the target -> source partition -> offset


def dealt_topics(
    archive: Archive, kafka: KafkaSettings, asked: GroupRequest, plan: GroupPlan, plans: Mapping[str, TopicPlan]
) -> list[DealtTopic]:
    """Return what is to be found out: of each topic that was dealt out, where its groups stood. `plans` are checked, by target.

    A position that is not certain counts as none: as the beginning of its partition.
    """
    restored = plan.restored
    topics = {one.target: one for one in restored.topics if one.repartition is not None and not one.problem}
    wanted = {target: topic for target, topic in topics.items() if target in plans}
    notes = RestoreNotes(archive, restored.restore_id, restored.cluster_id)
    claims = notes.topic_claims({target: topic.topic_id for target, topic in wanted.items()})
    lives = SourceLives(archive, {topic.source for topic in wanted.values()}, asked.config.storage.index)
    return [
        DealtTopic(
            restore_id=restored.restore_id,
            storage=asked.config.storage,
            kafka=kafka,
            plan=plans[target],
            claim=claims[target],
            committed=_committed(archive, lives, plans[target], plan.groups),
        )
        for target in sorted(claims)
    ]


def _committed(
    archive: Archive, lives: SourceLives, plan: TopicPlan, groups: Iterable[PlannedGroup]
) -> Mapping[str, Mapping[int, int]]:
    places: dict[int, list[tuple[str, ArchivedPosition]]] = defaultdict(list)
    for group in groups:
        for one in _of_topic(group.unset, plan.source):
            places[one.position.partition].append((group.group, one.position))
    found: dict[str, dict[int, int]] = defaultdict(dict)
    for number, some in places.items():
        if number < len(plan.partitions):
            offsets = _on_log(archive, lives, plan, number, [position for _, position in some])
            for (name, _), offset in zip(some, offsets, strict=True):
                found[name][number] = offset
    return found


def _of_topic(positions: Iterable[TranslatedPosition], source: str) -> list[TranslatedPosition]:
    return [one for one in positions if one.reason is Reason.REPARTITIONED and one.position.topic == source]


def _on_log(
    archive: Archive, lives: SourceLives, plan: TopicPlan, number: int, positions: Sequence[ArchivedPosition]
) -> list[int]:
    """Return where positions stand on the log that was restored: it may have been cut back before, or since."""
    parts = plan.partitions[number].parts
    place = archive.layout.split_segment(parts[-1].object_key) if parts else None
    last_life = None if place is None else place[0][1]
    source = lives.partition(plan.source, plan.life, number, last_life, LAST_LONG)
    return offsets_on_log(positions, source.forks, source.held_life)


def with_dealt(plan: GroupPlan, found: Iterable[DealtPositions]) -> GroupPlan:
    """Put in what was found out. A topic of which nothing was found is refused, with the reason."""
    topics = {one.target: one for one in plan.restored.topics}
    groups = plan.groups
    for one in found:
        source, topic_id = topics[one.topic].source, topics[one.topic].topic_id
        groups = tuple(_with_dealt(group, source, topic_id, one) for group in groups)
    return replace(plan, groups=groups)


def _with_dealt(group: PlannedGroup, source: str, topic_id: str, found: DealtPositions) -> PlannedGroup:
    asked = frozenset(_of_topic(group.unset, source))
    if not asked:
        return group
    if found.error:
        refused = tuple(
            one._replace(reason=Reason.REFUSED, told=found.error) if one in asked else one for one in group.unset
        )
        return replace(group, unset=refused)
    if group.group not in found.groups:
        return group
    dealt = DealtGroup(source=source, topic=found.topic, topic_id=topic_id, positions=tuple(found.groups[group.group]))
    left = tuple(one for one in group.unset if one not in asked or one.position.partition in found.refused)
    return replace(group, unset=left, dealt=(*group.dealt, dealt))
