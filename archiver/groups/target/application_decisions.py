"""Decides how to change each position of a group, by its present, wanted and noted values, and reports the outcomes.

Used to set positions on a target, and to roll them back.

Positions are compared by offset and metadata. If a consumer has committed since the note, its position is never reset.
If a group has moved in any partition since its note, it is changed in none.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from archiver.errors import ArchiverError, NotWholeError
from archiver.groups.target.application_notes import GroupNote, NotedMove
from archiver.kafka.brokers.cluster import TopicPartition
from archiver.kafka.groups.group_positions import GroupPosition, Positions

UNSET: Final = -1
TopicIds = Mapping[str, str]  # of the existing topics; empty where brokers have none


class WantedPosition(NamedTuple):
    """A position in a topic of the target. `topic_id`: the id when the position was made; empty if brokers have none.

    UNSET: no offset is known, or no partition, since the records were distributed by key.
    """

    topic: str
    topic_id: str
    partition: int
    offset: int = UNSET
    metadata: str = ""

    @property
    def place(self) -> TopicPartition:
        return self.topic, self.partition


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedGroup:
    """The positions of one group of the target, and the archived group that had them.

    `untold`: partitions without a known position in the archive, so without an offset. A note of an earlier run may have one.
    """

    source_group: str
    positions: Sequence[WantedPosition]
    untold: Sequence[WantedPosition] = ()


WantedGroups = Mapping[str, WantedGroup]  # by the group's name on the target


class PositionOutcome(StrEnum):
    """The outcome for a position."""

    SET = "set"
    SET_EARLIER = "set by an earlier run"
    STOOD_THERE = "stood there already"
    RAN_ON = "ran on"  # from the position that an earlier run has set, as its note proves
    HAS_MEMBERS = "the group has members"
    MOVED = "stands elsewhere"  # at neither the noted nor the wanted position: consumers may have run on
    GROUP_MOVED = "the group has moved"  # in another partition
    OTHER_WANTED = "an earlier run has set it otherwise"
    OTHER_TOPIC = "the topic is another one now"
    NOT_SET = "not set"

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do."""
        return self in {
            PositionOutcome.SET,
            PositionOutcome.SET_EARLIER,
            PositionOutcome.STOOD_THERE,
            PositionOutcome.RAN_ON,
        }


class Decision(NamedTuple):
    """The decision on one position, and its outcome. SET moves it from `before` to `wanted`; None: no position."""

    topic: str
    topic_id: str
    partition: int
    before: GroupPosition | None
    wanted: GroupPosition | None
    outcome: PositionOutcome
    after: GroupPosition | None = None  # as it was read last

    @property
    def place(self) -> TopicPartition:
        return self.topic, self.partition


def is_same(one: GroupPosition | None, other: GroupPosition | None) -> bool:
    """Compare two positions without their leader epochs."""
    if one is None or other is None:
        return one is other
    return (one.offset, one.metadata) == (other.offset, other.metadata)


def decide_application(
    wanted: Iterable[WantedPosition], stands: Positions, note: GroupNote | None, live: TopicIds
) -> list[Decision]:
    """Decide on each position of an application, in the order of topics and partitions."""
    return [_decide_one(one, stands.get(one.place), noted_move(note, one), live) for one in sorted(wanted)]


def noted_move(note: GroupNote | None, one: WantedPosition | Decision) -> NotedMove | None:
    """Return the noted move of a place, for the same topic id."""
    return None if note is None else note.move(one.place, one.topic_id)


def decide_untold(
    places: Iterable[WantedPosition], stands: Positions, note: GroupNote | None, live: TopicIds, as_of_ms: int | None
) -> list[Decision]:
    """Decide which places an earlier run with the same request has settled, by its note and the group's present positions.

    No place is moved: the archive no longer confirms the noted position.
    """
    found = []
    for one in sorted(places):
        noted = noted_move(note, one)
        if noted is not None and noted.goal is not None and noted.as_of_ms == as_of_ms:
            wanted = one._replace(offset=noted.goal.offset, metadata=noted.goal.metadata)
            decision = _decide_one(wanted, stands.get(wanted.place), noted, live)
            if decision.outcome.is_done and decision.outcome is not PositionOutcome.SET:
                found.append(decision)
    return found


