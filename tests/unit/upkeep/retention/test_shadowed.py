"""Objects that others cover: which of them go, and what must be right before, for a reader never to miss a record."""

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout, SegmentKey
from archiver.archive.format.store_clock import epoch_ms
from archiver.archive.index.inventory import read_inventory
from archiver.archive.notes.applied_limits import LimitSource
from archiver.archive.notes.swept import OffsetRanges, SweptPlace, add_swept, read_swept_place
from archiver.archive.notes.topic_changes import record_topic
from archiver.archive.notes.topics import LifeRange
from archiver.archive.reading.reader import found_or_gone, read_parts
from archiver.archive.segments.parts import ObjectPart, parts_within
from archiver.archive.segments.segment_facts import SegmentFacts, facts_from_metadata
from archiver.codec.selection import ALL_RECORDS
from archiver.config.model import StorageConfig
from archiver.errors import CorruptSegmentError, SweptError
from archiver.store.port import ObjectKind
from archiver.upkeep.retention.planning.covers import prove_covers
from archiver.upkeep.retention.planning.limits import FOR_EVER, Limits
from archiver.upkeep.retention.planning.partition_verdict import (
    Answer,
    AskedItem,
    Going,
    GoingItem,
    HeldTimes,
    LifeItems,
    ListedItem,
    PartitionTerms,
    Staying,
    judge_partition,
    remembering,
)
from archiver.upkeep.retention.planning.shadowed import ShadowedItem, judge_shadowed
from archiver.upkeep.retention.planning.survey import PartitionSweep, SurveyTask, ask_object, survey
from archiver.upkeep.retention.planning.sweep_plan import TopicSweep
from archiver.upkeep.retention.planning.topic_terms import TopicTerms
from archiver.upkeep.retention.sweeping.sweep import TopicSweepResult
from archiver.upkeep.retention.sweeping.swept_corrections import take_back_lying
from tests.support.frames import records_of
from tests.support.memory_store import MemoryStore
from tests.support.records import Rec
from tests.support.retention_worlds import draw_world
from tests.support.segments import SOURCE, written
from tests.support.sweeping import sweep_topic
from tests.unit.upkeep.retention.test_sweep import KilledError, MortalStore

LAYOUT = Layout()
KEY = SegmentKey(topic=SOURCE.topic, partition=SOURCE.partition, base=0)
PLACE = SweptPlace(SOURCE.topic, 0, SOURCE.partition)
TOPIC = TopicTerms(
    topic=SOURCE.topic,
    name=SOURCE.topic,
    topic_id=SOURCE.topic_id,
    root=0,
    newest=0,
    whose=LimitSource.TOPIC,
    limits=FOR_EVER,
    log_starts={3: 0},
)
TERMS = PartitionTerms(
    limits=FOR_EVER, now_ms=10**15, store_now_ms=10**15, min_age_ms=0, log_start=0, topic_id=SOURCE.topic_id
)


def records_from(first: int, count: int = 20) -> list[Rec]:
    return [Rec(first + index, 1000 + index, 0, b"k", b"value %d" % index) for index in range(count)]


def key_of(base: int, named_next: int | None = None) -> str:
    return LAYOUT.segment_key(replace(KEY, base=base, next=named_next))


MERGED = key_of(0, 48)
MERGED_RECORDS = [*records_from(0), *records_from(24)]


def put(store: MemoryStore, spool: Path, base: int, count: int) -> None:
    put_over(store, spool, records_from(base, count), key_of(base))


def put_over(store: MemoryStore, spool: Path, records: list[Rec], key: str = MERGED) -> None:
    """Put an object that is right in itself, in the place of another one."""
    store.objects.pop(key, None)
    content, facts = written(spool, records, store_base(key))
    store.put_if_absent(key, content, facts.to_metadata(), kind=ObjectKind.SEGMENT)


def store_base(key: str) -> int:
    parsed = LAYOUT.parse_segment(key)
    assert parsed is not None
    return parsed.base


@pytest.fixture
def merged(tmp_path: Path) -> tuple[Archive, MortalStore]:
    """Three objects of one partition, 0 to 72, and one that was made of the first two."""
    store = MortalStore()
    for base in (0, 24, 48):
        put(store, tmp_path, base, 20)
    put_over(store, tmp_path, MERGED_RECORDS)
    archive = Archive(store, LAYOUT)
    record_topic(archive, topic=SOURCE.topic, topic_id=SOURCE.topic_id, cluster_id="c", partitions=4, configs={})
    store.effects = 0
    return archive, store


