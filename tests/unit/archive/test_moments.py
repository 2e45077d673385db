"""docs/format.md §8: what processes of an instance tell of what they have read, and what is made of it."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from archiver.archive.copies.moments import (
    MOST_MOMENTS,
    HeardMoment,
    LeftNote,
    Moment,
    MomentNote,
    NoteName,
    clear_old_moments,
    first_note,
    put_moments,
    read_notes,
)
from archiver.archive.copies.roles import RolePlace
from archiver.archive.format.control import encode_fact, most_fact_bytes
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import LAST_FACT_NUMBER, Layout
from archiver.archive.format.store_clock import epoch_ms
from archiver.archive.reading.lost_control import lost_control_objects
from archiver.errors import ArchiverError
from archiver.store.port import MOST_PUT_BYTES, ObjectKind
from tests.support.memory_store import MemoryStore, StoredObject

P1, P2, P3 = "0" * 16, "1" * 16, "abcdef0123456789"
PLACE = RolePlace(topic="t", life=0, partition=3)
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)  # of the store in memory: each put is a second later
BEGIN_MS = epoch_ms(BEGIN)


@pytest.fixture
def archive() -> Archive:
    return Archive(MemoryStore(), Layout("p"))


def note(at_ms: int | None, last_stable: int = 50, generation: int = 4) -> MomentNote:
    return MomentNote(
        topic="t",
        life=0,
        partition=3,
        generation=generation,
        at_ms=at_ms,
        last_stable=0 if at_ms is None else last_stable,
    )


def set_time(archive: Archive, process: str, number: int, at_s: float) -> None:
    assert isinstance(archive.store, MemoryStore)
    key = f"p/control/moments/a/{process}/{number:06}.json"
    found = archive.store.objects[key]
    archive.store.objects[key] = StoredObject(found.body, found.metadata, BEGIN + timedelta(seconds=at_s))


def tell(archive: Archive, process: str, number: int, at_s: float, *notes: MomentNote) -> None:
    assert put_moments(archive, "a", process, number, notes)
    set_time(archive, process, number, at_s)


def heard(archive: Archive) -> Mapping[int, HeardMoment]:
    found = read_notes(archive, "a", pytest.fail).heard
    assert {place for place, _ in found} <= {PLACE}
    return {generation: one for (_, generation), one in found.items()}


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def ms(seconds: float) -> int:
    return BEGIN_MS + round(seconds * 1000)


def test_the_newest_of_a_process_counts(archive: Archive) -> None:
    assert heard(archive) == {}
    tell(archive, P1, 0, 10, note(ms(5)), note(ms(5), 7, generation=9))
    tell(archive, P1, 1, 20, note(ms(15), 60))
    assert heard(archive) == {4: HeardMoment(Moment(ms(15), 60), at(20))}
    assert read_notes(archive, "b").heard == {}


def test_two_processes_tell_of_one_generation(archive: Archive) -> None:
    """After a rebalance. What the one tells that slept is older, though its object is newer."""
    tell(archive, P2, 0, 30, note(ms(25), 70))
    tell(archive, P1, 0, 40, note(ms(5), 50))
    assert heard(archive) == {4: HeardMoment(Moment(ms(25), 70), at(40))}


@pytest.mark.parametrize(
    ("none_at_s", "moment_s", "told_at_s", "counts"),
    [
        (10, 25, 30, True),  # the one before had not reached a moment; the one that went on has
        (30, 5, 20, False),  # too slow since: what was told before counts no more
        (30, 5, 40, False),  # also if it was told by a process that slept meanwhile
        (30, 30.5, 40, False),  # within the same second: nobody knows which was first
        (30, 31, 40, True),
    ],
)
def test_a_moment_before_somebody_had_none_counts_no_more(
    archive: Archive, none_at_s: int, moment_s: float, told_at_s: int, *, counts: bool
) -> None:
    tell(archive, P1, 0, none_at_s, note(None))
    tell(archive, P2, 0, told_at_s, note(ms(moment_s)))
    wanted = HeardMoment(Moment(ms(moment_s), 50) if counts else None, at(max(none_at_s, told_at_s)))
    assert heard(archive) == {4: wanted}


def test_a_generation_without_a_moment_is_heard_of(archive: Archive) -> None:
    tell(archive, P1, 0, 10, note(None))
    assert heard(archive) == {4: HeardMoment(None, at(10))}


def test_the_same_fact_may_be_put_again(archive: Archive) -> None:
    assert put_moments(archive, "a", P1, 0, [note(5)])
    assert put_moments(archive, "a", P1, 0, [note(5)])
    assert not put_moments(archive, "a", P1, 0, [note(6)])


def test_a_number_that_others_took_tells_nothing(archive: Archive) -> None:
    key = f"p/control/moments/a/{P1}/000000.json"
    archive.store.put_if_absent(key, b"x" * (most_fact_bytes("moments") + 1), {}, kind=ObjectKind.FACT)
    assert not put_moments(archive, "a", P1, 0, [note(5)])


def test_a_note_that_is_put_again_lets_no_dead_process_look_alive(archive: Archive) -> None:
    """Of a process the highest number counts; and a note counts until five minutes after its own time, whenever it was put."""
    assert put_moments(archive, "a", P1, 7, [note(ms(5))], noted_ms=ms(9))
    set_time(archive, P1, 7, 10)
    assert put_moments(archive, "a", P1, 6, [note(ms(1))], noted_ms=ms(2))
    for at_s, heard_s in ((10, 10), (309, 309), (310, 9), (90_000, 9)):
        set_time(archive, P1, 7, at_s)
        set_time(archive, P1, 6, at_s + 1)
        assert heard(archive) == {4: HeardMoment(Moment(ms(5), 50), at(heard_s))}
        assert read_notes(archive, "a").heard_at == at(heard_s)


def test_a_high_number_of_somebody_else_silences_a_process_until_its_next_note(archive: Archive) -> None:
    archive.store.put_if_absent(f"p/control/moments/a/{P1}/999999.json", b"{}", {}, kind=ObjectKind.FACT)
    set_time(archive, P1, 999_999, 10)
    tell(archive, P1, 0, 11, note(ms(5)))
    assert read_notes(archive, "a").heard == {}
    clear_old_moments(archive, "a", P1, 0, ms(11))
    assert heard(archive) == {4: HeardMoment(Moment(ms(5), 50), at(11))}


def test_a_process_notes_moments_for_ever(archive: Archive) -> None:
    """A note every 30 s, and the numbers of one name last for 347 days."""
    where = NoteName(P1, LAST_FACT_NUMBER - 2)
    names = set[str]()
    for second in range(10, 16):
        tell(archive, *where, second, note(ms(second)))
        clear_old_moments(archive, "a", *where, ms(second))
        names.add(where.process)
        where = where.following
        assert heard(archive) == {4: HeardMoment(Moment(ms(second), 50), at(second))}
    assert len(names) == 2
    week_s = 7 * 86_400
    tell(archive, *where, week_s + 20, note(ms(week_s + 20)))
    clear_old_moments(archive, "a", *where, ms(week_s + 20))
    assert not any(P1 in item.key for item in archive.store.list("p/"))
    assert first_note() != first_note()


def test_a_note_above_the_readers_limit_is_not_put(archive: Archive) -> None:
    many = [
        MomentNote(topic="t", life=0, partition=at, generation=0, at_ms=None, last_stable=0)
        for at in range(MOST_MOMENTS + 1)
    ]
    with pytest.raises(ArchiverError, match=r"would have 100,001 partitions, .* run more processes of instance a"):
        put_moments(archive, "a", P1, 0, many)
    longest = [MomentNote(topic="t" * 249, life=2**31 - 1, partition=one.partition, generation=2**63 - 1, at_ms=2**63 - 1, last_stable=2**63 - 1) for one in many[1:]]  # fmt: skip
    assert put_moments(archive, "a", P1, 0, longest)
    assert next(iter(archive.store.list(""))).size < most_fact_bytes("moments")


FACT: Mapping[str, Any] = {
    "format": 1,
    "instance": "a",
    "process": P1,
    "moments": [{"topic": "t", "life": 0, "partition": 3, "generation": 4, "at_ms": BEGIN_MS, "last_stable": 50}],
}


def forged(**members: object) -> bytes:
    return encode_fact({**FACT, **members})


def moment(**members: object) -> bytes:
    return forged(moments=[{**FACT["moments"][0], **members}])


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"{", "not JSON"),
        (b"x" * ((64 << 20) + 1), "never has more than 67,108,864"),
        (forged(instance="b"), "it speaks of another process than its key"),
        (forged(process=P2), "it speaks of another process than its key"),
        (forged(moments={}), "where a list was to come"),
        (forged(moments=[FACT["moments"][0]] * 2), "it tells of one generation twice"),
        (moment(topic="../t"), "not a partition"),
        (moment(partition=2**31), "a number of at most"),
        (moment(at_ms=1.5), "where a number was to come"),
        (moment(at_ms=BEGIN_MS + 999_999), "it tells of a moment after it was put"),
        (forged(noted_ms=BEGIN_MS + 999_999), "it was made after it was put"),
        (forged(limits={"length_ms": 1}), "takeover_ms is missing"),
        (encode_fact({name: value for name, value in FACT.items() if name != "moments"}), "moments is missing"),
        (forged(format=2), "is newer than this program reads"),
    ],
)
def test_what_cannot_be_is_reported_and_counts_as_not_told(archive: Archive, content: bytes, why: str) -> None:
    archive.store.put_if_absent(f"p/control/moments/a/{P1}/000000.json", content, {}, kind=ObjectKind.FACT)
    tell(archive, P2, 0, 10, note(ms(5)))
    problems: list[str] = []
    assert read_notes(archive, "a", problems.append).heard == {(PLACE, 4): HeardMoment(Moment(ms(5), 50), at(10))}
    (problem,) = problems
    assert why in problem
    assert problem.startswith(f"p/control/moments/a/{P1}/000000.json: ")


def test_strange_keys_are_no_facts(archive: Archive) -> None:
    for key in (
        "a/x/000000.json",
        f"a/{P1.upper()}F/000000.json",
        f"a/{P1}/1.json",
        f"a/{P1}/x/000000.json",
        "a/000000.json",
    ):
        archive.store.put_if_absent(f"p/control/moments/{key}", b"{", {}, kind=ObjectKind.FACT)
    assert heard(archive) == {}


def test_of_very_many_processes_the_last_are_read(archive: Archive) -> None:
    for number in range(300):
        tell(archive, f"{number:016x}", 0, 1000 - number, note(ms(5), generation=number))
    problems: list[str] = []
    found = read_notes(archive, "a", problems.append).heard
    assert {generation for _, generation in found} == set(range(256))
    assert [problem.partition(":")[2].strip() for problem in problems] == [
        "has notes of 300 processes; only the 256 that told last are read. Find out who puts them"
    ]


class _Vanishing(MemoryStore):
    """Meanwhile the process goes on: what was listed is replaced by what is newer as soon as it is asked for."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.left = times

    def get(self, key: str, most_bytes: int = MOST_PUT_BYTES) -> tuple[bytes, Mapping[str, str]] | None:
        number = int(key[-11:-5])
        if self.left and key in self.objects:
            self.left -= 1
            found = self.objects.pop(key)
            newer = StoredObject(found.body, {}, found.last_modified + timedelta(seconds=1))
            self.objects[f"{key[:-11]}{number + 1:06}.json"] = newer
        return super().get(key, most_bytes)


