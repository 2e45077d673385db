"""Carrying out a sweep: killed after any effect, a rerun ends in the same state, and no reader ever takes it for a loss."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from threading import Barrier
from unittest.mock import patch

import pytest

from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout, SegmentKey
from archiver.archive.format.store_clock import epoch_ms
from archiver.archive.index.inventory import PartitionInventory, read_inventory
from archiver.archive.notes.applied_limits import LimitSource
from archiver.archive.notes.holds import LOOK_S
from archiver.archive.notes.swept import Noting, OffsetRanges, SweptPlace, add_swept, note_going, read_swept
from archiver.archive.notes.topic_changes import record_topic
from archiver.archive.notes.topics import LifeRange
from archiver.config.model import StorageConfig
from archiver.errors import ArchiverError, StoreError, StoreTemporaryError, TemporaryError
from archiver.store.port import Body, ListedObject, ObjectKind
from archiver.upkeep.retention.planning.limits import FOR_EVER, Limits
from archiver.upkeep.retention.planning.partition_verdict import PartitionTerms
from archiver.upkeep.retention.planning.survey import PartitionSweep, SurveyTask, list_items, survey
from archiver.upkeep.retention.planning.sweep_plan import TopicSweep
from archiver.upkeep.retention.planning.topic_terms import TopicTerms
from archiver.upkeep.retention.sweeping.sweep import TopicSweepResult, TopicWork, sweep_topics
from archiver.upkeep.retention.sweeping.swept_corrections import LEFT_ALONE_MS, take_back_lying
from tests.support.memory_store import MemoryStore
from tests.support.segments import facts_of
from tests.support.sweeping import sweep_topic

LAYOUT = Layout()
PLACE = SweptPlace("t", 0, 0)
TERMS = TopicTerms(
    topic="t",
    name="t",
    topic_id="t",
    root=0,
    newest=0,
    whose=LimitSource.TOPIC,
    limits=Limits(ms=1000),
    log_starts={0: 60},
)
EFFECTS = 4  # of a sweep of two batches: each is written down, and deleted


class KilledError(Exception):
    """The process died here."""


class MortalStore(MemoryStore):
    """Dies right before or right after one of its effects, and denies to delete some keys."""

    def __init__(self) -> None:
        super().__init__()
        self.effects = 0
        self.dies_at: tuple[int, bool] | None = None  # which effect, and whether it is done
        self.denied: frozenset[str] = frozenset()
        self.meanwhile: list[Callable[[], object]] = []  # what others do before the next effects

    def _effect(self, *, is_done: bool) -> None:
        if self.dies_at == (self.effects, is_done):
            raise KilledError
        if not is_done and self.meanwhile:
            self.meanwhile.pop(0)()
        if is_done:
            self.effects += 1

    def put_if_absent(self, key: str, body: Body, metadata: Mapping[str, str], *, kind: ObjectKind) -> str | None:
        self._effect(is_done=False)
        put = super().put_if_absent(key, body, metadata, kind=kind)
        self._effect(is_done=True)
        return put

    def delete_each(self, keys: Iterable[str], *, send_by_s: float = math.inf) -> Mapping[str, ArchiverError]:
        asked = list(keys)
        self._effect(is_done=False)
        super().delete_each((key for key in asked if key not in self.denied), send_by_s=send_by_s)
        self._effect(is_done=True)
        return {key: StoreError(f"{key}: denied") for key in asked if key in self.denied}


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("archiver.upkeep.retention.sweeping.sweep._BATCH", 3)


def key_of(base: int) -> str:
    return LAYOUT.segment_key(SegmentKey(topic="t", life=0, partition=0, base=base))


def put_object(store: MemoryStore, base: int) -> None:
    facts = replace(facts_of(base, base + 10), max_timestamp=0)
    store.put_if_absent(key_of(base), b"x", facts.to_metadata(), kind=ObjectKind.SEGMENT)


def ten_objects() -> tuple[Archive, MortalStore]:
    store = MortalStore()
    return archive_in(store), store


def archive_in(store: MortalStore) -> Archive:
    """Ten objects of one partition."""
    archive = Archive(store, LAYOUT)
    record_topic(archive, topic="t", topic_id="t", cluster_id="c", partitions=1, configs={})
    for base in range(0, 100, 10):
        put_object(store, base)
    store.effects = 0
    return archive


def planned(archive: Archive, *, min_age_ms: int = 0) -> TopicSweep:
    now_ms = epoch_ms(archive.store.now()) + 10_000
    terms = PartitionTerms(
        limits=TERMS.limits,
        now_ms=now_ms,
        store_now_ms=now_ms,
        min_age_ms=min_age_ms,
        log_start=TERMS.log_starts[0],
        topic_id=TERMS.topic_id,
    )
    task = SurveyTask(
        storage=StorageConfig(url="s3://bucket"),
        topic="t",
        partition=0,
        root=0,
        lineage=(LifeRange(0, 0, None),),
        terms=terms,
        swept_by=FOR_EVER,
    )
    return TopicSweep(terms=TERMS, partitions=[survey(archive, task)])


def sweep(archive: Archive, *, min_age_ms: int = 0) -> TopicSweepResult:
    return sweep_topic(archive, planned(archive, min_age_ms=min_age_ms), lambda _: "")


def read(archive: Archive) -> PartitionInventory:
    return read_inventory(archive).partitions["t", 0][0]


def bases(archive: Archive) -> list[int]:
    return [one.key.base for one in read(archive).segments]


def swept_of(archive: Archive) -> OffsetRanges:
    return read_swept(archive, "t").get(PLACE, OffsetRanges())


def test_what_goes_is_written_down() -> None:
    archive, store = ten_objects()
    done = sweep(archive)
    assert [one.item.base for one in done.deleted] == [0, 10, 20, 30, 40, 50]
    assert bases(archive) == [60, 70, 80, 90]
    assert swept_of(archive).ranges == ((0, 60),)
    assert read(archive).gaps == ()
    assert store.effects == EFFECTS
    store.delete([key_of(70)])  # a real loss beside it still shows
    assert [str(gap) for gap in read(archive).gaps] == ["70-79"]


KILLS = [(effect, is_done) for effect in range(EFFECTS) for is_done in (False, True)]


@pytest.mark.parametrize("dies_at", KILLS)
def test_a_rerun_after_a_kill_ends_in_the_same_state(dies_at: tuple[int, bool]) -> None:
    archive, store = ten_objects()
    store.dies_at = dies_at
    with pytest.raises(KilledError):
        sweep(archive)
    store.dies_at = None
    found = read(archive)
    assert found.gaps == ()
    assert set(range(0, 100, 10)) == {one.key.base for one in found.segments} | {
        base for base in range(0, 100, 10) if any(swept_of(archive).within(base, base + 1))
    }
    sweep(archive)
    assert bases(archive) == [60, 70, 80, 90]
    assert swept_of(archive).ranges == ((0, 60),)


@pytest.mark.parametrize("dies_at", KILLS)
def test_a_plan_that_was_not_carried_out_hides_no_later_loss(dies_at: tuple[int, bool]) -> None:
    """Killed, and then the limits are longer: what still lies there counts as lost if it is lost."""
    archive, store = ten_objects()
    store.dies_at = dies_at
    with pytest.raises(KilledError):
        sweep(archive)
    store.dies_at = None
    left = bases(archive)
    longer = planned(archive)
    sweep_topic(
        archive, replace(longer, partitions=[replace(one, going=()) for one in longer.partitions]), lambda _: ""
    )
    assert bases(archive) == left
    store.delete([key_of(left[0])])
    assert [(gap.first_offset, gap.last_offset) for gap in read(archive).gaps] == [(left[0], left[0] + 9)]


def test_what_the_store_denies_stays_and_is_told() -> None:
    archive, store = ten_objects()
    store.denied = frozenset({key_of(10), key_of(40)})
    done = sweep(archive)
    assert sorted(done.refused) == [f"{key_of(base)}: denied" for base in (10, 40)]
    assert bases(archive) == [10, 40, 60, 70, 80, 90]
    assert swept_of(archive).ranges == ((0, 10), (20, 40), (50, 60))
    store.delete([key_of(40)])
    assert [str(gap) for gap in read(archive).gaps] == ["40-49"]


def test_an_object_that_comes_back_is_read_and_stays_for_its_time() -> None:
    archive, store = ten_objects()
    sweep(archive)
    put_object(store, 20)  # a writer that slept for days
    assert bases(archive) == [20, 60, 70, 80, 90]
    sweep(archive, min_age_ms=3_600_000)
    assert bases(archive) == [20, 60, 70, 80, 90]
    sweep(archive)
    assert bases(archive) == [60, 70, 80, 90]
    assert read(archive).gaps == ()


def test_what_has_changed_before_a_batch_stops_the_sweep() -> None:
    archive, _ = ten_objects()
    answers = iter(["", "a hold was added"])
    done = sweep_topic(archive, planned(archive), lambda _: next(answers))
    assert done.stopped == "a hold was added"
    assert bases(archive) == [30, 40, 50, 60, 70, 80, 90]
    assert swept_of(archive).ranges == ((0, 30),)


def test_ranges_that_a_dead_run_wrote_down_are_taken_back_first() -> None:
    archive, _ = ten_objects()
    add_swept(archive, PLACE, OffsetRanges.of([(0, 100)]))
    sweep(archive)
    assert swept_of(archive).ranges == ((0, 60),)


@pytest.mark.parametrize("effect", range(EFFECTS))
def test_another_sweep_that_takes_back_makes_no_loss_of_what_goes(effect: int) -> None:
    """It lists what is about to go, before each effect of this one."""
    archive, store = ten_objects()
    store.meanwhile = [*[lambda: None] * effect, lambda: take_back_lying(archive, PLACE, 0)]
    sweep(archive)
    assert bases(archive) == [60, 70, 80, 90]
    assert swept_of(archive).ranges == ((0, 60),)
    assert read(archive).gaps == ()


@pytest.mark.parametrize(("left_alone_ms", "gaps"), [(LEFT_ALONE_MS, []), (0, ["0-29"])])
def test_a_sweep_that_dies_beside_another_leaves_no_loss(left_alone_ms: int, gaps: list[str]) -> None:
    """It has noted a batch; another one begins; it deletes the batch, and dies before it can write that down again."""
    archive, store = ten_objects()
    store.meanwhile = [lambda: None, lambda: take_back_lying(archive, PLACE, left_alone_ms)]
    plan = planned(archive)

    def die() -> str:
        raise KilledError

    answers = iter([lambda: "", die])
    with (
        pytest.raises(KilledError),
        patch("archiver.upkeep.retention.sweeping.sweep.add_swept", side_effect=KilledError),
    ):
        sweep_topic(archive, plan, lambda _: next(answers)(), left_alone_ms=left_alone_ms)
    assert bases(archive)[0] == 30
    assert [str(gap) for gap in read(archive).gaps] == gaps


def test_what_was_noted_a_while_ago_or_in_the_future_is_taken_back() -> None:
    for noted_ms, is_left in ((-LEFT_ALONE_MS, False), (1 - LEFT_ALONE_MS, True), (LEFT_ALONE_MS, False)):
        archive, store = ten_objects()
        now_ms = epoch_ms(store.now())
        note_going(archive, PLACE, OffsetRanges.of([(0, 30)]), Noting("other", now_ms + noted_ms, 0))
        with patch.object(store, "now", return_value=datetime.fromtimestamp(now_ms / 1000, UTC)):
            take_back_lying(archive, PLACE, LEFT_ALONE_MS)
        assert bool(swept_of(archive)) is is_left


@pytest.mark.parametrize("effect", range(3))
def test_what_another_one_is_about_to_delete_is_left_to_a_later_run(effect: int) -> None:
    """This one is denied to delete; the other one deletes afterwards, and dies before it can write that down again."""
    archive, store = ten_objects()
    store.denied = frozenset(map(key_of, range(0, 30, 10)))

    def note_beside() -> None:
        note_going(
            archive,
            PLACE,
            OffsetRanges.of([(0, 30)]),
            Noting("other", epoch_ms(store.now()), LEFT_ALONE_MS),
        )

    store.meanwhile = [*[lambda: None] * effect, note_beside]
    sweep_topic(archive, planned(archive), lambda _: "", left_alone_ms=LEFT_ALONE_MS)
    assert swept_of(archive).ranges == ((0, 60),)
    store.delete([key_of(0)])
    take_back_lying(archive, PLACE, 0)  # a later run
    assert swept_of(archive).ranges == ((0, 10), (30, 60))
    assert read(archive).gaps == ()


def test_what_another_sweep_deletes_while_it_is_taken_back_counts_as_swept() -> None:
    archive, store = ten_objects()
    add_swept(archive, PLACE, OffsetRanges.of([(0, 30)]))
    store.meanwhile = [lambda: store.delete([key_of(0), key_of(20)])]
    take_back_lying(archive, PLACE, 0)
    assert swept_of(archive).ranges == ((0, 10), (20, 30))
    assert read(archive).gaps == ()


def test_what_was_put_again_since_it_was_asked_stays() -> None:
    """Another sweep took it, and a writer that slept for days put it again, byte for byte: it is young."""
    archive, store = ten_objects()
    plan = planned(archive)
    store.delete([key_of(10)])
    put_object(store, 10)
    assert [one.item.base for one in sweep_topic(archive, plan, lambda _: "").deleted] == [0, 20, 30, 40, 50]
    assert bases(archive) == [10, 60, 70, 80, 90]


def test_what_is_lost_before_it_goes_counts_as_lost() -> None:
    archive, store = ten_objects()
    plan = planned(archive)
    store.delete([key_of(10)])
    sweep_topic(archive, plan, lambda _: "")
    assert swept_of(archive).ranges == ((0, 10), (20, 60))
    assert [str(gap) for gap in read(archive).gaps] == ["10-19"]


def test_a_process_that_slept_before_a_batch_deletes_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    archive, store = ten_objects()
    now_s = [0.0]
    monkeypatch.setattr("archiver.upkeep.retention.sweeping.sweep.since_boot_s", lambda: now_s[0])

    def sleep() -> None:
        now_s[0] += 3600

    store.meanwhile = [sleep]
    done = sweep(archive)
    assert done.stopped.startswith("it took more than 60 s")
    assert done.deleted == []
    assert len(bases(archive)) == 10
    assert not swept_of(archive)


def test_what_cannot_be_asked_again_stops_this_topic_only() -> None:
    archive, _ = ten_objects()

    def fails(_: TopicSweep) -> str:
        raise TemporaryError("the cluster does not answer")

    assert sweep_topic(archive, planned(archive), fails).stopped == "the cluster does not answer"
    assert len(bases(archive)) == 10


def test_a_partition_that_fails_stops_no_other() -> None:
    archive, _ = ten_objects()
    plan = planned(archive)
    other = replace(plan.partitions[0], partition=1)

    def ensure(partition: PartitionSweep) -> None:
        if partition.partition == 1:
            raise StoreError("denied")

    done = sweep_topic(archive, replace(plan, partitions=[other, *plan.partitions]), lambda _: "", ensure)
    assert done.refused == ["denied"]
    assert bases(archive) == [60, 70, 80, 90]


class ManyStore(MortalStore):
    """Deletes of several partitions wait for each other."""

    def __init__(self, at_once: int) -> None:
        super().__init__()
        self.barrier = Barrier(at_once, timeout=20)

    def delete_each(self, keys: Iterable[str], *, send_by_s: float = math.inf) -> Mapping[str, ArchiverError]:
        self.barrier.wait()
        return super().delete_each(keys, send_by_s=send_by_s)


def planned_of(archive: Archive, partitions: int) -> TopicSweep:
    """The same plan for as many partitions."""
    for partition in range(1, partitions):
        for base in range(0, 100, 10):
            facts = replace(facts_of(base, base + 10), max_timestamp=0)
            key = LAYOUT.segment_key(SegmentKey(topic="t", life=0, partition=partition, base=base))
            archive.store.put_if_absent(key, b"x", facts.to_metadata(), kind=ObjectKind.SEGMENT)
    (first,) = planned(archive).partitions
    return TopicSweep(
        terms=TERMS,
        partitions=[
            replace(
                first,
                partition=number,
                going=tuple(replace(one, item=by_key[one.item.base]) for one in first.going),
            )
            for number in range(partitions)
            for by_key in [{item.base: item for item in list_items(archive, "t", 0, number)}]
        ],
    )


def test_several_partitions_are_swept_at_once_and_told_as_one_topic() -> None:
    store = ManyStore(4)
    archive = archive_in(store)
    reported: list[tuple[int, int]] = []
    work = TopicWork(planned_of(archive, 8), lambda _: "", lambda _: "")
    (done,) = sweep_topics(archive, [work], lambda *one: reported.append(one), left_alone_ms=0, at_once=4)
    assert len(done.deleted) == 8 * 6
    assert reported == [(number, 8) for number in range(1, 9)]


class BusyStore(MortalStore):
    """Refuses its first deletes for now, each in another way; then others do something."""

    def __init__(self, *others: Callable[[], object], loses_answer: bool = False) -> None:
        super().__init__()
        self.others = list(others)
        self.loses_answer = loses_answer

    def delete_each(self, keys: Iterable[str], *, send_by_s: float = math.inf) -> Mapping[str, ArchiverError]:
        asked = list(keys)
        if not self.others:
            return super().delete_each(asked, send_by_s=send_by_s)
        if self.loses_answer:
            super().delete_each(asked[:2], send_by_s=send_by_s)
        self.others.pop(0)()
        if self.loses_answer:
            raise StoreTemporaryError("the answer was lost")
        return {key: StoreTemporaryError(f"{key}: SlowDown") for key in asked}


@pytest.mark.parametrize("loses_answer", [False, True])
def test_what_is_refused_for_now_is_deleted_later_and_counted_once(
    loses_answer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("archiver.upkeep.retention.sweeping.sweep.PAUSES_S", (0, 0, 0))
    archive = archive_in(BusyStore(lambda: None, lambda: None, loses_answer=loses_answer))
    done = sweep(archive)
    assert (len(done.deleted), len({one.item.key for one in done.deleted}), done.refused) == (6, 6, [])
    assert bases(archive) == [60, 70, 80, 90]
    archive = archive_in(BusyStore(*[lambda: None] * 3))
    assert len(sweep(archive).refused) == 3
    assert bases(archive) == [0, 10, 20, 60, 70, 80, 90]
    assert read(archive).gaps == ()


def test_a_delete_that_is_repeated_is_decided_on_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hold was added while the store was busy; or somebody has put an object again."""
    monkeypatch.setattr("archiver.upkeep.retention.sweeping.sweep.PAUSES_S", (0, 0, 0))
    held: list[str] = []
    archive = archive_in(BusyStore(lambda: held.append("a hold was added")))
    assert sweep_topic(archive, planned(archive), lambda _: "".join(held), left_alone_ms=0).deleted == []
    assert len(bases(archive)) == 10
    store = BusyStore()
    archive = archive_in(store)
    plan = planned(archive)

    def put_again() -> None:
        store.delete([key_of(10)])
        facts = replace(facts_of(10, 20), max_timestamp=0)
        store.put_if_absent(key_of(10), b"again", facts.to_metadata(), kind=ObjectKind.SEGMENT)

    store.others = [put_again]
    sweep_topic(archive, plan, lambda _: "", left_alone_ms=0)
    assert bases(archive) == [10, 60, 70, 80, 90]