def surveyed(archive: Archive, terms: PartitionTerms = TERMS) -> PartitionSweep:
    task = SurveyTask(
        storage=StorageConfig(url="s3://bucket"),
        topic=SOURCE.topic,
        partition=SOURCE.partition,
        root=0,
        lineage=(LifeRange(0, 0, None),),
        terms=terms,
        swept_by=FOR_EVER,
    )
    return survey(archive, task)


def sweep(archive: Archive, found: PartitionSweep) -> TopicSweepResult:
    return sweep_topic(archive, TopicSweep(terms=TOPIC, partitions=[found]), lambda _: "")


def keys(found: PartitionSweep) -> list[str]:
    return [one.going.item.key for one in found.shadowed]


def read(archive: Archive) -> list[Rec]:
    part = read_inventory(archive).partitions[SOURCE.topic, 0][SOURCE.partition]
    assert not part.gaps
    parts = parts_within(part.readable, ALL_RECORDS)
    return [one for frame in read_parts(archive.store, *PLACE[::2], parts) for one in records_of(frame)]


def test_shadowed_objects_go_and_a_reader_reads_what_it_read_before(merged: tuple[Archive, MortalStore]) -> None:
    archive, store = merged
    before = read(archive)
    found = surveyed(archive)
    assert keys(found) == [key_of(0), key_of(24)]
    assert found.staying == {Staying.WITHIN: 2}
    done = sweep(archive, found)
    assert [one.why for one in done.deleted] == [Going.SHADOWED] * 2
    assert done.records == 0
    assert sorted(key for key in store.objects if key.startswith("topics/")) == sorted([MERGED, key_of(48)])
    assert read(archive) == before
    assert not read_swept_place(archive, PLACE)  # a later loss of these offsets is a loss
    store.delete([MERGED])
    part = read_inventory(archive).partitions[SOURCE.topic, 0][SOURCE.partition]
    assert [str(gap) for gap in part.gaps] == ["0-47"]


def test_a_reader_that_had_listed_what_is_gone_learns_that_another_object_has_it(
    merged: tuple[Archive, MortalStore],
) -> None:
    """`verify` goes on, a restore says what to do; but what no other object has is lost."""
    archive, store = merged
    part = ObjectPart(object_key=key_of(24), from_offset=24, next_offset=48)
    sweep(archive, surveyed(archive))
    with pytest.raises(SweptError, match="another object has all of its offsets"):
        found_or_gone(store, part, None)
    with pytest.raises(CorruptSegmentError) as lost:
        found_or_gone(store, replace(part, next_offset=49), None)
    assert not isinstance(lost.value, SweptError)
    take_metadata(store)
    with pytest.raises(CorruptSegmentError) as lost:
        found_or_gone(store, part, None)
    assert not isinstance(lost.value, SweptError)


def test_a_cover_that_another_sweep_takes_at_the_same_moment_makes_no_loss(
    merged: tuple[Archive, MortalStore],
) -> None:
    archive, store = merged
    found = surveyed(archive)

    def take_the_cover() -> None:
        add_swept(archive, PLACE, OffsetRanges.of([(0, 48)]))
        store.delete([MERGED])
        take_back_lying(archive, PLACE, 0)  # the shadowed ones still lie there: the other sweep takes them for readable

    store.meanwhile = [take_the_cover]
    sweep(archive, found)
    assert read_swept_place(archive, PLACE).ranges == ((0, 48),)
    assert read(archive) == records_from(48)


def test_a_cover_that_is_lost_at_the_same_moment_is_a_loss(merged: tuple[Archive, MortalStore]) -> None:
    archive, store = merged
    found = surveyed(archive)
    store.meanwhile = [lambda: store.delete([MERGED])]
    sweep(archive, found)
    part = read_inventory(archive).partitions[SOURCE.topic, 0][SOURCE.partition]
    assert [str(gap) for gap in part.gaps] == ["0-47"]


@pytest.mark.parametrize("dies_at", [(0, False), (0, True)])
def test_killed_at_its_one_effect_a_rerun_ends_in_the_same_state(
    merged: tuple[Archive, MortalStore], dies_at: tuple[int, bool]
) -> None:
    archive, store = merged
    before = read(archive)
    store.dies_at = dies_at
    with pytest.raises(KilledError):
        sweep(archive, surveyed(archive))
    store.dies_at = None
    assert read(archive) == before
    sweep(archive, surveyed(archive))
    assert store.head(key_of(24)) is None
    assert read(archive) == before
    assert not keys(surveyed(archive))