@pytest.mark.parametrize("times", [1, 2, 50])
def test_a_note_that_is_replaced_while_listing_is_read(times: int) -> None:
    archive = Archive(_Vanishing(times), Layout("p"))
    tell(archive, P1, 0, 10, note(ms(5)))
    problems: list[str] = []
    found = read_notes(archive, "a", problems.append).heard
    if times < 3:
        assert (found, problems) == ({(PLACE, 4): HeardMoment(Moment(ms(5), 50), at(10 + times))}, [])
    else:
        assert (found, problems) == ({}, [f"p/control/moments/a/{P1}/: its facts are gone as soon as they are listed"])


def test_old_facts_are_cleared(archive: Archive) -> None:
    week_s = 7 * 86_400
    for number in range(4):
        tell(archive, P1, number, number, note(None))
    tell(archive, P2, 0, 5, note(None))
    tell(archive, P2, 1, 10, note(None))
    tell(archive, P3, 5, 10.5, note(None))
    assert put_moments(archive, "b", P2, 0, [note(None)])
    clear_old_moments(archive, "a", P1, 3, ms(week_s + 10.2))
    keys = [item.key.removeprefix("p/control/moments/") for item in archive.store.list("p/")]
    assert keys == [f"a/{P1}/000002.json", f"a/{P1}/000003.json", f"a/{P3}/000005.json", f"b/{P2}/000000.json"]


