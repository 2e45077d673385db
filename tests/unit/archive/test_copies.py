"""What is read of a compacted topic, by its role logs: held against a plain reading of docs/format.md §11."""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import pytest

from archiver.archive.copies.archived_topic import ArchivedTopic
from archiver.archive.copies.copied_topic import CopyChoice
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.archive.index.inventory import EMPTY_PARTITION, problems_of
from archiver.archive.notes.topic_changes import record_branch, record_topic
from archiver.archive.notes.topics import Branch
from archiver.archive.reading.catalog import find_topic, read_archive
from archiver.archive.reading.holdings import summarize
from archiver.archive.segments.segment_facts import Hole, HoleCause
from archiver.config.quantities import parse_time_ms
from archiver.errors import CorruptSegmentError, NotWholeError, UsageError
from archiver.restore.plan.request import RestoreRequest
from archiver.restore.plan.restore_plan import plan_restore, told_beside
from archiver.store.port import MOST_PUT_BYTES, ListedObject, ObjectInfo, ObjectKind
from tests.support.copied_bench import Bench, Ranges, T
from tests.support.copied_topic import complete_copy, copy_place, role_entry
from tests.support.memory_store import MemoryStore
from tests.support.segments import facts_of


class Given(NamedTuple):
    """What a reader is given of a partition."""

    owners: dict[int, str]  # by offset, the directory of the object that it is read from
    missing: set[int]


def given(topic: ArchivedTopic, number: int = 0) -> Given:
    found = topic.partitions.get(number, EMPTY_PARTITION)
    owners: dict[int, str] = {}
    last = -1
    for reading in found.readable:
        for offset in range(reading.from_offset, reading.next):
            assert offset > last, "offsets are read in order, each once"
            last = offset
            owners[offset] = reading.segment.object_key.rpartition("/")[0] + "/"
    missing = {offset for gap in found.gaps for offset in range(gap.first_offset, gap.last_offset + 1)}
    return Given(owners, missing)


def problems(topic: ArchivedTopic, number: int = 0) -> list[str]:
    return problems_of(T, number, topic.partitions.get(number, EMPTY_PARTITION), topic.damaged.get(number, ()))


def read_again(bench: Bench, before: ArchivedTopic, number: int = 0) -> dict[int, str]:
    """What is read where a plan names whose objects it has read."""
    return given(bench.find(before.life, pinned={T: before.copies}), number).owners


HISTORY_OF_0 = f"topics/{T}/partition=0/"


def place(instance: str, generation: int, partition: int = 0, life: int = 0) -> str:
    return copy_place(T, partition, instance, generation, life)


def all_of(where: str, offsets: Iterable[int]) -> dict[int, str]:
    return dict.fromkeys(offsets, where)


# --- any role log and any objects


def objects_of(chance: random.Random, until: int) -> list[tuple[int, int]]:
    """Objects as a writer puts them one behind the other; some may be gone, and a late one may overlap."""
    cuts = sorted({0, until, *(chance.randrange(until + 1) for _ in range(chance.randrange(4)))}) if until else [0]
    ranges = list(pairwise(cuts))
    if ranges and chance.random() < 0.3:
        ranges.pop(chance.randrange(len(ranges)))
    taken = {base for base, _ in ranges}
    if until > 2 and chance.random() < 0.3:
        base = chance.randrange(until - 1)
        ranges += [(base, chance.randrange(base + 1, until + 1))] if base not in taken else []
    return ranges


class Drawn(NamedTuple):
    """An object: what it covers, below which offset its missing records were replaced (0: none is missing), and when it was put."""

    base: int
    next: int
    until: int
    put: int


def drawn_objects(chance: random.Random, ranges: Mapping[Any, Ranges]) -> dict[Any, list[Drawn]]:
    """Let some objects lack records, and put all of them in any order."""
    puts = [(name, base, following) for name, some in ranges.items() for base, following in some]
    chance.shuffle(puts)
    found: dict[Any, list[Drawn]] = {name: [] for name in ranges}
    for put, (name, base, following) in enumerate(puts):
        may_lack = following > base + 1 and chance.random() < 0.5
        until = chance.choice((following, following + 2, 20, 2**63 - 1)) if may_lack else 0
        found[name].append(Drawn(base, following, until, put))
    return found


def read_in_order(objects: Iterable[Drawn]) -> dict[int, Drawn]:
    """By offset, the object that the read rule of section 7 takes."""
    found: dict[int, Drawn] = {}
    position = 0
    for one in sorted(objects, key=lambda one: (one.base, -one.next)):
        found |= dict.fromkeys(range(max(position, one.base), one.next), one)
        position = max(position, one.next)
    return found


def told_by_the_words(holder: Any, replaced: Any, objects: Mapping[Any, Sequence[Drawn]]) -> Given:  # noqa: ANN401
    """What is read, offset by offset, by the words of docs/format.md §11 alone."""
    held, former = (read_in_order(objects.get(_name(whose), ())) for whose in (holder, replaced))
    end = max(held, default=-1) + 1
    promised, position = (holder["next"], holder["position"]) if isinstance(holder, dict) else (0, 0)
    begin = end if any(end <= offset < position for offset in former) else max(end, position)
    tail = {offset for offset in former if offset >= begin}
    missing = set(range(max(end, promised))) - held.keys()
    missing |= set(range(begin, max(tail, default=-1) + 1)) - tail
    owners = {**all_of(_directory(holder), held), **all_of(_directory(replaced), tail)}
    if isinstance(holder, dict):
        settled = settled_by_the_words(held, position)
        others = {
            offset
            for offset, one in held.items()
            if offset >= settled and one.until and offset in former and is_better(former[offset], one)
        }
        owners |= all_of(_directory(replaced), others)
    return Given(owners, missing)


