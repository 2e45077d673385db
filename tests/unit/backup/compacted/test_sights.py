"""Where that ends what readers are given."""

from dataclasses import replace

from archiver.archive.layout import SegmentKey
from archiver.backup.compacted import entries
from archiver.backup.compacted.sights import end_of_readers, has_history, look_over_copy
from tests.support.segments import facts_of
from tests.support.standing_copies import PLACE, StandingCopies, copy_of, generation


def put_history(stand: StandingCopies, base: int, following: int) -> None:
    key = SegmentKey(topic=PLACE.topic, life=0, partition=PLACE.partition, base=base)
    facts = facts_of(base, following)
    stand.put(stand.layout.segment_key(key), b"x", facts.to_metadata())


def test_where_nobody_holds_readers_are_given_what_lies_under_topics_and_so_they_are_behind_the_first_copy() -> None:
    """A plain backup goes on until it sees that a copy holds: no reader loses what it has put meanwhile."""
    stand = StandingCopies()
    begun = entries.begin(None, 0, "a", has_history=False)
    assert end_of_readers(stand.archive, PLACE, begun).offset == 0
    put_history(stand, 0, 20)
    assert end_of_readers(stand.archive, PLACE, begun).offset == 20
    switched = entries.switch(begun, 1, copy_of("a0", 25))
    assert (switched.replaced, end_of_readers(stand.archive, PLACE, switched).offset) == ("topics/", 25)
    put_history(stand, 20, 30)
    assert end_of_readers(stand.archive, PLACE, switched).offset == 30


def test_where_a_log_was_cut_back_the_copy_of_before_is_read_until_the_new_life_has_one() -> None:
    stand = StandingCopies()
    child = replace(PLACE, life=1)
    assert (has_history(stand.archive, child), has_history(stand.archive, child, [0], 20)) == (False, True)
    begun = entries.begin(None, 0, "a", has_history=True)
    stand.note(0, begun, 0)
    assert has_history(stand.archive, child, [0], 20)
    stand.note(1, entries.switch(begun, 1, copy_of("a0", 25)), 0)
    assert not has_history(stand.archive, child, [0], 20)
    put_history(stand, 0, 20)
    assert has_history(stand.archive, PLACE)


def test_a_damaged_object_at_the_end_of_what_is_read_keeps_no_copy_from_taking_its_place() -> None:
    """Readers are given nothing of it; nor may damage under topics/ block the turns of copies."""
    stand = StandingCopies()
    put_history(stand, 0, 20)
    stand.put(stand.layout.segment_key(SegmentKey(topic=PLACE.topic, life=0, partition=PLACE.partition, base=20)), b"x")
    begun = entries.begin(None, 0, "a", has_history=True)
    assert end_of_readers(stand.archive, PLACE, begun).offset == 20
    stand.fill("a0", [(0, 25), (25, 40), (40, 60)], damaged=[40])
    assert end_of_readers(stand.archive, PLACE, entries.switch(begun, 1, copy_of("a0", 25, 30))).offset == 40


def test_a_copy_with_a_hole_behind_its_first_record_has_expired_records() -> None:
    """Where the log began above offset 0, a copy lacks nothing."""
    stand = StandingCopies()
    stand.fill("a0", [(0, 20), (20, 40)], begins=10)
    stand.fill("a1", [(0, 20), (20, 40)], begins=10, expired=[20])
    told = [look_over_copy(stand.archive, PLACE, generation(name)).has_expired for name in ("a0", "a1")]
    assert told == [False, True]