def test_a_hold_that_comes_while_a_batch_is_noted_stops_it() -> None:
    archive, store = ten_objects()
    plan = planned(archive)
    held: list[str] = []
    store.meanwhile = [lambda: held.append("a hold was added")]  # before the batch is written down
    done = sweep_topic(archive, plan, lambda _: "", look=lambda _: "".join(held))
    assert (done.deleted, done.stopped) == ([], "a hold was added")
    assert len(bases(archive)) == 10
    assert not swept_of(archive)


def test_a_sweep_that_paused_before_a_delete_lists_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process stops, a hold is added, and the process wakes up before it has sent the delete."""
    monkeypatch.setattr("archiver.upkeep.retention.sweeping.sweep.PAUSES_S", (0, 0, 0))
    now_s, held = [0.0], list[str]()
    for module in ("archiver.archive.notes.holds", "tests.support.memory_store"):
        monkeypatch.setattr(f"{module}.steady_s", lambda: now_s[0])

    def reach(name: str) -> None:
        if name == "sweep.looked":
            now_s[0] += LOOK_S + 1
            held.append("a hold was added")

    monkeypatch.setattr("archiver.upkeep.retention.sweeping.sweep.reach", reach)
    archive, _ = ten_objects()
    done = sweep_topic(archive, planned(archive), lambda _: "", look=lambda _: "".join(held))
    assert (done.deleted, done.stopped) == ([], "a hold was added")
    assert len(bases(archive)) == 10


class SilentStore(MortalStore):
    """Answers until something is to be deleted, and never again."""

    deletes = 0

    def delete_each(self, keys: Iterable[str], *, send_by_s: float = math.inf) -> Mapping[str, ArchiverError]:
        del send_by_s
        self.deletes += 1
        raise StoreTemporaryError(f"{next(iter(keys))}: does not answer")

    def list(self, prefix: str, start_after: str = "") -> Iterator[ListedObject]:
        if self.deletes:
            raise StoreTemporaryError(f"{prefix}: does not answer")
        return super().list(prefix, start_after)


def test_a_store_that_does_not_answer_ends_the_sweep_of_all() -> None:
    store = SilentStore()
    archive = archive_in(store)
    plan = planned_of(archive, 8)
    with pytest.raises(StoreTemporaryError):
        sweep_topics(archive, [TopicWork(plan, lambda _: "", lambda _: "")], left_alone_ms=0, at_once=1)
    assert store.deletes == 1  # the others were not begun


def test_what_keeps_a_topic_from_being_begun_stops_it() -> None:
    archive, _ = ten_objects()
    why = "by what it was swept, cannot be read"
    (done,) = sweep_topics(
        archive, [TopicWork(planned(archive), lambda _: "", lambda _: "", refusal=why)], left_alone_ms=0
    )
    assert (done.stopped, done.deleted) == (why, [])
    assert len(bases(archive)) == 10
