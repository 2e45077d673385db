"""Sweeps of `__consumer_offsets`: where groups stood stays known as of every time that is kept, whatever went, and wherever a sweep died."""

import copy
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import FOLDS, Layout
from archiver.archive.notes.applied_limits import LimitSource
from archiver.archive.notes.topics import TopicFact, read_newest_topic_facts
from archiver.codec.selection import LAST_LONG
from archiver.config.model import IndexUse, StorageConfig
from archiver.config.quantities import spell_time
from archiver.errors import NotWholeError
from archiver.groups.log.folding import plan_fold, run_fold
from archiver.groups.log.folds import Folds
from archiver.groups.positions.archived_position import ArchivedPosition
from archiver.groups.positions.fold_proof import check_folds
from archiver.groups.positions.shown import PositionFilter, show_groups
from archiver.upkeep.retention.planning.covering_folds import CoveringFolds
from archiver.upkeep.retention.planning.limits import FOR_EVER, Limits
from archiver.upkeep.retention.planning.partition_verdict import HeldTimes, PartitionTerms, Staying
from archiver.upkeep.retention.planning.survey import PartitionSweep, SurveyTask, survey
from archiver.upkeep.retention.planning.sweep_plan import TopicSweep
from archiver.upkeep.retention.planning.topic_terms import TopicTerms
from archiver.upkeep.retention.sweeping.sweep import TopicSweepResult
from archiver.upkeep.verify import check_listing
from tests.support.commit_frames import commit_value, position_key
from tests.support.offsets_archive import TOPIC, OffsetsArchive
from tests.support.records import Rec
from tests.support.sweeping import sweep_topic
from tests.unit.groups.test_folding import FIRST_MS, LIVED_ONCE, ROOTS, Log, logs, positions, put_all
from tests.unit.upkeep.retention.test_sweep import KilledError, MortalStore

DAY_MS = 24 * 3600 * 1000
NOW_MS = FIRST_MS + 1000 * DAY_MS  # by then all was put long ago


@dataclass
class Sweeper:
    """Sweeps one partition so that positions stay known from a time on."""

    archive: OffsetsArchive
    known_ms: int
    holds: Sequence[HeldTimes] = ()
    problems: list[str] = field(default_factory=list)

    def surveyed(self) -> PartitionSweep:
        fact = read_newest_topic_facts(self.archive.archive)[TOPIC]
        assert isinstance(fact, TopicFact)
        terms = PartitionTerms(
            limits=Limits(ms=NOW_MS - self.known_ms),
            now_ms=NOW_MS,
            store_now_ms=NOW_MS,
            min_age_ms=0,
            log_start=None,
            holds=self.holds,
            topic_id="A",
        )
        task = SurveyTask(
            storage=StorageConfig(url="s3://bucket"),
            topic=TOPIC,
            partition=0,
            root=0,
            lineage=tuple(fact.lineage(fact.life_of_partition("A", 0).life, 0)),
            terms=terms,
            swept_by=FOR_EVER,
        )
        return survey(self.archive.archive, task)

    @property
    def covering(self) -> CoveringFolds:
        return CoveringFolds(archive=self.archive.archive, topic=self.archive.topic(), known_ms=self.known_ms)

    def chosen(self) -> PartitionSweep:
        return self.covering.choose(self.surveyed(), Folds.of(self.archive.archive, self.problems.append))

    def run(self) -> TopicSweepResult:
        return self.carry_out(self.chosen())

    def carry_out(self, chosen: PartitionSweep) -> TopicSweepResult:
        terms = TopicTerms(
            topic=TOPIC, name=TOPIC, topic_id="A", root=0, newest=0, whose=LimitSource.TOPIC, limits=FOR_EVER
        )
        topic = TopicSweep(terms=terms, partitions=[chosen])
        return sweep_topic(self.archive.archive, topic, lambda _: "", self.covering.ensure)


def untouched(archive: OffsetsArchive) -> OffsetsArchive:
    found = OffsetsArchive.__new__(OffsetsArchive)
    found.store = copy.copy(archive.store)
    found.store.objects = dict(archive.store.objects)
    found.archive = Archive(found.store, Layout())
    return found


def told(archive: OffsetsArchive, until_ms: int, *, with_folds: bool = True) -> list[Mapping[Any, ArchivedPosition]]:
    log = archive.read(until_ms, with_folds=with_folds)
    assert log.kept_from_ms is None
    return [positions(log, roots) for roots in (ROOTS, LIVED_ONCE)]


def left(archive: OffsetsArchive) -> list[int]:
    keys = (archive.archive.layout.parse_segment(key) for key in sorted(archive.store.objects))
    return [key.base for key in keys if key is not None]


