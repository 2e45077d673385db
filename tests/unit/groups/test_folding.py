"""A fold says what the log below its end says; what it cannot say is unknown, and never something else."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archiver.archive.format.layout import FOLDS
from archiver.codec.selection import LAST_LONG
from archiver.errors import NotWholeError
from archiver.groups.log import folding
from archiver.groups.log.archived_log import OffsetsLog
from archiver.groups.log.doubts import Doubt
from archiver.groups.log.fold_object import facts_of_fold, merge_doubts
from archiver.groups.log.folds import Folds
from archiver.groups.log.lives import Root
from archiver.groups.positions.archived_position import ArchivedPosition, Cause, PositionSource, State
from archiver.groups.positions.positions_as_of import positions_as_of
from archiver.process.running import failpoints
from tests.support.commit_frames import commit_value, position_key
from tests.support.offset_commits import GroupKey, decode_key
from tests.support.offsets_archive import OffsetsArchive, doubts_of
from tests.support.records import Rec
from tests.unit.groups.test_episodes import KEYS, VALUES, position_of

LIVED_ONCE = {name: [Root(0, "", None)] for name in "xy"}
ROOTS = {"x": [Root(0, "", None)], "y": [Root(0, "", None), Root(1, "", None)]}
FIRST_MS = 1_767_225_600_000  # when the store in memory puts its first object
AGES_MS = (0, 7_200_000, 172_800_000)  # at which nothing, a commit, or a removal, too, may have been compacted


class Log(NamedTuple):
    """Records, and where objects end. The records of each object begin at the end of the one before."""

    records: list[Rec]
    ends: list[int]
    first_ms: int = FIRST_MS

    def objects(self) -> list[tuple[int, int, list[Rec]]]:
        starts = [0, *self.ends[:-1]]
        return [
            (start, end, [one for one in self.records if start <= one.offset < end])
            for start, end in zip(starts, self.ends, strict=True)
        ]


@st.composite
def logs(draw: st.DrawFn) -> Log:
    count, offset, first_ms = draw(st.integers(1, 40)), 0, FIRST_MS - draw(st.sampled_from(AGES_MS))
    records, ends = [], set[int]()
    for _ in range(count):
        offset += draw(st.sampled_from([1, 1, 1, 3]))
        at_ms = first_ms + draw(st.integers(0, 30))
        records.append(Rec(offset - 1, at_ms, 0, draw(KEYS), draw(VALUES)))
        if draw(st.booleans()):
            ends.add(offset)
    return Log(records, sorted({*ends, offset}), first_ms)


def positions(
    log: OffsetsLog, roots: Mapping[str, Sequence[Root]] = ROOTS
) -> dict[tuple[str, str, int, int], ArchivedPosition]:
    found = [one._replace(source=PositionSource.LOG) for one in positions_as_of([log], roots)]
    told = {(one.group, one.topic, one.partition, one.life): one for one in found}
    assert len(told) == len(found)
    return told


def comparable(one: ArchivedPosition) -> ArchivedPosition:
    """Of several removals in a row, folds and logs may name another one: it says nothing of where a group stood."""
    return one._replace(removed_at=0, removed_ms=0, cause=Cause.NONE) if one.state is State.REMOVED else one


def is_other(record: Rec) -> bool:
    """Tell whether a record is of no position and of no group."""
    try:
        decoded = None if record.key is None else decode_key(record.key)
    except ValueError:
        return True
    return not isinstance(decoded, GroupKey) and position_of(record.key) is None


def is_known(one: ArchivedPosition) -> bool:
    return one.state not in {State.UNKNOWN, State.AMBIGUOUS}


def put_all(log: Log, folded: Sequence[int] = ()) -> OffsetsArchive:
    """Put objects one after the other, and fold after some of them."""
    archive = OffsetsArchive()
    for number, (start, end, records) in enumerate(log.objects()):
        archive.put(records, end, base=start)
        if number in folded:
            archive.fold()
    return archive


def still_said(records: Sequence[Rec]) -> list[tuple[int, bytes | None, bytes | None]]:
    """The oracle: by dictionaries and the other decoder, (offset, key, value) of what a fold must keep."""
    history: dict[Any, list[Rec]] = {}
    for one in records:
        decoded = position_of(one.key)
        if decoded is not None:
            history.setdefault(decoded, []).append(one)
    kept = []
    for of_key in history.values():
        for number, one in enumerate(of_key):
            following = of_key[number + 1] if number + 1 < len(of_key) else None
            before = of_key[number - 1] if number else None
            is_first = before is None or (before.value is None) != (one.value is None)
            is_last = following is None or (following.value is None) != (one.value is None)
            if is_first or (is_last and one.value is not None):
                kept.append(one)
    return sorted((one.offset, one.key, one.value) for one in kept)


def test_with_folds_the_log_says_the_same(pytestconfig: pytest.Config) -> None:
    @settings(max_examples=100 if pytestconfig.getoption("--long") else 20)
    @given(log=logs(), folded=st.sets(st.integers(0, 20)), until=st.integers(-1, 31))
    def holds(log: Log, folded: set[int], until: int) -> None:
        archive = put_all(log, sorted(folded))
        for until_ms in (log.first_ms + until, LAST_LONG):
            told, plain = archive.read(until_ms), archive.read(until_ms, with_folds=False)
            assert positions(told) == positions(plain)
            assert (told.cut, told.next, told.first_ms, told.last_ms) == (
                plain.cut,
                plain.next,
                plain.first_ms,
                plain.last_ms,
            )
            assert told.rows.others == plain.rows.others

    holds()


def test_a_fold_of_folds_keeps_what_an_oracle_keeps_and_any_reader_reads_it(pytestconfig: pytest.Config) -> None:
    @settings(max_examples=100 if pytestconfig.getoption("--long") else 20)
    @given(log=logs(), folded=st.sets(st.integers(0, 20)))
    def holds(log: Log, folded: set[int]) -> None:
        archive = put_all(log, sorted(folded - {len(log.ends) - 1}))
        made = archive.fold()
        content = archive.store.objects[made.key].body
        read = cast("list[dict[str, Any]]", list(fastavro.reader(io.BytesIO(content))))
        found = [(one["offset"], one["key"], one["value"]) for one in read if one["key"][1] in {0, 1}]
        assert found == still_said(log.records)
        assert all(one["topic"] == "__consumer_offsets" and one["partition"] == 0 for one in read)
        assert facts_of_fold(content, made.key) == made.facts
        assert made.facts.next == log.ends[-1]
        assert made.facts.others == sum(map(is_other, log.records))

    holds()


def test_where_objects_are_gone_a_fold_says_the_same_or_that_it_is_unknown(pytestconfig: pytest.Config) -> None:
    @settings(max_examples=100 if pytestconfig.getoption("--long") else 20)
    @given(
        log=logs(), folded=st.sets(st.integers(0, 39), min_size=1), lost=st.integers(1, 40), until=st.integers(-1, 31)
    )
    def holds(log: Log, folded: set[int], lost: int, until: int) -> None:
        objects = log.objects()
        folds = sorted({number % len(objects) for number in folded})
        archive = put_all(log, folds)
        times = log.first_ms + until, LAST_LONG
        whole = [archive.read(until_ms, with_folds=False) for until_ms in times]
        for start, *_ in objects[: min(lost, folds[-1] + 1, len(objects) - 1)]:  # of which a fold was made
            archive.store.delete([f"topics/__consumer_offsets/partition=0/__consumer_offsets+0-{start:020}.data"])
        for before, until_ms in zip(whole, times, strict=True):
            log_read = archive.read(until_ms)
            for roots in (ROOTS, LIVED_ONCE):
                true = positions(before, roots)
                for place, one in positions(log_read, roots).items():
                    if not is_known(one):
                        continue
                    assert place in true
                    if is_known(true[place]):
                        assert comparable(one) == comparable(true[place])
            told, true = positions(log_read, LIVED_ONCE), positions(before, LIVED_ONCE)
            assert told.keys() >= true.keys()

    holds()


ROWS = [
    Rec(0, FIRST_MS, 0, position_key("a", "x", 0), commit_value(1)),
    Rec(1, FIRST_MS + 1, 0, position_key("b", "x", 0), commit_value(2)),
    Rec(2, FIRST_MS + 2, 0, position_key("a", "x", 0), commit_value(3)),
    Rec(3, FIRST_MS + 3, 0, position_key("b", "x", 0), None),
    Rec(4, FIRST_MS + 4, 0, position_key("c", "x", 0), commit_value(4)),
]


def told(archive: OffsetsArchive, until_ms: int = LAST_LONG) -> dict[str, tuple[State, int, PositionSource]]:
    log = archive.read(until_ms)
    return {one.group: (one.state, one.offset, one.source) for one in positions_as_of([log], ROOTS)}


def test_as_of_a_time_within_a_fold_its_superseded_values_are_unknown_where_the_objects_are_gone() -> None:
    archive = put_all(Log(ROWS, [2, 4, 5]), [1])
    keys = sorted(key for key in archive.store.objects if key.startswith("topics/"))
    assert told(archive, FIRST_MS + 1) == {
        "a": (State.SET, 1, PositionSource.LOG),
        "b": (State.SET, 2, PositionSource.LOG),
    }
    archive.store.delete(keys[:2])
    assert told(archive)["a"] == (State.SET, 3, PositionSource.FOLD)
    assert told(archive, FIRST_MS + 1) == {
        "a": (State.UNKNOWN, 1, PositionSource.FOLD),
        "b": (State.UNKNOWN, 2, PositionSource.FOLD),
        "c": (State.UNKNOWN, -1, PositionSource.LOG),
    }
    assert archive.read(FIRST_MS + 1).doubts.doubts == [Doubt(0, 3, needs_later=True)]


def test_what_was_missing_when_a_fold_was_made_stays_in_doubt() -> None:
    archive = OffsetsArchive()
    archive.put([replace(ROWS[0], timestamp=FIRST_MS - AGES_MS[1]), ROWS[4]], 5)  # whatever lay between was not there
    before = archive.read(with_folds=False).doubts.doubts
    assert before
    made = archive.fold()
    assert doubts_of(made.facts) == before
    archive.put([Rec(5, FIRST_MS + 9, 0, position_key("d", "x", 0), commit_value(1))], 6, base=5)
    again = archive.fold()
    assert doubts_of(again.facts) == before == archive.read().doubts.doubts
    assert (again.facts.sources.earlier_next, again.facts.sources.objects) == (5, 1)


def test_nothing_is_folded_while_a_survivor_of_compaction_may_lie_behind_the_end() -> None:
    """The first backup died half way: what took the place of offset 5 is not archived yet."""
    archive = OffsetsArchive()
    old_ms = FIRST_MS - AGES_MS[1]
    archive.put([replace(one, timestamp=old_ms) for one in ROWS], 5, stable_end=9)
    archive.put([Rec(6, old_ms, 0, position_key("d", "x", 0), commit_value(1))], 7, base=5, stable_end=9)
    assert archive.read().doubts.doubts == [Doubt(5, 6, needs_later=False)]
    assert told(archive)["a"] == (State.UNKNOWN, 3, PositionSource.LOG)
    with pytest.raises(
        NotWholeError, match=r"of offsets 5-6 compaction took records.* behind offset 6, .*back up again"
    ):
        archive.fold()
    (plan,) = folding.plan_folds(archive.topic(), Folds.of(archive.archive, pytest.fail))
    assert not plan.is_due
    archive.put(
        [Rec(at, old_ms, 0, position_key("a", "x", 0), commit_value(9)) for at in (7, 8)], 9, base=7, stable_end=9
    )
    settled = [Doubt(5, 6, needs_later=True)]
    assert archive.read().doubts.doubts == settled
    assert doubts_of(archive.fold().facts) == settled
    assert archive.read().doubts.doubts == settled
    assert told(archive)["a"] == (State.SET, 9, PositionSource.FOLD)
    assert told(archive)["c"] == (State.SET, 4, PositionSource.FOLD)


def test_doubts_are_merged_to_no_more_than_there_is_room_for() -> None:
    many = [Doubt(first, first, needs_later=first % 20 == 0) for first in range(0, 1000, 10)]
    merged = merge_doubts([*many, Doubt(1, 4, needs_later=True)], 10)
    assert len(merged) <= 10
    for first in range(0, 1000, 10):
        assert any(one[0] <= first <= one[1] and (not one[2] or first % 20 == 0) for one in merged)
    assert merge_doubts([Doubt(5, 9, needs_later=True), Doubt(0, 4, needs_later=True)]) == ((0, 9, True),)
    assert merge_doubts([Doubt(5, 9, needs_later=True), Doubt(0, 4, needs_later=False)]) == (
        (0, 4, False),
        (5, 9, True),
    )


def test_nothing_is_folded_where_something_is_missing_or_damaged() -> None:
    archive = put_all(Log(ROWS, [2, 4, 5]))
    keys = sorted(key for key in archive.store.objects if key.startswith("topics/"))
    whole = dict(archive.store.objects)
    archive.store.delete(keys[1:2])
    with pytest.raises(NotWholeError, match="__consumer_offsets-0: offsets 2-3 are missing from the archive"):
        archive.fold()
    archive.store.objects = dict(whole)
    archive.store.delete(keys[:1])
    with pytest.raises(NotWholeError, match="offsets 0-1 are missing"):
        archive.fold()
    archive.store.objects = dict(whole)
    body = whole[keys[1]].body
    archive.store.objects[keys[1]] = type(whole[keys[1]])(
        body[:-20] + bytes(20), whole[keys[1]].metadata, whole[keys[1]].last_modified
    )
    with pytest.raises(NotWholeError, match="bytes are not those that were written"):
        archive.fold()
    assert not [key for key in archive.store.objects if FOLDS in key]


class _KilledError(Exception):
    pass


@pytest.mark.parametrize("place", ["fold.put", "fold.compared", "fold.noted"])
def test_killed_between_two_effects_nothing_is_wrong_and_the_same_command_goes_on(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = put_all(Log(ROWS, [2, 4, 5]), [0])
    before = told(archive, FIRST_MS + 1), {one: state[:2] for one, state in told(archive).items()}
    reached = []

    def reach(name: str) -> None:
        reached.append(name)
        if name == place:
            raise _KilledError

    monkeypatch.setattr(folding, "reach", reach)
    with pytest.raises(_KilledError):
        archive.fold()
    assert reached[-1] == place
    assert (told(archive, FIRST_MS + 1), {one: state[:2] for one, state in told(archive).items()}) == before
    monkeypatch.setattr(folding, "reach", failpoints.reach)
    folds = Folds.of(archive.archive, pytest.fail)
    (plan,) = folding.plan_folds(archive.topic(), folds)
    assert plan.is_due is (place != "fold.noted")
    if plan.is_due:
        archive.fold()
    assert archive.read().fold_next == 5
    assert {one: state[:2] for one, state in told(archive).items()} == before[1]
    named = sum(key.endswith(".json") for key in archive.store.objects if FOLDS in key)
    assert named == 2
