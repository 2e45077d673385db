from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

import pytest

from archiver.backup.partition.feed import Feed
from archiver.backup.service.commits import Commits
from archiver.kafka.groups.group import Hint
from archiver.kafka.groups.group_positions import OFFSETS_TOPIC

AGE_S = 300.0


class Group:
    """What was committed, and time."""

    def __init__(self) -> None:
        self.committed: list[Sequence[Hint]] = []
        self.now_s = 1000.0
        self.commits = Commits(self.committed.append, archive="0123abcd", age_s=AGE_S, clock=lambda: self.now_s)

    def note(self, topic: str, offset: int, partition: int = 0) -> None:
        writer = SimpleNamespace(durable_position=offset, newest_base=offset - 10)
        self.commits.note(cast("Feed", SimpleNamespace(key=(topic, partition), writer=writer)))

    def offsets(self) -> list[dict[tuple[str, int], int]]:
        return [{(hint.topic, hint.partition): hint.offset for hint in hints} for hints in self.committed]


@pytest.fixture
def group() -> Group:
    return Group()


def test_only_what_has_moved_is_committed(group: Group) -> None:
    group.commits.hand_over()
    group.note("a", 20)
    group.note("b", 30)
    group.note("a", 40)
    group.commits.hand_over()
    group.commits.hand_over()
    group.note("b", 50)
    group.commits.hand_over()
    assert group.offsets() == [{("a", 0): 40, ("b", 0): 30}, {("b", 0): 50}]
    assert [hint.base for hint in group.committed[0]] == [30, 20]


def test_a_commit_for_the_offsets_topic_alone_waits_for_the_age(group: Group) -> None:
    group.note(OFFSETS_TOPIC, 20)
    group.commits.hand_over()
    group.now_s += AGE_S - 1
    group.commits.hand_over()
    assert group.committed == []
    group.now_s += 1
    group.commits.hand_over()
    assert group.offsets() == [{(OFFSETS_TOPIC, 0): 20}]

    group.note(OFFSETS_TOPIC, 30)
    group.note("a", 5)  # it goes along with another's
    group.commits.hand_over()
    assert group.offsets()[1] == {(OFFSETS_TOPIC, 0): 30, ("a", 0): 5}


def test_revoked_partitions_take_their_hints_along(group: Group) -> None:
    group.note("a", 20)
    group.note("b", 30)
    group.commits.hand_over()
    group.note("a", 25)
    assert [hint.offset for hint in group.commits.take([("a", 0), ("b", 0), ("c", 0)])] == [25]
    group.commits.hand_over()
    assert len(group.committed) == 1
    group.note("d", 1)
    assert [(hint.topic, hint.offset) for hint in group.commits.all_hints()] == [("d", 1)]