def folds_of(archive: OffsetsArchive) -> list[str]:
    return sorted(key for key in archive.store.objects if FOLDS in key)


def test_as_of_all_times_that_are_kept_positions_stay_what_they_were(pytestconfig: pytest.Config) -> None:
    @settings(max_examples=100 if pytestconfig.getoption("--long") else 20)
    @given(
        log=logs(),
        folded=st.sets(st.integers(0, 20), max_size=2),
        sweeps=st.lists(st.integers(-1, 32), min_size=1, max_size=3),
        until=st.integers(0, 33),
        held=st.none() | st.integers(0, 30),
    )
    def holds(log: Log, folded: set[int], sweeps: list[int], until: int, held: int | None) -> None:
        archive = put_all(log, sorted(folded))
        before = untouched(archive)
        holds = () if held is None else (HeldTimes(log.first_ms + held, log.first_ms + held),)
        for known in sorted(sweeps):
            sweeper = Sweeper(archive, log.first_ms + known, holds)
            chosen = sweeper.chosen()
            assert sweeper.carry_out(chosen).refused == []
            assert all(one.told.next <= chosen.fold_next for one in chosen.going)
        known_ms = log.first_ms + max(sweeps)
        for until_ms in (known_ms, max(known_ms, log.first_ms + until), LAST_LONG):
            assert told(archive, until_ms) == told(before, until_ms, with_folds=False)
        assert archive.topic().partitions[0].gaps == ()
        assert check_folds(archive.archive) == []

    holds()


def ten(store: MortalStore | None = None, lost: int = -1) -> OffsetsArchive:
    """Ten objects of two commits each, a day apart; groups come, are superseded, and go. `lost`: the group of one object has another name."""
    archive = OffsetsArchive(MortalStore() if store is None else store)
    for number in range(10):
        at_ms, at = FIRST_MS - (20 - number) * DAY_MS, 2 * number
        first = Rec(at, at_ms, 0, position_key(f"g{number % 4}", "x", 0), commit_value(at))
        other = "lost" if number == lost else f"h{number % 3}"
        second = Rec(at + 1, at_ms + 1, 0, position_key(other, "x", 0), None if number == 2 else commit_value(1))
        archive.put([first, second], at + 2, base=at)
    return archive


KNOWN_MS = FIRST_MS - 14 * DAY_MS  # the first six objects are older, of the days 20 to 15 before
TIMES = [KNOWN_MS, *(FIRST_MS - days * DAY_MS for days in range(13, 9, -1)), LAST_LONG]


def all_told(archive: OffsetsArchive, *, with_folds: bool = True) -> list[list[Mapping[Any, ArchivedPosition]]]:
    return [told(archive, until_ms, with_folds=with_folds) for until_ms in TIMES]


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("archiver.upkeep.retention.sweeping.sweep._BATCH", 3)


def test_a_sweep_makes_one_fold_at_its_own_boundary() -> None:
    archive = ten()
    before = all_told(archive, with_folds=False)
    done = Sweeper(archive, KNOWN_MS).run()
    assert (len(done.deleted), done.refused, done.stopped) == (6, [], "")
    assert left(archive) == [12, 14, 16, 18]
    assert [key.rpartition("/")[2][:20] for key in folds_of(archive) if key.endswith(".avro")] == [f"{12:020}"]
    assert all_told(archive) == before
    later = Sweeper(archive, KNOWN_MS + 2 * DAY_MS)
    assert len(later.run().deleted) == 2
    assert left(archive) == [16, 18]
    assert [told(archive, until_ms) for until_ms in TIMES[2:]] == before[2:]
    assert archive.read(TIMES[1]).kept_from_ms == FIRST_MS - 13 * DAY_MS + 1  # of the newest record that went
    assert len([key for key in folds_of(archive) if key.endswith(".avro")]) == 2


@pytest.mark.parametrize(("lost", "until"), [(4, 12), (0, 6), (5, 16)])
def test_a_forged_fold_stands_for_nothing(lost: int, until: int) -> None:
    """It is whole in itself, and lacks a record of an object below its end, at the sweep's boundary, below it or above."""
    archive, forged = ten(), ten(lost=lost)
    folds = Folds.of(forged.archive, pytest.fail)
    run_fold(folds, plan_fold(forged.topic(), folds, 0, until))
    archive.store.objects |= {key: forged.store.objects[key] for key in folds_of(forged)}
    done = Sweeper(archive, KNOWN_MS if until <= 12 else KNOWN_MS + 2 * DAY_MS).run()
    assert not done.deleted
    assert re.search(
        r"\.avro: does not hold what the objects below offset \d+ hold", "\n".join([*done.refused, done.stopped])
    )
    assert left(archive) == list(range(0, 20, 2))
    problems = check_folds(archive.archive)  # the sweep may have made one that goes on from the forged one
    assert re.search(rf"\.avro: does not hold what the objects below offset {until} hold", problems[0])