def is_better(former: Drawn, held: Drawn) -> bool:
    return not former.until or former.put < held.put


def settled_by_the_words(held: Mapping[int, Drawn], position: int) -> int:
    above = {one for offset, one in held.items() if offset >= position}
    places = {position, *(one.next for one in above)}
    return max(at for at in places if all(one.until <= at for one in above if one.next <= at))


def _name(whose: Any) -> Any:  # noqa: ANN401 - a copy, `topics/`, or nobody
    return (whose["generation"]["instance"], whose["generation"]["number"]) if isinstance(whose, dict) else whose


def _directory(whose: Any) -> str:  # noqa: ANN401 - as above
    return place(*_name(whose)) if isinstance(whose, dict) else HISTORY_OF_0


@pytest.mark.sampled(120)
@pytest.mark.parametrize("turn", range(400))
def test_the_holder_is_read_and_behind_its_end_what_it_replaced(seed: int, turn: int) -> None:
    chance = random.Random(f"{seed} {turn}")
    bench = Bench()
    names: list[Any] = [("a", 1), ("b", 2), ("a", 3), "topics/"]
    objects = {name: objects_of(chance, chance.choice((0, 4, 9, 15))) for name in names}
    drawn = drawn_objects(chance, objects)
    puts = sorted(((one.put, name, one) for name, some in drawn.items() for one in some), key=lambda put: put[0])
    for _, name, one in puts:
        nothing_tells = one.until == 2**63 - 1
        lacks = {"unserved": 1, "stable_end": None if nothing_tells else one.until} if one.until else {"unserved": 0}
        directory = HISTORY_OF_0 if name == "topics/" else place(*name)
        bench.put(directory, [(one.base, one.next)], 0, 0, {one.base: lacks})

    def whose(name: Any) -> Any:  # noqa: ANN401
        following = chance.randrange(16)
        position = following + chance.choice((0, 0, 3))
        return name if isinstance(name, str) else complete_copy(name[0], name[1], following, position)

    holder, replaced, former = (whose(name) for name in chance.sample(names, 3))
    replaced = chance.choice((replaced, replaced, None))
    bench.entry(3, holder=former)
    bench.entry(7, holder=holder, replaced=replaced, candidate=("b", 5))
    assert given(bench.find()) == told_by_the_words(holder, replaced, drawn)
    assert read_again(bench, bench.find()) == given(bench.find()).owners
    (read,) = read_archive(bench.archive)
    assert given(read) == given(bench.find())
    assert given(bench.find(is_history=True)).owners.keys() == told_by_the_words("topics/", None, drawn).owners.keys()


# --- one rule each


def test_without_a_role_log_what_lies_under_topics_is_read() -> None:
    bench = Bench(partitions=2)
    bench.history([(0, 5)])
    bench.copy("a", 0, [(0, 9)])  # being filled
    found = bench.find()
    assert (given(found), found.copies, found.notes) == (Given(all_of(HISTORY_OF_0, range(5)), set()), {}, ())


def test_a_holder_that_lost_its_last_objects_has_a_gap_and_a_damaged_one_is_told() -> None:
    bench = Bench()
    keys = bench.copy("a", 1, [(0, 5), (5, 9)])
    bench.entry(2, holder=complete_copy("a", 1, 12))
    assert given(bench.find()).missing == {9, 10, 11}
    bench.store.objects[keys[1]] = replace(bench.store.objects[keys[1]], metadata={})
    told = problems(bench.find())
    assert keys[1] in told[0]
    assert (
        "copy a/1 is not as complete as its role log says: its objects do not prove that it is whole up to offset 12"
        in told[1]
    )


def test_a_damaged_object_of_the_tail_counts_only_where_it_may_be_read() -> None:
    bench = Bench()
    bench.copy("b", 4, [(0, 6)])
    keys = bench.copy("a", 1, [(0, 3), (3, 6), (6, 8)])
    bench.entry(5, holder=complete_copy("b", 4, 6), replaced=complete_copy("a", 1, 3))
    bench.store.objects[keys[0]] = replace(bench.store.objects[keys[0]], metadata={})
    assert problems(bench.find()) == []
    bench.store.objects[keys[2]] = replace(bench.store.objects[keys[2]], metadata={})
    assert keys[2] in problems(bench.find())[0]


def test_nobody_holds() -> None:
    bench = Bench(partitions=2)
    bench.history([(0, 5)])
    for number in range(2):
        bench.entry(0, number, holder=None, candidate=("a", 0))
    found = bench.find()
    assert given(found).owners == all_of(HISTORY_OF_0, range(5))
    assert problems(found) == []
    assert found.notes == ("t-0: no copy is complete; what lies under topics/ is read",)
    assert "no copy of this partition is complete" in problems(found, 1)[0]


