"""What the archive tells of logs that were cut back: branches, epochs and ends, as a restore has found them."""

from dataclasses import replace
from typing import Any

import pytest

from archiver.archive.format.control import append_fact
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout, SegmentKey
from archiver.archive.notes.topic_changes import record_branch, record_topic
from archiver.archive.notes.topics import Branch
from archiver.config.model import IndexUse
from archiver.errors import NotWholeError
from archiver.groups.target.translation import Fork
from archiver.restore.groups.source_lives import SourceLives
from archiver.store.port import ObjectKind
from tests.support.copied_topic import complete_copy, copy_place, role_entry
from tests.support.memory_store import MemoryStore
from tests.support.segments import facts_of

LAST_LONG = 2**63 - 1


def put(archive: Archive, life: int, base: int, end: int, epoch: int, partition: int = 0) -> None:
    key = archive.layout.segment_key(SegmentKey(topic="orders", life=life, partition=partition, base=base))
    facts = replace(facts_of(base, end), leader_epoch=epoch, first=base + 1)
    archive.store.put_if_absent(key, b"x", facts.to_metadata(), kind=ObjectKind.SEGMENT)


def branch(archive: Archive, partition: int, parent: int, offset: int, seen_ms: int | None = 7) -> None:
    told = Branch(offset=offset, leader_epoch=1, seen_ms=seen_ms)
    record_branch(archive, topic="orders", partition=partition, parent=parent, branch=told)


@pytest.fixture
def archive() -> Archive:
    """Partition 0 was cut back twice, partition 1 never, and partition 2 in the second life, which has nothing of it."""
    made = Archive(MemoryStore(), Layout())
    record_topic(made, topic="orders", topic_id="a", cluster_id="c", partitions=3, configs={})
    put(made, 0, 0, 50, 1)
    put(made, 0, 50, 100, 3)
    put(made, 0, 0, 80, 3, partition=1)
    put(made, 0, 0, 60, 3, partition=2)
    branch(made, 0, 0, 95)
    branch(made, 2, 0, 40)
    put(made, 1, 95, 120, 5)
    put(made, 1, 120, 140, 6)
    branch(made, 0, 1, 110, seen_ms=None)
    put(made, 2, 110, 115, 8)
    return made


def lives_of(archive: Archive) -> SourceLives:
    return SourceLives(archive, {"orders"}, IndexUse.CHECK)


FIRST = Fork(life=1, offset=95, seen_ms=7, child_epoch=5, child_first=96, parent_epoch=3, parent_next=100)
SECOND = Fork(life=2, offset=110, seen_ms=None, child_epoch=8, child_first=111, parent_epoch=6, parent_next=140)


@pytest.mark.parametrize(
    ("life", "last_life", "source_next", "held", "end"),
    [
        (2, 2, 115, 2, 115),
        (1, 1, 140, 1, 140),
        (0, 0, 100, 0, 100),
        (2, None, 0, 2, 115),
        (2, 1, 110, 2, 115),  # a window that ends at the branch, or below
        (2, 0, 50, 2, 115),
        (2, 0, 100, 0, 100),  # restored before it was found that the log was cut back
        (2, 1, 130, 1, 140),
    ],
)
def test_a_partition_as_it_was_restored(
    archive: Archive, life: int, last_life: int | None, source_next: int, held: int, end: int
) -> None:
    found = lives_of(archive).partition("orders", life, 0, last_life, source_next)
    assert (found.held_life, found.end, found.forks) == (held, end, (FIRST, SECOND))


def test_partitions_that_were_not_cut_back_and_children_without_an_object(archive: Archive) -> None:
    lives = lives_of(archive)
    assert lives.partition("orders", 2, 1, 0, 80) == (0, 80, ())
    (fork,) = lives.partition("orders", 2, 2, 0, 40).forks
    assert fork == Fork(life=1, offset=40, seen_ms=7, child_first=LAST_LONG, parent_epoch=3, parent_next=60)


def test_the_end_of_a_damaged_parent_is_not_known(archive: Archive) -> None:
    key = archive.layout.segment_key(SegmentKey(topic="orders", life=0, partition=0, base=100))
    archive.store.put_if_absent(key, b"x", {}, kind=ObjectKind.SEGMENT)
    assert lives_of(archive).partition("orders", 2, 0, 2, 115).forks[0].parent_next is None