def _decide_one(wanted: WantedPosition, now: GroupPosition | None, noted: NotedMove | None, live: TopicIds) -> Decision:
    goal = GroupPosition(offset=wanted.offset, metadata=wanted.metadata)
    before = now if noted is None else noted.stood

    def decided(outcome: PositionOutcome) -> Decision:
        return Decision(wanted.topic, wanted.topic_id, wanted.partition, before, goal, outcome)

    if live.get(wanted.topic) != wanted.topic_id:
        return decided(PositionOutcome.OTHER_TOPIC)
    if is_same(now, goal):
        is_ours = noted is not None and is_same(noted.goal, goal) and not is_same(noted.stood, goal)
        return decided(PositionOutcome.SET_EARLIER if is_ours else PositionOutcome.STOOD_THERE)
    has_run_on = noted is not None and _has_run_on(now, noted)
    if is_same(now, before) and not has_run_on:
        return decided(PositionOutcome.SET)
    if noted is not None and noted.goal is not None and is_same(now, noted.goal):
        return decided(PositionOutcome.OTHER_WANTED)
    is_fine = has_run_on and noted is not None and is_same(noted.goal, goal)
    return decided(PositionOutcome.RAN_ON if is_fine else PositionOutcome.MOVED)


def _has_run_on(now: GroupPosition | None, noted: NotedMove) -> bool:
    """Return whether a group is at or above the offset it was set to, with another position: perhaps its earlier one, such as the log's end."""
    goal = noted.goal
    if not noted.applied or now is None or goal is None or is_same(now, goal):
        return False
    return now.offset >= goal.offset


def moved_places(note: GroupNote | None, stands: Positions, live: TopicIds) -> list[TopicPartition]:
    """List positions that differ from the noted and the wanted ones: the group has moved since."""
    found: list[TopicPartition] = []
    for name, topic in {} if note is None else note.topics.items():
        if live.get(name) == topic.topic_id:
            places = {(name, number) for number in topic.partitions} | {place for place in stands if place[0] == name}
            found += [one for one in places if _has_moved(topic.partitions.get(one[1]), stands.get(one))]
    return sorted(found)


def _has_moved(noted: NotedMove | None, now: GroupPosition | None) -> bool:
    if noted is None:  # it had no position there: the first move noted all its positions in the topic
        return now is not None
    if _has_run_on(now, noted):
        return True
    return not is_same(now, noted.stood) and (noted.goal is None or not is_same(now, noted.goal))


def decide_rollback(note: GroupNote, stands: Positions, live: TopicIds) -> list[Decision]:
    """Decide how to set a group back to its positions before the application."""
    return [
        _decide_back(place, topic_id, move, stands.get(place), live)
        for place, topic_id, move in _moves_of(note)
        if move.goal is not None
    ]


def _moves_of(note: GroupNote) -> Iterator[tuple[TopicPartition, str, NotedMove]]:
    for name, topic in sorted(note.topics.items()):
        for partition, move in sorted(topic.partitions.items(), key=lambda item: item[0]):
            yield (name, partition), topic.topic_id, move


def _decide_back(
    place: TopicPartition, topic_id: str, move: NotedMove, now: GroupPosition | None, live: TopicIds
) -> Decision:
    topic, partition = place
    outcome = PositionOutcome.MOVED
    if live.get(topic) != topic_id:
        outcome = PositionOutcome.OTHER_TOPIC
    elif is_same(now, move.stood):
        outcome = PositionOutcome.STOOD_THERE
    elif is_same(now, move.goal):
        outcome = PositionOutcome.SET
    return Decision(topic, topic_id, partition, move.goal, move.stood, outcome)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReport:
    """One group. `refusal`: why its name or kind prevents a change; `error`: the failure. A dry run has moved no position."""

    group: str
    source_group: str
    positions: Sequence[Decision] = ()
    refusal: str = ""
    error: ArchiverError | None = None

    @property
    def exit_code(self) -> int:
        outcomes = {one.outcome for one in self.positions}
        if self.error is not None:
            outcomes.discard(PositionOutcome.NOT_SET)
        is_left = bool(self.refusal) or not all(one.is_done for one in outcomes)
        return max(NotWholeError.exit_code if is_left else 0, 0 if self.error is None else self.error.exit_code)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationReport:
    """All groups, by name. `expiry_ms`: how long brokers keep positions of a group without members; None: unknown."""

    restore_id: str
    groups: Sequence[GroupReport]
    is_rollback: bool
    is_dry_run: bool
    expiry_ms: int | None

    @property
    def exit_code(self) -> int:
        """0: all positions are as wanted; 3: a group or a position was not changed; otherwise the code of the worst error."""
        return max((one.exit_code for one in self.groups), default=0)