def test_verify_compares_each_fold_with_the_objects_that_stand() -> None:
    """Also where a sweep took some of them, and where a forged fold lies behind true ones, or before."""
    archive = ten()
    assert check_folds(archive.archive) == []
    Sweeper(archive, KNOWN_MS).run()
    archive.fold()
    assert len([key for key in folds_of(archive) if key.endswith(".avro")]) == 2
    assert check_folds(archive.archive) == []
    forged = ten(lost=6)
    folds = Folds.of(forged.archive, pytest.fail)
    for until in (12, 14):  # the second one lacks a record of an object that still stands
        run_fold(folds, plan_fold(forged.topic(), folds, 0, until))
        folds = Folds.of(forged.archive, pytest.fail)
    fact = archive.archive.layout.fact_key("group-folds/0/0", 1)
    archive.store.objects |= {key: forged.store.objects[key] for key in folds_of(forged) if key.endswith(".avro")}
    archive.store.objects[archive.archive.layout.fact_key("group-folds/0/0", 2)] = archive.store.objects[fact]
    archive.store.objects[fact] = forged.store.objects[fact]
    (problem,) = check_folds(archive.archive)
    assert re.search(r"\.avro: does not hold what the objects below offset 14 hold", problem)


@pytest.mark.parametrize("dies_at", [(effect, is_done) for effect in range(6) for is_done in (False, True)])
def test_wherever_a_sweep_dies_positions_stay_what_they_were(dies_at: tuple[int, bool]) -> None:
    archive = ten()
    before = all_told(archive, with_folds=False)
    assert isinstance(archive.store, MortalStore)
    archive.store.effects = 0
    archive.store.dies_at = dies_at
    with pytest.raises(KilledError):
        Sweeper(archive, KNOWN_MS).run()
    assert all_told(archive) == before
    archive.store.dies_at = None
    assert Sweeper(archive, KNOWN_MS).run().refused == []
    assert left(archive) == [12, 14, 16, 18]
    assert all_told(archive) == before


def shown(archive: OffsetsArchive, as_of_ms: int) -> tuple[dict[str, tuple[str, int]], list[str]]:
    problems: list[str] = []
    wanted = PositionFilter(as_of_ms=as_of_ms, groups=re.compile(".*"), topics=re.compile(".*"))
    found = show_groups(archive.archive, wanted, IndexUse.CHECK, problems.append)
    return {one.position.group: (str(one.position.state), one.position.offset) for one in found.positions}, problems


def lost(archive: OffsetsArchive) -> list[str]:
    return [one for one in check_listing(archive.archive).problems if "retention sweep" in one]


def test_a_time_before_what_is_kept_is_named_and_nothing_false_is_told_of_it() -> None:
    archive = ten()
    early_ms = FIRST_MS - 17 * DAY_MS + 1
    true, problems = shown(archive, early_ms)
    assert problems == []
    Sweeper(archive, KNOWN_MS).run()
    assert shown(archive, KNOWN_MS)[1] == []
    found, problems = shown(archive, early_ms)
    kept_from = spell_time(FIRST_MS - 15 * DAY_MS + 1)
    (problem,) = problems
    assert problem == (
        f"where groups stood as of {spell_time(early_ms)} is known only in part: retention sweeps took records of 1 partition of"
        f" __consumer_offsets (0); the earliest time as of which all is known is {kept_from}"
    )
    assert found.keys() >= true.keys()
    assert all(one in {true.get(group), ("unknown", one[1])} for group, one in found.items())
    assert ("unknown", 0) in found.values()


def test_a_sweep_whose_fold_is_lost_is_told_and_stops_later_sweeps_and_folds() -> None:
    archive = ten()
    Sweeper(archive, KNOWN_MS).run()
    archive.store.delete(folds_of(archive))
    (problem,) = lost(archive)
    assert problem == (
        "__consumer_offsets-0: a retention sweep took offsets up to 11, and the fold that stands for them is gone; bring"
        " control/group-folds/0/0/ back from the bucket's versions"
    )
    _, problems = shown(archive, LAST_LONG)
    assert problems[-1].startswith(
        "where groups stood now is known only in part: retention sweeps took records of 1 part"
    )
    assert "no fold that can be read stands for some of them" in problems[-1]
    with pytest.raises(NotWholeError, match="offsets 0-11 are in no object and in no fold"):
        archive.fold()
    chosen = Sweeper(archive, KNOWN_MS + 2 * DAY_MS).chosen()
    assert (chosen.going, chosen.fold_next) == ((), 0)
    assert chosen.staying[Staying.UNFOLDED] == 2
    assert "offsets 0-11 are in no object and in no fold" in chosen.notes[0]


