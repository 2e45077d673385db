"""Groups in topics that a restore has dealt out by key: what is asked about them, and what becomes of the plan by the answers."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from archiver.archive.handle import Archive
from archiver.codec.selection import LAST_LONG
from archiver.errors import ArchiverError
from archiver.groups.archived_position import ArchivedPosition
from archiver.groups.translation import Reason, TranslatedPosition, offsets_on_log
from archiver.kafka.settings import KafkaSettings
from archiver.restore.claims import TopicClaim
from archiver.restore.dealt_positions import DealtPositions, DealtTopic
from archiver.restore.group_restore import DealtGroup, GroupPlan, GroupRequest, PlannedGroup
from archiver.restore.notes import RestoreNotes
from archiver.restore.plan import TopicPlan
from archiver.restore.source_lives import SourceLives

Committed = Mapping[str, Mapping[int, int]]  # group of the target -> source partition -> offset
_NOT_DEALT: Final = "that restore has dealt out no record of this partition"


def dealt_topics(
    archive: Archive, kafka: KafkaSettings, asked: GroupRequest, plan: GroupPlan, plans: Mapping[str, TopicPlan]
) -> tuple[list[DealtTopic], list[DealtPositions]]:
    """Return what is to be found out: of each topic that was dealt out, where its groups stood; and what is refused already.

    `plans` are checked, by target. A position that is not certain counts as none: as the beginning of its partition.
    """
    restored = plan.restored
    topics = {one.target: one for one in restored.topics if one.repartition is not None and not one.problem}
    wanted = {target: topic for target, topic in topics.items() if target in plans}
    notes = RestoreNotes(archive, restored.restore_id, restored.cluster_id)
    claims = notes.topic_claims({target: topic.topic_id for target, topic in wanted.items()})
    lives = SourceLives(archive, {topic.source for topic in wanted.values()}, asked.config.storage.index)

    def dealt_topic(target: str, claim: TopicClaim) -> DealtTopic:
        return DealtTopic(
            restore_id=restored.restore_id,
            storage=asked.config.storage,
            kafka=kafka,
            plan=plans[target],
            claim=claim,
            committed=_committed(archive, lives, plans[target], plan.groups),
        )

    found, refused = list[DealtTopic](), list[DealtPositions]()
    for target, claim in sorted(claims.items(), key=lambda item: item[0]):
        try:
            found.append(dealt_topic(target, claim))
        except ArchiverError as error:  # of this topic; the others go on
            refused.append(DealtPositions(topic=target, error=str(error), exit_code=error.exit_code))
    return found, refused


def _committed(archive: Archive, lives: SourceLives, plan: TopicPlan, groups: Iterable[PlannedGroup]) -> Committed:
    places: dict[int, list[tuple[str, ArchivedPosition]]] = defaultdict(list)
    for group in groups:
        for one in _dealt_to(group, plan.target):
            places[one.position.partition].append((group.group, one.position))
    found: dict[str, dict[int, int]] = defaultdict(dict)
    for number, some in places.items():
        if number < len(plan.partitions):
            offsets = _on_log(archive, lives, plan, number, [position for _, position in some])
            for (name, _), offset in zip(some, offsets, strict=True):
                found[name][number] = offset
    return found


def _dealt_to(group: PlannedGroup, target: str) -> list[TranslatedPosition]:
    """Return the positions of a group of which only the deal can tell where they stand in a target."""
    return [
        one
        for one in group.unset
        if one.reason is Reason.REPARTITIONED and one.target is not None and one.target.topic == target
    ]


def _on_log(
    archive: Archive, lives: SourceLives, plan: TopicPlan, number: int, positions: Sequence[ArchivedPosition]
) -> list[int]:
    """Return where positions stand on the log that was restored: it may have been cut back before, or since."""
    parts = plan.partitions[number].parts
    place = archive.layout.place_of(parts[-1].object_key) if parts else None
    last_life = None if place is None else place[1]
    source = lives.partition(plan.source, plan.life, number, last_life, LAST_LONG)
    return offsets_on_log(positions, source.forks, source.held_life)


def with_dealt(plan: GroupPlan, found: Iterable[DealtPositions], plans: Mapping[str, TopicPlan]) -> GroupPlan:
    """Put in what was found out. What was not found is refused, with the reason."""
    topics = {one.target: one for one in plan.restored.topics}
    groups = plan.groups
    for one in found:
        topic, dealt = topics[one.topic], plans[one.topic]
        sources = {part.partition for part in dealt.partitions} - set(one.refused)
        groups = tuple(_with_dealt(group, topic.source, topic.topic_id, one, sources) for group in groups)
    return replace(plan, groups=groups)


def _with_dealt(
    group: PlannedGroup, source: str, topic_id: str, found: DealtPositions, sources: Iterable[int]
) -> PlannedGroup:
    asked, dealt = frozenset(_dealt_to(group, found.topic)), frozenset(sources)

    def left(one: TranslatedPosition) -> TranslatedPosition | None:
        if one not in asked:
            return one
        if found.error or one.position.partition not in dealt:
            return one._replace(reason=Reason.REFUSED, told=found.error or _NOT_DEALT)
        return None

    unset = tuple(one for one in map(left, group.unset) if one is not None)
    if found.error or group.group not in found.groups:
        return replace(group, unset=unset)
    set_there = DealtGroup(
        source=source, topic=found.topic, topic_id=topic_id, positions=tuple(found.groups[group.group])
    )
    return replace(group, unset=unset, dealt=(*group.dealt, set_there))