def test_a_copy_whose_objects_show_expired_records_is_unsure_whatever_its_role_log_says() -> None:
    bench = Bench()
    _, second = bench.copy("a", 0, [(0, 10), (10, 20)])
    bench.entry(0, holder=None, candidate=("a", 0))
    bench.entry(1, holder=complete_copy("a", 0, 20), replaced=None, candidate=("a", 0))
    assert (bench.find().notes, bench.find().copies[0].is_sure) == ((), True)
    hole = Hole(first_offset=10, last_offset=18, cause=HoleCause.EXPIRED)
    facts = replace(facts_of(10, 20), first=19, holes=(hole,), topic_id="A")
    bench.store.objects[second] = replace(bench.store.objects[second], metadata=facts.to_metadata())
    found = bench.find()
    assert not found.copies[0].is_sure
    assert "complete, but unsure" in found.notes[0]


# --- what a copy lacks, and what objects do not prove


def test_what_readers_were_given_behind_a_switch_stays_until_its_later_values_are_archived() -> None:
    """b took over at 100 and slept; a put one record; it was compacted, in favour of one at 600; b woke and went on to 512."""
    bench = Bench()
    bench.copy("a", 1, [(0, 100)])
    bench.copy("b", 4, [(0, 100)])
    bench.entry(5, holder=complete_copy("b", 4, 100), replaced=complete_copy("a", 1, 100))
    bench.copy("a", 1, [(100, 101)])
    assert given(bench.find()).owners[100] == place("a", 1)
    bench.copy("b", 4, [(100, 512)], told={100: {"first": 101, "unserved": 1, "stable_end": 700}})
    found = bench.find()
    expected = all_of(place("b", 4), range(512)) | {100: place("a", 1)}
    assert given(found) == Given(expected, set())
    assert read_again(bench, found) == expected
    assert problems(found) == []
    (note,) = found.notes
    assert "b/4 lacks records above offset 100" in note
    assert "has not reached offset 700" in note
    assert "so a/1 is needed, and read, too" in note
    bench.copy("b", 4, [(512, 700)])
    assert given(bench.find()).owners == all_of(place("b", 4), range(700))
    assert bench.find().notes == ()


SWITCH: Mapping[str, Any] = {"holder": complete_copy("b", 4, 100), "replaced": complete_copy("a", 1, 100)}


@pytest.mark.parametrize(
    ("forged", "is_true"),
    [
        ({"switched": 5}, True),
        ({"switched": 5, "holder": complete_copy("b", 4, 100, is_sure=False)}, True),
        ({"switched": 5, "holder": complete_copy("b", 4, 100, 300)}, False),
        ({"switched": 5, "holder": complete_copy("b", 4, 100, 700)}, False),
        ({"switched": 5, "replaced": None}, False),
        ({"switched": 5, "replaced": "topics/"}, False),
        ({"switched": 5, "replaced": complete_copy("b", 4, 100)}, False),
        ({"switched": 2}, False),
        ({}, False),
        ({"replaced": complete_copy("b", 4, 100)}, False),
    ],
)
def test_an_entry_that_hides_a_needed_record_is_told(forged: Mapping[str, Any], *, is_true: bool) -> None:
    bench = needed_record()
    assert given(bench.find()).owners[100] == place("a", 1)
    bench.entry(9, **{**SWITCH, **forged})
    told = problems(bench.find())
    if is_true:
        assert (given(bench.find()).owners[100], told) == (place("a", 1), [])
        return
    assert "entry 5 of the role log has copy b/4 as its holder first" in told[0]
    assert "--instance" in told[0]


@pytest.mark.parametrize("replaced", ["topics/", complete_copy("b", 4, 100)])
def test_a_switch_that_replaces_no_holder_is_told(replaced: str | Mapping[str, Any]) -> None:
    bench = needed_record(switch=9)
    bench.entry(8, holder=complete_copy("a", 1, 100), switched=2, candidate=("b", 4))
    assert problems(bench.find()) == []
    bench.store.delete([f"control/roles/{T}/0/0/000009.json"])
    bench.entry(9, **{**SWITCH, "replaced": replaced})
    assert "entry 9 of the role log has copy b/4 as its holder first" in problems(bench.find())[0]


def needed_record(switch: int = 5) -> Bench:
    """b/4 replaced a/1, and lacks record 100, which a/1 has: its later value is at 600."""
    bench = Bench()
    bench.copy("a", 1, [(0, 100), (100, 101)])
    bench.copy("b", 4, [(0, 100), (100, 512)], told={100: {"first": 101, "unserved": 1, "stable_end": 700}})
    bench.entry(2, holder=complete_copy("a", 1, 100), replaced="topics/")
    bench.entry(switch, **SWITCH)
    return bench


def test_a_copy_that_was_still_being_read_is_told() -> None:
    bench = Bench()
    bench.copy("b", 4, [(0, 90)], told={0: {"stable_end": 300}})
    bench.entry(5, holder=complete_copy("b", 4, 90))
    (told,) = problems(bench.find())
    assert (
        "copy b/4 is not as complete as its role log says: the log went on to offset 300 while it was read to 90"
        in told
    )
    assert "--history" in told


