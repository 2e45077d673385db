"""The copies of a partition as the catalog knows them: the end for readers, and how whole a copy is."""

from dataclasses import replace

from archiver.archive.copies import role_entries as entries
from archiver.archive.copies.copy_catalog import CopyCatalog
from archiver.archive.format.layout import SegmentKey
from tests.support.memory_store import CountingStore
from tests.support.segments import facts_of
from tests.support.standing_copies import PLACE, StandingCopies, copy_of, generation


def put_history(stand: StandingCopies, base: int, following: int) -> None:
    key = SegmentKey(topic=PLACE.topic, life=0, partition=PLACE.partition, base=base)
    facts = facts_of(base, following)
    stand.put(stand.layout.segment_key(key), b"x", facts.to_metadata())


def test_without_a_current_copy_readers_end_where_the_history_ends() -> None:
    """A plain backup goes on until it sees that a copy holds: no reader loses what it has put meanwhile."""
    stand = StandingCopies()
    begun = entries.begin(None, 0, "a", has_history=False)
    assert CopyCatalog(stand.archive).end_for_readers(PLACE, begun).offset == 0
    put_history(stand, 0, 20)
    assert CopyCatalog(stand.archive).end_for_readers(PLACE, begun).offset == 20
    switched = entries.switch(begun, 1, copy_of("a0", 25))
    assert (switched.replaced, CopyCatalog(stand.archive).end_for_readers(PLACE, switched).offset) == ("topics/", 25)
    put_history(stand, 20, 30)
    assert CopyCatalog(stand.archive).end_for_readers(PLACE, switched).offset == 30


def test_where_a_log_was_cut_back_the_copy_of_before_is_read_until_the_new_life_has_one() -> None:
    stand = StandingCopies()
    child = replace(PLACE, life=1)
    assert (CopyCatalog(stand.archive).has_history(child), CopyCatalog(stand.archive).has_history(child, [0], 20)) == (
        False,
        True,
    )
    begun = entries.begin(None, 0, "a", has_history=True)
    stand.note(0, begun, 0)
    assert CopyCatalog(stand.archive).has_history(child, [0], 20)
    stand.note(1, entries.switch(begun, 1, copy_of("a0", 25)), 0)
    assert not CopyCatalog(stand.archive).has_history(child, [0], 20)
    put_history(stand, 0, 20)
    assert CopyCatalog(stand.archive).has_history(PLACE)


def test_a_damaged_object_at_the_end_of_what_is_read_keeps_no_copy_from_taking_its_place() -> None:
    """Readers are given nothing of it; nor may damage under topics/ block the turns of copies."""
    stand = StandingCopies()
    put_history(stand, 0, 20)
    stand.put(stand.layout.segment_key(SegmentKey(topic=PLACE.topic, life=0, partition=PLACE.partition, base=20)), b"x")
    begun = entries.begin(None, 0, "a", has_history=True)
    assert CopyCatalog(stand.archive).end_for_readers(PLACE, begun).offset == 20
    stand.fill("a0", [(0, 25), (25, 40), (40, 60)], damaged=[40])
    assert (
        CopyCatalog(stand.archive).end_for_readers(PLACE, entries.switch(begun, 1, copy_of("a0", 25, 30))).offset == 40
    )


def test_a_copy_with_a_hole_behind_its_first_record_has_expired_records() -> None:
    """Where the log began above offset 0, a copy lacks nothing."""
    stand = StandingCopies()
    stand.fill("a0", [(0, 20), (20, 40)], begins=10)
    stand.fill("a1", [(0, 20), (20, 40)], begins=10, expired=[20])
    told = [CopyCatalog(stand.archive).look_over(PLACE, generation(name)).has_expired for name in ("a0", "a1")]
    assert told == [False, True]


def counted() -> tuple[StandingCopies, CountingStore]:
    stand, store = StandingCopies(), CountingStore()
    stand.store = store
    stand.archive = stand.archive._replace(store=store)
    return stand, store


def test_facts_are_remembered_by_key_and_etag_and_times_of_puts_are_not() -> None:
    """Since when a copy is proved to be complete is judged by the present listing: an object may be brought back later."""
    stand, store = counted()
    stand.fill("a0", [(0, 10), (10, 20)])
    catalog = CopyCatalog(stand.archive)
    assert catalog.look_over(PLACE, generation("a0")).proven_since_ms(20) == 0
    stand.fill("a0", [(10, 20)], put_ms={10: 7_000})
    assert catalog.look_over(PLACE, generation("a0")).proven_since_ms(20) == 7_000
    assert store.heads == 2
    (key,) = stand.fill("a0", [(10, 30)])
    store.objects[key] = replace(store.objects[key], body=b"another's")
    assert catalog.look_over(PLACE, generation("a0")).end == 30
    assert store.heads == 3


def test_what_was_put_here_is_still_known_once_facts_are_forgotten() -> None:
    stand, store = counted()
    stand.fill("a0", [(0, 10), (10, 20)])
    catalog, copy = CopyCatalog(stand.archive), PLACE.copy_key(generation("a0"))
    for one in catalog.list_copy(copy):
        catalog.note_put(copy, one.item.key, one.item.etag)
    for _ in range(2):
        assert catalog.look_over(PLACE, generation("a0")).end == 20
    catalog.forget_facts(copy)
    assert catalog.look_over(PLACE, generation("a0")).end == 20
    assert store.heads == 4
    assert catalog.read_bodies(copy, catalog.list_copy(copy), lambda: True)  # their bodies are no Avro files