def break_body(store: MemoryStore) -> None:
    found = store.objects[MERGED]
    body = bytearray(found.body)
    body[len(body) // 2] ^= 1
    store.objects[MERGED] = replace(found, body=bytes(body))


def cut_body(store: MemoryStore) -> None:
    found = store.objects[MERGED]
    store.objects[MERGED] = replace(found, body=found.body[:-40])


def take_metadata(store: MemoryStore) -> None:
    store.objects[MERGED] = replace(store.objects[MERGED], metadata={})


def other_metadata(store: MemoryStore) -> None:
    other = store.objects[key_of(48)].metadata
    store.objects[MERGED] = replace(store.objects[MERGED], metadata=other)


@pytest.mark.parametrize("damage", [break_body, cut_body, take_metadata, other_metadata])
def test_nothing_goes_whose_cover_is_not_whole(
    merged: tuple[Archive, MortalStore], damage: Callable[[MemoryStore], None]
) -> None:
    archive, store = merged
    damage(store)
    found = surveyed(archive)
    assert keys(found) == []
    assert sum(found.staying.values()) == 4
    if damage in {break_body, cut_body}:  # the others are never asked what they cover
        (problem,) = found.problems
        assert problem.startswith(f"{MERGED}: ")
        assert problem.endswith("; what it covers stays")
    sweep(archive, found)
    assert len([key for key in store.objects if key.startswith("topics/")]) == 4


FALSE_COVERS = {
    "one record": records_from(43, 1),
    "another value": [Rec(0, 1000, 0, b"k", b"other"), *MERGED_RECORDS[1:]],
    "a record less": MERGED_RECORDS[1:],
    "a record more": [*records_from(0, 21), *MERGED_RECORDS[20:]],
}


@pytest.mark.parametrize("records", FALSE_COVERS.values(), ids=FALSE_COVERS.keys())
@pytest.mark.parametrize("is_half_swept", [False, True])
def test_nothing_goes_whose_cover_has_other_records(
    merged: tuple[Archive, MortalStore], tmp_path: Path, records: list[Rec], is_half_swept: bool
) -> None:
    """Also where some of what it covers is gone already: each of the others is compared by itself."""
    archive, store = merged
    put_over(store, tmp_path, records)
    if is_half_swept:
        store.delete([key_of(24)])
    before = set(store.objects)
    found = surveyed(archive)
    assert keys(found) == []
    (problem,) = found.problems
    assert re.fullmatch(
        rf"{re.escape(MERGED)}: has .* at offsets 0-23, where {re.escape(key_of(0))} has 20; what it covers stays",
        problem,
    )
    sweep(archive, found)
    assert set(store.objects) == before


def test_a_sweep_that_died_half_way_goes_on(merged: tuple[Archive, MortalStore]) -> None:
    archive, store = merged
    before = read(archive)
    store.delete([key_of(0)])
    found = surveyed(archive)
    assert (keys(found), found.problems) == ([key_of(24)], ())
    sweep(archive, found)
    assert store.head(key_of(24)) is None
    assert read(archive) == before


@pytest.mark.parametrize("is_true", [True, False])
def test_a_plain_object_that_covers_plain_ones_is_compared_as_well(tmp_path: Path, is_true: bool) -> None:
    """A forger needs no merged name: an object between two others may say that it has all that comes."""
    store = MemoryStore()
    for base in (0, 24, 48):
        put(store, tmp_path, base, 20)
    cover = key_of(1)
    put_over(store, tmp_path, [*records_from(1, 19), *records_from(24)] if is_true else records_from(39, 1), cover)
    item = ListedItem(life=0, key=cover, base=1, put_ms=0)
    told = ask_object(store, replace(item, etag=store.head(cover).etag, size=store.head(cover).size))  # type: ignore[union-attr]
    covered = replace(item, key=key_of(24), base=24)
    facts = facts_from_metadata(store.objects[key_of(24)].metadata, key_of(24))
    assert isinstance(facts, SegmentFacts)
    going = GoingItem(
        item=covered, told=AskedItem(facts.next, 0, 0, 1, facts.records, digest=facts.digest), why=Going.SHADOWED
    )
    proven, problems = prove_covers(store, SOURCE.topic, SOURCE.partition, [ShadowedItem(going, item)], lambda _: told)
    assert (len(proven), len(problems)) == ((1, 0) if is_true else (0, 1))


def vanish(store: MemoryStore) -> None:
    store.delete([MERGED])


def put_again(store: MemoryStore) -> None:
    """The same bytes, at another time: whoever did that may have had others in between."""
    found = store.objects.pop(MERGED)
    store.put_if_absent(MERGED, found.body, found.metadata, kind=ObjectKind.SEGMENT)


@pytest.mark.parametrize("change", [vanish, put_again, break_body, take_metadata])
def test_a_cover_that_changes_before_the_delete_keeps_what_it_covers(
    merged: tuple[Archive, MortalStore], change: Callable[[MemoryStore], None]
) -> None:
    archive, store = merged
    found = surveyed(archive)
    change(store)
    assert not sweep(archive, found).deleted
    assert {key_of(0), key_of(24)} < store.objects.keys()


def test_an_object_that_was_put_again_stays(merged: tuple[Archive, MortalStore]) -> None:
    archive, store = merged
    found = surveyed(archive)
    again = store.objects.pop(key_of(24))
    store.put_if_absent(key_of(24), again.body, again.metadata, kind=ObjectKind.SEGMENT)
    assert [one.item.key for one in sweep(archive, found).deleted] == [key_of(0)]


def test_what_is_young_stays_and_so_does_what_a_young_object_covers(merged: tuple[Archive, MortalStore]) -> None:
    """A reader that listed before the merged one was put still wants the others."""
    archive, store = merged
    put_ms = epoch_ms(store.objects[MERGED].last_modified)
    young = replace(TERMS, store_now_ms=put_ms + 999, min_age_ms=1000)
    assert keys(surveyed(archive, young)) == []
    assert keys(surveyed(archive, replace(young, store_now_ms=put_ms + 1000))) == [key_of(0), key_of(24)]


def test_what_is_held_or_pinned_stays(merged: tuple[Archive, MortalStore]) -> None:
    archive, _ = merged
    assert keys(surveyed(archive, replace(TERMS, holds=(HeldTimes(),)))) == []
    assert keys(surveyed(archive, replace(TERMS, pinned=frozenset({key_of(0)})))) == [key_of(24)]


def test_what_goes_by_time_with_its_cover_is_swept_and_not_shadowed(merged: tuple[Archive, MortalStore]) -> None:
    archive, _ = merged
    found = surveyed(archive, replace(TERMS, limits=Limits(ms=1), log_start=100))
    assert {one.item.key for one in found.going} == {MERGED, key_of(0), key_of(24)}
    assert keys(found) == []


def test_the_newest_plain_object_stays_though_a_merged_one_covers_it(tmp_path: Path) -> None:
    store = MemoryStore()
    put(store, tmp_path, 0, 20)
    put(store, tmp_path, 24, 15)
    put_over(store, tmp_path, [*records_from(0), *records_from(24, 15)], key_of(0, 43))
    assert keys(surveyed(Archive(store, LAYOUT))) == [key_of(0)]


def test_a_plain_object_that_reaches_as_far_as_any_other_stays() -> None:
    ranges = {"00-08": (0, 8, 8), "02": (2, 8, None), "05": (5, 7, None)}
    items = [
        ListedItem(life=0, key=key, base=base, named_next=named, put_ms=0) for key, (base, _, named) in ranges.items()
    ]
    told = {key: AskedItem(end, 0, 0, 1, 1, topic_id=SOURCE.topic_id) for key, (_, end, _) in ranges.items()}
    lives = [LifeItems(life=0, items=items)]
    assert not judge_shadowed(lives, lambda item: told[item.key], lambda _: None, TERMS, ())
    told["02"] = told["02"]._replace(next=7)
    (gone,) = judge_shadowed(lives, lambda item: told[item.key], lambda _: None, TERMS, ())
    assert gone.going.item.key == "02"


def test_where_nothing_overlaps_by_name_nobody_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    for base in (0, 24, 48):
        put(store, tmp_path, base, 20)
    monkeypatch.setattr(store, "head", pytest.fail)
    assert not surveyed(Archive(store, LAYOUT)).shadowed


def test_what_the_store_denies_stays_and_the_rest_goes_on(merged: tuple[Archive, MortalStore]) -> None:
    archive, store = merged
    store.denied = frozenset({key_of(0)})
    done = sweep(archive, surveyed(archive))
    assert done.refused == [f"{key_of(0)}: denied"]
    assert store.head(key_of(24)) is None
    assert len(read(archive)) == 60


# --- random partitions, by a reading of the read rule that was written for this alone


def put_world(rng: random.Random) -> tuple[list[ListedItem], Mapping[str, Answer]]:
    told: dict[str, Answer] = {}
    items: dict[str, ListedItem] = {}
    for _ in range(rng.randint(1, 9)):
        base = rng.randint(0, 9)
        end = base + rng.randint(1, 6)
        is_merged = rng.random() < 0.6
        key = f"{base:02}-{end:02}" if is_merged else f"{base:02}"
        items[key] = ListedItem(
            life=0, key=key, base=base, named_next=end if is_merged else None, put_ms=rng.choice((0, 0, 900))
        )
        topic_id = SOURCE.topic_id if rng.random() < 0.9 else ""
        told[key] = AskedItem(end, 0, rng.randint(0, 9), 1, 1, rng.random() < 0.1, topic_id)
        if rng.random() < 0.1:
            told[key] = Staying.UNREADABLE
    return sorted(items.values(), key=lambda one: (one.base, -(one.named_next or 0))), told


def read_by_rule(items: list[ListedItem], told: Mapping[str, Answer]) -> dict[int, str]:
    """Which object each offset is read from."""
    position, found = 0, dict[int, str]()
    for item in items:
        answer = told[item.key]
        if not isinstance(answer, AskedItem) or answer.next <= position:
            continue
        found |= dict.fromkeys(range(max(item.base, position), answer.next), item.key)
        position = answer.next
    return found


@pytest.mark.parametrize("seed", range(400))
def test_whatever_goes_changes_no_reading(seed: int) -> None:
    rng = random.Random(seed)
    items, told = put_world(rng)
    terms = replace(TERMS, store_now_ms=1000, min_age_ms=500)
    asked_before = {key for key in told if rng.random() < 0.5}
    going = frozenset(key for key in told if rng.random() < 0.2)
    lives = [LifeItems(life=0, items=items)]

    def recall(item: ListedItem) -> Answer | None:
        return told[item.key] if item.key in asked_before else None

    gone = judge_shadowed(lives, lambda item: told[item.key], recall, terms, going)
    left = [one for one in items if one.key not in {some.going.item.key for some in gone}]
    assert read_by_rule(left, told) == read_by_rule(items, told)
    without = [one for one in left if one.key not in going]  # what they are read from does not go either
    covered = {offset for one in gone for offset in range(one.going.item.base, one.going.told.next)}
    assert covered <= read_by_rule(without, told).keys()
    plain = [one for one in items if one.named_next is None]
    newest = [answer for one in plain[-1:] if isinstance(answer := told[one.key], AskedItem)]
    ends = [*(one.next for one in newest), *(one.named_next for one in items if one.named_next is not None)]
    for one in gone:
        assert len(newest) == len(plain[-1:])
        assert one.going.item not in plain[-1:]
        assert one.going.told.next < max(ends)
        assert one.going.item.key not in going
        assert (one.going.item.put_ms, one.cover.put_ms, one.going.told.is_locked) == (0, 0, False)
        assert one.going.told.topic_id == SOURCE.topic_id


@pytest.mark.parametrize("seed", range(20))
def test_each_object_is_counted_once_and_a_former_life_keeps_what_is_read_of_it(seed: int) -> None:
    """In the worlds that plans by age and size are tried in: with lives, branches, zombies, locks and holds."""
    rng = random.Random(seed)
    found = 0
    for _ in range(100):
        world = draw_world(rng)
        told: dict[str, Answer] = {}
        ask = remembering(lambda item, world=world: world.told[item.key], told)  # type: ignore[misc]
        verdict = judge_partition(world.lineage, ask, world.terms)
        going = [one.item.key for one in verdict.going]
        gone = judge_shadowed(world.lineage, ask, lambda item, told=told: told.get(item.key), world.terms, going)  # type: ignore[misc]
        after = verdict.without(one.going.item.key for one in gone)
        assert sum(after.staying.values()) + len(going) + len(gone) == len(world.items)
        assert all(count > 0 for count in after.staying.values())
        keys_gone = {one.going.item.key for one in gone}
        assert keys_gone.isdisjoint(going)
        for life in world.lineage:
            left = [one for one in life.items if one.key not in keys_gone]
            assert read_by_rule(left, world.told) == read_by_rule(list(life.items), world.told)
        found += len(gone)
    assert found


def test_random_partitions_have_shadowed_objects() -> None:
    found = 0
    for seed in range(400):
        items, told = put_world(random.Random(seed))
        lives = [LifeItems(life=0, items=items)]
        found += len(judge_shadowed(lives, lambda item, told=told: told[item.key], lambda _: None, TERMS, ()))  # type: ignore[misc]
    assert found > 100