@pytest.mark.parametrize("other", ["history", "copy", "replaced"])
@pytest.mark.parametrize("ranges", [[], [(0, 90)]])
def test_records_where_a_copy_claims_that_there_were_none_are_told(other: str, ranges: Ranges) -> None:
    bench = Bench()
    bench.copy("b", 4, ranges)
    before = complete_copy("a", 1, 300) if other == "replaced" else None
    bench.entry(5, holder=complete_copy("b", 4, 90 if ranges else 0, 300), replaced=before)
    assert problems(bench.find()) == []
    some = [(0, 90), (90, 300)]
    bench.history(some) if other == "history" else bench.copy("a", 1, some)
    (told,) = problems(bench.find())
    whose = "topics/" if other == "history" else "a/1"
    assert f"it has no record from offset {90 if ranges else 0} on, and {whose} has" in told
    assert ("--history" in told, len(given(bench.find()).owners)) == (True, 300 if before else 90 if ranges else 0)


def two_copies(*, is_small: bool = False) -> Bench:
    """a/1 held, and b/4 has taken its place and gone on."""
    bench = Bench()
    bench.copy("a", 1, [(0, 100)])
    bench.copy("b", 4, [(0, 300)] if is_small else [(0, 100), (100, 300)])
    bench.history([(0, 50)])
    bench.entry(2, holder=complete_copy("a", 1, 100), replaced="topics/")
    bench.entry(5, holder=complete_copy("b", 4, 100), replaced=complete_copy("a", 1, 100), candidate=("b", 4))
    return bench


@pytest.mark.parametrize("is_small", [False, True])
@pytest.mark.parametrize(
    "forged",
    [
        {"holder": complete_copy("a", 1, 100)},
        {"holder": complete_copy("a", 1, 100), "replaced": "topics/", "switched": 0},
        {"holder": complete_copy("a", 1, 100), "replaced": complete_copy("c", 0, 100), "switched": 2},
        {"holder": "topics/"},
        {"holder": "topics/", "replaced": complete_copy("a", 1, 100)},
        {"holder": None},
        {"holder": None, "candidate": ("b", 4)},
    ],
)
def test_an_entry_that_hides_a_copy_which_reaches_further_is_told(forged: Mapping[str, Any], *, is_small: bool) -> None:
    bench = two_copies(is_small=is_small)
    assert problems(bench.find()) == []
    bench.entry(9, **forged)
    (told,) = problems(bench.find())
    why = "an earlier entry calls copy b/4 complete, and that has later records"
    assert (why if forged["holder"] else "an earlier entry has b/4 as its holder") in told
    assert "--instance" in told
    assert given(bench.find(instance="b")).owners == all_of(place("b", 4), range(300))


@pytest.mark.parametrize("is_child", [False, True])
def test_an_entry_without_a_holder_is_refused_in_a_later_life(*, is_child: bool) -> None:
    """Else the complete copy of an older life is read, with fewer records."""
    bench = two_copies()
    life = 1
    if is_child:
        life, _ = record_branch(bench.archive, topic=T, partition=0, parent=0, branch=Branch(offset=6, leader_epoch=1))
    else:
        bench.create("B")
    bench.copy("c", 1, [(0, 400)], life=life)
    bench.entry(0, holder=None, candidate=("c", 0), life=life)
    bench.entry(1, holder=None, candidate=("c", 1), life=life)
    assert problems(bench.find()) == []
    bench.entry(2, holder=complete_copy("c", 1, 400), replaced="topics/", life=life)
    assert given(bench.find()).owners == all_of(place("c", 1, life=life), range(400))
    bench.entry(3, holder=None, life=life)
    found = bench.find()
    (told,) = problems(found)
    assert (found.life, given(found).owners) == (life, {})
    assert f"control/roles/t/{life}/0/000003.json: names no holder, but an earlier entry has c/1 as its holder" in told


@pytest.mark.parametrize("forged", [{"holder": complete_copy("a", 1, 100)}, {"holder": None}])
@pytest.mark.parametrize("is_known", [False, True])
def test_many_forged_entries_hide_no_copy(forged: Mapping[str, Any], *, is_known: bool) -> None:
    """`is_known`: the entry that calls the hidden copy complete is still there. Without it the answer is unknown, not no."""
    bench = two_copies()
    for number in range(6, 1_100):
        bench.entry(number, **forged)
    if not is_known:
        bench.store.delete([f"control/roles/{T}/0/0/{number:06}.json" for number in (2, 5)])
    (told,) = problems(bench.find())
    unknown = (
        "is unknown: there are more than 1,000" if forged["holder"] is None else "whether it was complete is unknown"
    )
    is_told = is_known and forged["holder"] is not None  # the other entry is read newest first
    assert ("an earlier entry calls copy b/4 complete" if is_told else unknown) in told


@pytest.mark.parametrize("is_small", [False, True])
def test_a_candidate_that_was_complete_is_told_where_an_object_of_it_begins_behind_the_end(*, is_small: bool) -> None:
    """Whoever reads asks no candidate for facts: of one that is being filled, that would be a request at each read."""
    bench = two_copies(is_small=is_small)
    bench.entry(9, holder=complete_copy("a", 1, 100), replaced="topics/", candidate=("b", 4))
    assert len(problems(bench.find())) == (0 if is_small else 1)