def test_what_was_cleared_is_not_missed(archive: Archive) -> None:
    tell(archive, P1, 5, 10, note(None))
    assert lost_control_objects(archive, {}) == []


def left_note(left_ms: int, at_ms: int | None, generation: int) -> LeftNote:
    return LeftNote(topic="t", life=0, partition=3, generation=generation, at_ms=at_ms, last_stable=50, left_ms=left_ms)


def test_what_a_process_has_left_tells_how_far_it_was_read_and_until_when(archive: Archive) -> None:
    left = [left_note(BEGIN_MS - 3_000, BEGIN_MS - 9_000, 5), left_note(BEGIN_MS - 2_000, BEGIN_MS - 7_000, 6)]
    put_moments(archive, "a", P1, 0, [note(BEGIN_MS - 5_000)], left)
    put_moments(archive, "a", P2, 0, [note(BEGIN_MS - 8_000, generation=5)], [left_note(BEGIN_MS, None, 7)])
    heard = read_notes(archive, "a", pytest.fail).heard
    put_at = BEGIN + timedelta(seconds=1)
    assert heard[PLACE, 4] == HeardMoment(Moment(BEGIN_MS - 5_000, 50), put_at)
    assert heard[PLACE, 5] == HeardMoment(Moment(BEGIN_MS - 8_000, 50), put_at + timedelta(seconds=1))
    assert heard[PLACE, 6] == HeardMoment(Moment(BEGIN_MS - 7_000, 50), BEGIN - timedelta(seconds=2))
    assert heard[PLACE, 7] == HeardMoment(None, BEGIN)


def test_what_is_left_never_keeps_a_process_from_telling_what_it_works_on(archive: Archive) -> None:
    left = [left_note(BEGIN_MS, None, generation=one) for one in range(5, 5 + MOST_MOMENTS)]
    assert put_moments(archive, "a", P1, 0, [note(BEGIN_MS)], left)
    assert len(read_notes(archive, "a", pytest.fail).heard) == MOST_MOMENTS


def test_a_fact_that_has_left_something_after_it_was_put_is_refused(archive: Archive) -> None:
    put_moments(archive, "a", P1, 0, [], [left_note(2**63 - 1, BEGIN_MS, 5)])
    problems: list[str] = []
    assert (read_notes(archive, "a", problems.append).heard, len(problems)) == ({}, 1)