def vanish(archive: OffsetsArchive) -> None:
    archive.store.delete(folds_of(archive))


def damage(archive: OffsetsArchive) -> None:
    (key,) = (key for key in folds_of(archive) if key.endswith(".avro"))
    stored = archive.store.objects[key]
    archive.store.objects[key] = replace(stored, body=stored.body[:-1] + b"?")


def forget(archive: OffsetsArchive) -> None:
    archive.store.delete([key for key in folds_of(archive) if key.endswith(".json")])


@pytest.mark.parametrize("harm", [vanish, damage, forget])
def test_a_fold_that_is_harmed_between_two_batches_stops_the_second(
    harm: Callable[[OffsetsArchive], None],
) -> None:
    archive = ten()
    assert isinstance(archive.store, MortalStore)
    archive.store.effects = 0
    put_and_noted = [lambda: None] * 3  # the fold, its fact, what goes by the first batch
    archive.store.meanwhile = [*put_and_noted, lambda: harm(archive)]
    done = Sweeper(archive, KNOWN_MS).run()
    assert [one.item.base for one in done.deleted] == [0, 2, 4]
    assert left(archive) == [6, 8, 10, 12, 14, 16, 18]
    assert len(done.refused) == 1


def test_where_the_state_cannot_be_folded_the_boundary_is_lower() -> None:
    archive = ten()
    keys = sorted(key for key in archive.store.objects if key.startswith("topics/"))
    archive.store.delete([keys[4]])  # a loss, of offsets 8 and 9
    chosen = Sweeper(archive, KNOWN_MS).chosen()
    assert ([one.item.base for one in chosen.going], chosen.fold_next) == ([0, 2, 4, 6], 8)
    assert chosen.staying[Staying.UNFOLDED] == 1
    assert chosen.notes[1].startswith(
        "1 object stays that may go by age, for no fold can stand for what they have: __consumer_offsets-0: offsets 8-9 are missing"
    )


def test_records_of_the_future_keep_what_lies_behind_them_and_are_told() -> None:
    archive = ten()
    archive.put([Rec(20, 2 * NOW_MS, 0, position_key("g", "x", 0), commit_value(1))], 21, base=20)
    archive.put([Rec(21, FIRST_MS, 0, position_key("g", "x", 0), commit_value(2))], 22, base=21)
    archive.put([Rec(22, FIRST_MS, 0, position_key("g", "x", 0), commit_value(3))], 23, base=22)
    sweeper = Sweeper(archive, FIRST_MS + 10 * DAY_MS)
    chosen = sweeper.chosen()
    assert (len(chosen.going), chosen.fold_next) == (10, 20)
    assert chosen.staying[Staying.UNFOLDED] == 2
    assert (
        "offset 20 and those behind it have records that are younger than they may be, or of the future"
        in chosen.notes[1]
    )
    before = told(archive, LAST_LONG, with_folds=False)
    sweeper.carry_out(chosen)
    assert left(archive) == [20, 21, 22]
    assert told(archive, LAST_LONG) == before


def test_what_the_log_lost_when_it_was_cut_back_stays() -> None:
    archive = ten()
    life = archive.cut_back(0, 10)
    for at in (10, 11, 12):
        record = Rec(at, FIRST_MS - 13 * DAY_MS + at, 0, position_key("g1", "x", 0), commit_value(100 + at))
        archive.put([record], at + 1, base=at, life=life)
    before = [told(archive, until_ms, with_folds=False) for until_ms in (FIRST_MS - 9 * DAY_MS, LAST_LONG)]
    sweeper = Sweeper(archive, FIRST_MS - 9 * DAY_MS)
    chosen = sweeper.chosen()
    assert [(one.item.life, one.item.base) for one in chosen.going] == [
        *((0, base) for base in range(0, 10, 2)),
        (1, 10),
        (1, 11),
    ]
    assert chosen.staying[Staying.UNFOLDED] == 4  # of another history: the newest stays in any case
    assert sweeper.carry_out(chosen).refused == []
    assert [told(archive, until_ms) for until_ms in (FIRST_MS - 9 * DAY_MS, LAST_LONG)] == before