def test_a_copy_that_was_never_complete_may_reach_further() -> None:
    """Its instance has given it up, or has begun it since."""
    bench = Bench()
    bench.copy("a", 1, [(0, 100)])
    bench.entry(2, holder=complete_copy("a", 1, 100), replaced="topics/")
    for number in (4, 9):
        bench.copy("b", number, [(0, 100), (100, 300)])
    bench.entry(6, holder=complete_copy("a", 1, 100), replaced="topics/", switched=2, candidate=("b", 6))
    assert problems(bench.find()) == []


class Requests(MemoryStore):
    """Counts what a reader asks of copies."""

    def __init__(self) -> None:
        super().__init__()
        self.listed: list[str] = []
        self.asked: list[str] = []
        self.entries: list[str] = []

    def list(self, prefix: str, start_after: str = "") -> Iterator[ListedObject]:
        self.listed += [prefix] if prefix.startswith("compacted/") else []
        return super().list(prefix, start_after)

    def head(self, key: str) -> ObjectInfo | None:
        self.asked += [key] if key.startswith("compacted/") else []
        return super().head(key)

    def get(self, key: str, most_bytes: int = MOST_PUT_BYTES) -> tuple[bytes, Mapping[str, str]] | None:
        self.entries += [key] if key.startswith("control/roles/") else []
        return super().get(key, most_bytes)


@pytest.mark.parametrize("position", [90, 100])
def test_reading_copies_takes_few_requests(position: int) -> None:
    """Of a log that ends in a marker (position 100), other copies are listed once for all partitions, and one object of each is asked."""
    bench = Bench(partitions=4)
    bench.store = store = Requests()
    bench.store.objects = bench.archive.store.objects  # type: ignore[attr-defined]
    bench.archive = Archive(store, Layout())
    for number in range(4):
        bench.copy("a", 1, [(0, 90)], number)
        bench.copy("b", 4, [(0, 90)], number)
        bench.copy("a", 6, [(0, 40), (40, 80)], number)
        before = complete_copy("a", 1, 90, position)
        bench.entry(
            6, number, holder=complete_copy("b", 4, 90, position), replaced=before, switched=5, candidate=("a", 6)
        )
        bench.entry(5, number, holder=complete_copy("b", 4, 90, position), replaced=before, candidate=("b", 4))
    found = bench.find()
    assert [problems(found, number) for number in range(4)] == [[]] * 4
    assert len(store.entries) == 4  # the newest of each
    is_marker = position > 90
    assert store.listed == ["compacted/", "compacted/a/topics/t/", "compacted/b/topics/t/"]
    assert len(store.asked) == 8 + 4 * is_marker


@pytest.mark.parametrize(
    ("told", "is_settled"),
    [
        ({0: {"unserved": 1, "stable_end": 90, "first": 1}}, True),
        ({0: {"holes": (Hole(first_offset=0, last_offset=8, cause=HoleCause.EXPIRED),), "first": 9}}, True),
        ({50: {"holes": (Hole(first_offset=50, last_offset=58, cause=HoleCause.EXPIRED),), "first": 59}}, False),
        ({50: {"unserved": 1, "stable_end": 100, "first": 51}}, False),
        ({50: {"unserved": 1, "stable_end": None, "first": 51}}, False),
        ({50: {"unserved": None, "stable_end": 90, "first": 51}}, False),
    ],
)
def test_earlier_entries_are_read_only_if_objects_do_not_prove_that_the_holder_is_settled(
    told: Mapping[int, Mapping[str, Any]], *, is_settled: bool
) -> None:
    bench = Bench()
    bench.store = store = Requests()
    bench.store.objects = bench.archive.store.objects  # type: ignore[attr-defined]
    bench.archive = Archive(store, Layout())
    bench.copy("b", 4, [(0, 50), (50, 90)], told=told)
    holder = complete_copy("b", 4, 90, 100)
    bench.entry(5, holder=holder, candidate=("b", 4))
    bench.entry(6, holder=holder, candidate=("a", 6), switched=5)
    assert problems(bench.find()) == []
    assert len(store.entries) == (1 if is_settled else 2)


def test_a_copy_without_an_object_and_a_position_of_zero_hides_nothing() -> None:
    bench = Bench()
    bench.history([(0, 700)])
    bench.entry(5, holder=complete_copy("b", 4, 0))
    assert "and topics/ has" in problems(bench.find())[0]


@pytest.mark.parametrize("is_told", [True, False])
def test_the_role_log_of_a_topic_that_was_never_compacted_is_not_read(*, is_told: bool) -> None:
    bench = Bench(effective={"cleanup.policy": "delete"} if is_told else {})
    bench.history([(0, 700)])
    bench.entry(5, holder=complete_copy("b", 4, 700))
    told = list[str]()
    found = find_topic(bench.archive, T, report_problem=told.append)
    (read,) = read_archive(bench.archive)
    if not is_told:  # it may have been: nothing tells
        assert (given(found).missing, told, read.ignored) == (set(range(700)), [], ())
        return
    assert (given(found), problems(found)) == (Given(all_of(HISTORY_OF_0, range(700)), set()), [])
    assert "control/roles/t/ is not read: the topic never had compact in cleanup.policy" in told[0]
    assert (given(read), read.ignored) == (given(found), tuple(told))
    assert told == list(told_beside([read], plan_restore([read], {T: T}), RestoreRequest()))
    assert list(told) == summarize(bench.archive, T).problems == summarize(bench.archive, None).problems
    bench.create("A", effective={"cleanup.policy": "compact"})
    assert given(bench.find()).missing == set(range(700))