def test_lives_that_are_not_there_are_refused(archive: Archive) -> None:
    lives = lives_of(archive)
    assert [lives.root_of("orders", life) for life in (0, 1, 2)] == [0, 0, 0]
    with pytest.raises(NotWholeError, match="life 3 of orders, which the archive does not have"):
        lives.root_of("orders", 3)
    with pytest.raises(NotWholeError, match="of life 2, and not of life 1"):
        lives.partition("orders", 1, 0, 2, 115)
    with pytest.raises(NotWholeError, match="life 0 of other"):
        lives.root_of("other", 0)


def test_a_damaged_fact_is_of_its_topic_alone(archive: Archive) -> None:
    append_fact(archive, "topics/broken", lambda _: {"format": 1, "topic": "broken"})
    lives = SourceLives(archive, {"orders", "broken"}, IndexUse.CHECK)
    assert lives.root_of("orders", 1) == 0
    with pytest.raises(NotWholeError, match="broken"):
        lives.root_of("broken", 0)


class Copied:
    """Partition 0 was cut back once; instances have copies of both lives, and nothing lies under `topics/`."""

    def __init__(self) -> None:
        self.archive = Archive(MemoryStore(), Layout())
        record_topic(self.archive, topic="orders", topic_id="a", cluster_id="c", partitions=1, configs={})
        branch(self.archive, 0, 0, 95)

    def copy(self, life: int, number: int, *spans: tuple[int, int, int]) -> None:
        """Put a copy's objects, with their epochs, and make it the holder."""
        for base, end, epoch in spans:
            facts = replace(facts_of(base, end), leader_epoch=epoch)
            key = f"{copy_place('orders', 0, 'a', number, life)}orders+0-{base:020}.data"
            self.archive.store.put_if_absent(key, b"x", facts.to_metadata(), kind=ObjectKind.SEGMENT)
        end = max((span[1] for span in spans), default=0)
        self.entry(life, number + 1, holder=complete_copy("a", number, end, end + 2))

    def entry(self, life: int, number: int, **said: Any) -> None:  # noqa: ANN401 - as role_entry has them
        key, content = role_entry("orders", 0, number, life=life, **said)
        self.archive.store.put_if_absent(key, content, {}, kind=ObjectKind.FACT)

    def fork(self) -> Fork:
        (fork,) = lives_of(self.archive).partition("orders", 1, 0, 1, 0).forks
        return fork


COPIED = Fork(life=1, offset=95, seen_ms=7, child_epoch=6, child_first=119, parent_epoch=3, parent_next=122)


def test_copies_tell_where_a_log_was_cut_back() -> None:
    """A child's copy has the parent's records, too: the last record of an object on both sides is surely the child's."""
    found = Copied()
    found.copy(0, 3, (0, 50, 1), (50, 120, 3))
    found.copy(1, 0, (0, 80, 2), (80, 120, 6), (120, 140, 7))
    assert found.fork() == COPIED


def test_an_object_that_begins_above_the_branch_tells_its_first_record() -> None:
    found = Copied()
    found.copy(0, 3, (0, 50, 1), (50, 120, 3))
    found.copy(1, 0, (0, 96, 2), (96, 120, 6))
    fork = found.fork()
    assert (fork.child_epoch, fork.child_first) == (2, 95)
    found = Copied()
    found.copy(1, 0, (0, 95, 2), (95, 120, 6))
    fork = found.fork()
    assert (fork.child_epoch, fork.child_first, fork.parent_epoch, fork.parent_next) == (6, 95, 1, 0)


def test_what_lies_under_topics_tells_more_of_the_child(archive: Archive) -> None:
    assert lives_of(archive).partition("orders", 1, 0, 1, 140).forks[0] == FIRST
    key, content = role_entry("orders", 0, 0, holder=complete_copy("a", 0, 0, 107))
    archive.store.put_if_absent(key, content, {}, kind=ObjectKind.FACT)
    # It claims that the log had no record up to 107, and topics/ has some.
    assert lives_of(archive).partition("orders", 1, 0, 1, 140).forks[0] == replace(FIRST, parent_next=None)


def test_the_end_of_a_parent_whose_role_log_is_damaged_is_not_known() -> None:
    found = Copied()
    found.copy(0, 3, (0, 120, 3))
    found.entry(0, 5, holder=complete_copy("a", 9, 6))  # names an entry that is still to come
    assert found.fork().parent_next is None