# --- which life


def test_a_newer_topic_without_complete_copies_does_not_hide_the_older_one() -> None:
    bench = Bench(partitions=2)
    for number in range(2):
        bench.copy("a", 1, [(0, 5)], number)
        bench.entry(2, number, holder=complete_copy("a", 1, 5))
    bench.create("B", partitions=2)
    bench.copy("a", 0, [(0, 2)], life=1)
    bench.entry(1, holder=complete_copy("a", 0, 2), life=1)
    bench.entry(0, 1, holder=None, candidate=("a", 0), life=1)
    found = bench.find()
    assert (found.life, given(found).owners) == (0, all_of(place("a", 1), range(5)))
    assert found.notes == (
        "t: life 1 is passed over, and an older one is read: partition 1 has no complete copy there yet (--life 1)",
    )
    assert found.other_lives == (1,)
    wanted = bench.find(1)
    assert given(wanted).owners == all_of(place("a", 0, life=1), range(2))
    assert "no copy of this partition is complete" in problems(wanted, 1)[0]
    bench.entry(1, 1, holder=complete_copy("a", 0, 0), life=1)  # complete, and empty
    assert (bench.find().life, bench.find().notes) == (1, ())


def test_a_newer_topic_under_topics_is_read() -> None:
    bench = Bench()
    bench.copy("a", 1, [(0, 5)])
    bench.entry(2, holder=complete_copy("a", 1, 5))
    bench.create("B")
    bench.history([(0, 3)], life=1)
    assert bench.find().life == 1
    bench.entry(0, holder=None, candidate=("a", 0), life=1)
    assert bench.find().life == 1
    assert given(bench.find(0)).owners == all_of(place("a", 1), range(5))


def test_the_newest_is_read_where_none_is_all_there() -> None:
    bench = Bench()
    bench.entry(0, holder=None, candidate=("a", 0))
    bench.create("B")
    bench.entry(0, holder=None, candidate=("a", 0), life=1)
    found = bench.find()
    assert (found.life, found.notes) == (1, ())
    assert problems(found)


def test_each_partition_is_read_in_the_newest_life_with_a_complete_copy() -> None:
    bench = Bench(partitions=2)
    for number in range(2):
        bench.copy("a", 1, [(0, 9)], number)
        bench.entry(2, number, holder=complete_copy("a", 1, 9))
    life, _ = record_branch(bench.archive, topic=T, partition=1, parent=0, branch=Branch(offset=6, leader_epoch=1))
    bench.entry(0, 1, holder=None, candidate=("a", 0), life=life)
    assert given(bench.find(), 1).owners == all_of(place("a", 1, 1), range(9))
    bench.history([(6, 8)], 1, life)  # the log was cut back, and plain backup goes on in its child
    found = bench.find()
    child = f"topics/{T}@{life}/partition=1/"
    assert given(found, 1) == Given(all_of(place("a", 1, 1), range(6)) | all_of(child, range(6, 8)), set())
    assert "from offset 6 on, what lies under topics/ is read" in found.notes[0]
    assert read_again(bench, found, 1) == given(found, 1).owners
    bench.copy("b", 1, [(0, 7)], 1, life)
    bench.entry(2, 1, holder=complete_copy("b", 1, 7), life=life)
    found = bench.find()
    assert (found.life, given(found, 1).owners) == (life, all_of(place("b", 1, 1, life), range(7)))
    assert given(found).owners == all_of(place("a", 1), range(9))


# --- entries of others


def test_an_entry_that_cannot_be_damages_its_partition_alone() -> None:
    bench = Bench(partitions=2)
    for number in range(2):
        bench.copy("a", 1, [(0, 5)], number)
        bench.history([(0, 3)], number)
    bench.entry(2, 1, holder=complete_copy("a", 1, 5))
    bench.entry(2, holder=complete_copy("a", 1, 5))
    key = bench.entry(3, holder=complete_copy("a", 1, 5), other={"partition": 1})
    found = bench.find()
    assert given(found) == Given({}, set())
    assert len(problems(found)) == 1
    assert key in problems(found)[0]
    assert given(found, 1).owners == all_of(place("a", 1, 1), range(5))
    assert problems(found, 1) == []


def test_what_is_no_entry_of_this_topic_is_left_alone() -> None:
    bench = Bench()
    bench.copy("a", 1, [(0, 5)])
    bench.entry(2, holder=complete_copy("a", 1, 5))
    bench.entry(0, holder=complete_copy("a", 0, 9), life=7)  # the topic has no such life
    for stream in ("0/01", "x/0", "0/0/x", "00/0"):
        bench.store.put_if_absent(f"control/roles/{T}/{stream}/000009.json", b"{}", {}, kind=ObjectKind.FACT)
    found = bench.find()
    assert given(found).owners == all_of(place("a", 1), range(5))
    assert "a role log of life 7" in found.notes[0]


def test_groups_are_never_read_from_a_copy() -> None:
    store = MemoryStore()
    archive = Archive(store, Layout())
    record_topic(archive, topic="__consumer_offsets", topic_id="A", cluster_id="c", partitions=1, configs={})
    key, content = role_entry("__consumer_offsets", 0, 2, holder=complete_copy("a", 1, 5))
    store.put_if_absent(key, content, {}, kind=ObjectKind.FACT)
    found = find_topic(archive, "__consumer_offsets")
    assert (found.copies, dict(found.partitions)) == ({}, {})


# --- what a reader asks for


def test_an_instance_is_read_as_far_as_its_newest_complete_copy_stands() -> None:
    bench = Bench()
    bench.copy("a", 0, [(0, 3)])
    bench.copy("b", 2, [(0, 4), (4, 7)])
    bench.copy("a", 4, [(0, 9)])
    bench.entry(1, holder=complete_copy("a", 0, 3))
    bench.entry(3, holder=complete_copy("b", 2, 4), replaced=complete_copy("a", 0, 3))
    bench.entry(5, holder=complete_copy("a", 4, 9), replaced=complete_copy("b", 2, 4))
    bench.entry(6, holder=complete_copy("a", 4, 9), switched=5, candidate=("b", 6))
    assert given(bench.find(instance="b")).owners == all_of(place("b", 2), range(7))
    assert given(bench.find(instance="a")).owners == all_of(place("a", 4), range(9))
    bench.store.delete([f"{place('b', 2)}{T}+0-{0:020}.data"])
    with pytest.raises(
        UsageError, match="instance b has no complete copy of topic t; the copies that are read are of a"
    ):
        bench.find(instance="b")
    bench.store.delete([f"{place('a', 4)}{T}+0-{0:020}.data"])  # the holder is read as it is
    assert given(bench.find(instance="a")).missing == set(range(9))


def test_a_former_holder_is_found_behind_many_entries() -> None:
    """A holder that cannot be replaced sees many candidates begin: what held before is some steps away, not thousands."""
    bench = Bench()
    bench.copy("a", 0, [(0, 3)])
    bench.entry(1, holder=complete_copy("a", 0, 3))
    for number in range(2, 1_300):
        bench.entry(number, holder=complete_copy("b", 0, 0), switched=2, candidate=("b", number))
    assert given(bench.find(instance="a")).owners == all_of(place("a", 0), range(3))


def test_an_instance_and_a_history_are_not_one() -> None:
    with pytest.raises(UsageError, match="take one of them"):
        CopyChoice(instance="a", is_history=True)


class Turns:
    """A topic whose history was followed by copy a/1, then by copy b/3; and when the switches were."""

    def __init__(self) -> None:
        self.bench = Bench()
        self.bench.history([(0, 6)])
        self.before_first = self.bench.second()
        self.bench.entry(0, holder="topics/", candidate=("a", 0))
        self.bench.copy("a", 1, [(0, 6), (6, 9)])
        self.bench.entry(2, holder=complete_copy("a", 1, 9), replaced="topics/")
        self.first = self.bench.second() + 1000
        self.bench.copy("a", 1, [(9, 11)])
        self.bench.copy("b", 3, [(0, 11), (11, 14)])
        self.bench.entry(4, holder=complete_copy("b", 3, 14), replaced=complete_copy("a", 1, 9))
        self.second = self.bench.second() + 1000


def test_a_time_after_the_switch_is_told_by_the_holder() -> None:
    turns = Turns()
    assert given(turns.bench.find(as_of_ms=turns.second)).owners == all_of(place("b", 3), range(14))


def test_a_time_before_the_switch_is_told_by_the_copy_that_held_then() -> None:
    turns = Turns()
    found = turns.bench.find(as_of_ms=turns.first)
    expected = all_of(place("a", 1), range(11)) | all_of(place("b", 3), range(11, 14))
    assert given(found) == Given(expected, set())
    assert str(found.copies[0]) == "a/1 + b/3"
    assert read_again(turns.bench, found) == expected


def test_a_switch_that_is_called_older_than_it_is_is_told() -> None:
    turns = Turns()
    turns.bench.entry(5, holder=complete_copy("b", 3, 14), replaced=complete_copy("a", 1, 9), switched=4)
    assert problems(turns.bench.find(as_of_ms=turns.first)) == []
    turns.bench.entry(6, holder=complete_copy("b", 3, 14), replaced=complete_copy("a", 1, 9), switched=2)
    (told,) = problems(turns.bench.find(as_of_ms=turns.first))
    assert "entry 4 of the role log has copy b/3 as its holder first" in told


def test_a_time_before_all_copies_is_told_by_the_history_if_it_reached_then() -> None:
    turns = Turns()
    found = turns.bench.find(as_of_ms=turns.before_first)
    assert given(found).owners == all_of(HISTORY_OF_0, range(6)) | all_of(place("b", 3), range(6, 14))
    assert read_again(turns.bench, found) == given(found).owners
    with pytest.raises(UsageError, match="the archive has no state as of then"):
        turns.bench.find(as_of_ms=turns.before_first + 1000)


def test_the_earliest_possible_time_is_told_and_possible() -> None:
    turns = Turns()
    turns.bench.store.delete([f"{place('a', 1)}{T}+0-{6:020}.data"])  # as a clearing leaves it half way
    with pytest.raises(UsageError) as refused:
        turns.bench.find(as_of_ms=turns.first)
    moment = str(refused.value).partition("take --until ")[2].split(" ")[0]
    assert parse_time_ms(moment) == turns.second
    assert given(turns.bench.find(as_of_ms=parse_time_ms(moment))).owners == all_of(place("b", 3), range(14))


# --- what was planned before


def test_what_was_read_before_is_read_again_whoever_holds_now() -> None:
    bench = Bench()
    bench.history([(0, 6), (6, 10)])
    bench.copy("a", 1, [(0, 7)])
    bench.entry(2, holder=complete_copy("a", 1, 7, 8), replaced="topics/")
    before = bench.find()
    bench.history([(10, 12)])
    bench.copy("a", 1, [(7, 11)])  # the holder went on
    bench.copy("b", 3, [(0, 14)])
    bench.entry(4, holder=complete_copy("b", 3, 14), replaced=complete_copy("a", 1, 7))
    assert given(bench.find()).owners == all_of(place("b", 3), range(14))
    again = given(bench.find(pinned={T: before.copies}))
    assert {offset: again.owners[offset] for offset in again.owners if offset < 10} == given(before).owners
    assert again.missing == set()


def test_what_was_never_complete_is_not_read_for_a_plan() -> None:
    bench = Bench()
    bench.copy("a", 1, [(0, 7)])
    bench.copy("b", 3, [(0, 2)])
    bench.entry(2, holder=complete_copy("a", 1, 7))
    held = bench.find().copies[0]
    bench.entry(3, holder=complete_copy("a", 1, 7), switched=2, candidate=("b", 3))
    for stretches in (
        (held.stretches[0]._replace(generation=type(held.stretches[0].generation)(instance="b", number=3)),),  # type: ignore[misc]
        (held.stretches[0]._replace(from_offset=4),),
        (),
    ):
        with pytest.raises(CorruptSegmentError, match="the plan names"):
            bench.find(pinned={T: {0: replace(held, stretches=stretches)}})


def test_an_error_of_the_topics_fact_is_told_and_copies_are_read() -> None:
    bench = Bench()
    bench.copy("a", 1, [(0, 7)])
    bench.entry(2, holder=complete_copy("a", 1, 7))
    bench.store.put_if_absent("control/topics/t/000001.json", b"{", {}, kind=ObjectKind.FACT)
    told: list[str] = []
    found = find_topic(bench.archive, T, report_problem=told.append)
    assert given(found).owners == all_of(place("a", 1), range(7))
    assert len(told) == 1
    with pytest.raises(NotWholeError):
        read_archive(bench.archive)


@pytest.mark.parametrize("kind", ["ordinary", "compacted"])
def test_a_life_that_no_note_names_hides_nothing(kind: str) -> None:
    """Somebody has put an object there, or a note is lost: it is reported, and read where it is asked for."""
    bench = Bench()
    if kind == "compacted":
        bench.copy("a", 0, [(0, 100)])
        bench.entry(0, holder=None, candidate=("a", 0))
        bench.entry(1, holder=complete_copy("a", 0, 100))
    else:
        bench.history([(0, 100)])
    key = f"topics/{T}@7/partition=0/{T}+0-{0:020}.data"
    bench.store.put_if_absent(key, b"forged", facts_of(0, 1).to_metadata(), kind=ObjectKind.SEGMENT)
    problems: list[str] = []
    found = find_topic(bench.archive, T, report_problem=problems.append)
    assert (found.life, found.partitions[0].end) == (0, 100)
    (problem,) = problems
    assert problem.startswith("t: life 7 has objects, and control/topics/t/ does not name it, so it is not read")
    (planned,) = read_archive(bench.archive)
    assert (planned.life, planned.ignored) == (0, tuple(problems))
    assert find_topic(bench.archive, T, 7).partitions[0].end == 1


# --- what `ls` shows


def test_ls_shows_which_copy_is_read() -> None:
    bench = Bench(partitions=2)
    bench.history([(0, 4)])
    bench.copy("a", 1, [(0, 5), (5, 7)])
    bench.copy("b", 3, [(0, 5)])
    bench.entry(4, holder=complete_copy("b", 3, 5), replaced=complete_copy("a", 1, 5))
    bench.copy("a", 1, [(0, 2)], 1)
    bench.entry(2, 1, holder=complete_copy("a", 1, 2, is_sure=False))
    whole = summarize(bench.archive, None)
    assert [(one.copy, one.partitions, one.segments, one.next_offset) for one in whole.holdings] == [
        ("", 1, 1, 4),
        ("b + a", 2, 3, 7),
    ]
    assert (whole.problems, len(whole.notes)) == ([], 1)
    topic = summarize(bench.archive, T)
    assert [(one.partition, one.copy, one.segments) for one in topic.holdings] == [
        (0, "", 1),
        (0, "b/3 + a/1", 2),
        (1, "a/1", 1),
    ]
    assert len(list(topic.segments)) == 4
    of_a = summarize(bench.archive, T, choice=CopyChoice(instance="a"))
    assert [(one.partition, one.copy, one.segments) for one in of_a.holdings] == [(0, "", 1), (1, "a/1", 1)]
    history = summarize(bench.archive, T, choice=CopyChoice(is_history=True))
    assert [(one.partition, one.copy, one.segments) for one in history.holdings] == [(0, "", 1), (1, "", 0)]
