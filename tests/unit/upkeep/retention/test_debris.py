"""Debris: what goes, what stays and why; killed after any effect, a rerun ends in the same state, and `verify` never complains falsely."""

import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from archiver.archive.format.control import Fact, encode_fact
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout, OffsetMapKey, SegmentKey
from archiver.archive.index.index_file import NOTHING_SEEN, join_members
from archiver.archive.index.index_generations import append_to_index, read_index
from archiver.archive.notes.holds import Hold
from archiver.archive.reading.lost_control import lost_control_objects
from archiver.archive.restores.restore_pins import RestorePins
from archiver.archive.segments.entries import IndexEntry
from archiver.config.model import ArchiverConfig
from archiver.errors import StoreError
from archiver.store.port import ListedObject, ObjectInfo, ObjectKind
from archiver.upkeep.retention.sweeping.debris import (
    DebrisKind,
    DebrisPlan,
    DebrisStay,
    DebrisTerms,
    debris_terms,
    list_group,
    survey_debris,
)
from archiver.upkeep.retention.sweeping.debris_sweep import DebrisSwept, sweep_debris
from tests.support.memory_store import MemoryStore, StoredObject
from tests.support.segments import facts_of
from tests.unit.upkeep.retention.test_sweep import KilledError, MortalStore

LAYOUT = Layout("p")
DAY_MS = 24 * 3600 * 1000
FIRST = datetime(2026, 1, 1, tzinfo=UTC)
FIRST_MS = int(FIRST.timestamp() * 1000)
NOW_MS = FIRST_MS + 100 * DAY_MS
TERMS = DebrisTerms(
    now_ms=NOW_MS, store_now_ms=NOW_MS, min_age_ms=DAY_MS, restores_ms=30 * DAY_MS, snapshots_ms=30 * DAY_MS
)
TARGET = {"format": 1, "target_cluster_id": "c", "target_topic_id": "T"}
VERIFIED = {**TARGET, "start_offset": 0, "verified": {"records": 1, "digest": "0" * 16, "bytes": 1, "leader_epoch": 0}}


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("archiver.upkeep.retention.sweeping.debris_sweep._BATCH", 3)


def put(store: MemoryStore, key: str, body: bytes) -> None:
    store.put_if_absent(key, body, {}, kind=ObjectKind.FACT)


def put_fact(store: MemoryStore, stream: str, fact: Fact, number: int = 0) -> None:
    put(store, LAYOUT.fact_key(stream, number), encode_fact(fact))


def partition_of(number: int, chosen: str | None = None) -> Fact:
    """As a plan has it: of one record."""
    part = ["an object", 0, None, None, chosen]
    return {"partition": number, "selection": {}, "parts": [part], "facts": [[True, 1, 5, 5, 9, 9, 9]]}


def plan_of(topic: str, *partitions: Fact) -> Fact:
    return {**TARGET, "source": topic, "appends": False, "partitions": list(partitions)}


def put_restore(store: MemoryStore, restore_id: str, topics: Sequence[str] = ("a", "b")) -> None:
    for topic in topics:
        chosen = LAYOUT.chosen_key(restore_id, topic, 0, "a" * 24)
        put(store, chosen, b"chosen")
        parent = f"restores/{restore_id}/{topic}"
        put_fact(store, f"{parent}/plan", plan_of(topic, partition_of(0, chosen)))
        put_fact(store, f"{parent}/0", TARGET)
        put_fact(store, f"{parent}/0", VERIFIED, 1)
        put(
            store,
            LAYOUT.offset_map_key(OffsetMapKey(restore_id=restore_id, topic=topic, partition=0, topic_id="A")),
            b"m",
        )
        put_fact(store, f"{parent}/finished", TARGET)


def put_snapshot(store: MemoryStore, day: str, number: int = 0, put_later: timedelta = timedelta(0)) -> None:
    at = datetime.fromisoformat(day).replace(tzinfo=UTC)
    time_ms = int(at.timestamp() * 1000) + number
    fact = {"format": 1, "time_ms": time_ms, "duration_ms": 1, "groups": {}, "missing": []}
    key = LAYOUT.fact_key(f"group-positions/{day}", number)
    store.objects[key] = StoredObject(encode_fact(fact), {}, at + put_later)


def put_generation(store: MemoryStore, number: int, files: int = 2) -> None:
    """As a backup leaves it: each file of it has an entry."""
    other = MemoryStore()
    entry = IndexEntry(SegmentKey(topic="t", partition=0, base=0), 1, "e", facts_of(0, 10))
    append_to_index(Archive(other, LAYOUT), [entry])
    (content,) = other.objects.values()
    for file in range(files):
        key = LAYOUT.index_key(number, file)
        store.put_if_absent(key, content.body, content.metadata, kind=ObjectKind.FACT)


@pytest.fixture
def world() -> tuple[Archive, MortalStore]:
    """Two finished restores and one that is not, five days of snapshots, three versions of the index."""
    store = MortalStore()
    archive = Archive(store, LAYOUT)
    for restore_id in ("r-1", "r-2"):
        put_restore(store, restore_id)
    put_restore(store, "open")
    del store.objects[LAYOUT.fact_key("restores/open/b/finished", 0)]
    for day in ("2025-12-01", "2025-12-02", "2026-02-01", "2026-04-01"):
        for number in range(4):
            put_snapshot(store, day, number)
    for generation in (0, 1, 7):
        put_generation(store, generation)
    store.effects = 0
    return archive, store


def verified(archive: Archive) -> list[str]:
    return lost_control_objects(archive, {})


def sweep(archive: Archive, terms: DebrisTerms = TERMS) -> DebrisSwept:
    return sweep_debris(archive, survey_debris(archive, terms).going, lambda: None, NOW_MS)


def streams(plan: DebrisPlan) -> list[str]:
    return [one.stream for one in plan.going]


GOING = [
    "restores/r-1",
    "restores/r-2",
    "group-positions/2025-12-01",
    "group-positions/2025-12-02",
    "index/000000",
    "index/000001",
]


def left(store: MemoryStore) -> set[str]:
    below = {key.removeprefix("p/control/") for key in store.objects}
    return {key for key in below if not key.startswith("sweeps/")}


def test_what_goes(world: tuple[Archive, MortalStore]) -> None:
    archive, store = world
    plan = survey_debris(archive, TERMS)
    assert streams(plan) == GOING
    assert plan.staying == {
        DebrisKind.RESTORE: {DebrisStay.UNFINISHED: 1},
        DebrisKind.SNAPSHOTS: {DebrisStay.NEWEST: 1, DebrisStay.YOUNG: 1},
    }
    done = sweep(archive)
    assert (done.refused, done.left) == ([], [])
    assert done.groups == {DebrisKind.RESTORE: 2, DebrisKind.SNAPSHOTS: 2, DebrisKind.INDEX: 2}
    assert done.objects == {DebrisKind.RESTORE: 24, DebrisKind.SNAPSHOTS: 8, DebrisKind.INDEX: 4}
    assert {key.split("/")[0] + "/" + key.split("/")[1] for key in left(store)} == {
        "restores/open",
        "group-positions/2026-02-01",
        "group-positions/2026-04-01",
        "index/000007",
    }
    assert verified(archive) == []


def test_a_version_with_files_that_the_next_one_lacks_stays_until_one_has_them() -> None:
    store = MemoryStore()
    archive = Archive(store, LAYOUT)
    put_generation(store, 0, files=2)
    first = join_members({}, NOTHING_SEEN, merged_files=1)
    store.put_if_absent(LAYOUT.index_key(1, 0), first, {}, kind=ObjectKind.FACT)
    plan = survey_debris(archive, TERMS)
    assert (streams(plan), plan.staying) == ([], {DebrisKind.INDEX: {DebrisStay.UNMERGED: 1}})
    store.put_if_absent(LAYOUT.index_key(2, 0), first, {}, kind=ObjectKind.FACT)
    assert streams(survey_debris(archive, TERMS)) == ["index/000000", "index/000001"]


EFFECTS = 2 * (2 + 2 + 1 + 1) + 2 * 2 + 2  # deletes of three objects each: restores in four phases, days, index


def test_the_effects_of_this_sweep(world: tuple[Archive, MortalStore]) -> None:
    archive, store = world
    sweep(archive)
    assert store.effects == EFFECTS


KILLS = [(effect, is_done) for effect in range(EFFECTS) for is_done in (False, True)]


@pytest.mark.parametrize("dies_at", KILLS)
def test_a_rerun_after_a_kill_ends_in_the_same_state(
    world: tuple[Archive, MortalStore], dies_at: tuple[int, bool]
) -> None:
    archive, store = world
    store.dies_at = dies_at
    with pytest.raises(KilledError):
        sweep(archive)
    store.dies_at = None
    assert verified(archive) == []
    lost = LAYOUT.fact_key("group-positions/2026-04-01", 2)
    kept = store.objects.pop(lost)
    assert len(verified(archive)) == 1  # a real loss shows at any moment
    store.objects[lost] = kept
    sweep(archive)
    assert verified(archive) == []
    assert streams(survey_debris(archive, TERMS)) == []
    assert not any(key.startswith(tuple(GOING)) for key in left(store))


def test_what_the_store_denies_stays_and_is_told_and_the_rest_goes_on(world: tuple[Archive, MortalStore]) -> None:
    archive, store = world
    denied = [LAYOUT.fact_key("restores/r-1/a/0", 1), LAYOUT.fact_key("group-positions/2025-12-01", 1)]
    store.denied = frozenset(denied)
    done = sweep(archive)
    assert (done.left, done.refused) == ([], [f"{key}: denied" for key in denied])
    assert done.refusals == 2
    assert verified(archive) == []
    finished = {key for key in store.objects if "restores/r-1" in key and ("plan" in key or "finished" in key)}
    assert len(finished) == 4  # it stays finished: else no later sweep would take it
    store.denied = frozenset()
    sweep(archive)
    assert verified(archive) == []
    assert not any(key.startswith(tuple(GOING)) for key in left(store))


def test_a_locked_object_stays(world: tuple[Archive, MortalStore], monkeypatch: pytest.MonkeyPatch) -> None:
    archive, store = world
    locked, head = LAYOUT.fact_key("restores/r-2/b/0", 0), store.head

    def head_locked(key: str) -> ObjectInfo | None:
        found = head(key)
        return replace(found, is_locked=True) if found is not None and key == locked else found

    monkeypatch.setattr(store, "head", head_locked)
    assert sweep(archive).refused == [f"{locked}: is locked by the store"]
    assert locked in store.objects
    assert verified(archive) == []


def test_claims_go_first_and_plan_and_finished_last(
    world: tuple[Archive, MortalStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, store = world
    add_note(store, applied=True)
    phases: list[str] = []
    delete_each = store.delete_each

    def delete(keys: Sequence[str], **terms: float) -> object:
        phases.extend({phase_of(key) for key in keys if "/r-1/" in key})
        assert len({phase_of(key) for key in keys}) == 1
        return delete_each(keys, **terms)

    monkeypatch.setattr(store, "delete_each", delete)
    sweep(archive)
    assert phases == ["claim", "claim", "rest", "rest", "plan", "finished"]


@pytest.mark.parametrize("dies_at", [(effect, is_done) for effect in range(14) for is_done in (False, True)])
def test_a_half_gone_restore_with_earlier_notes_of_groups_goes(
    world: tuple[Archive, MortalStore], monkeypatch: pytest.MonkeyPatch, dies_at: tuple[int, bool]
) -> None:
    """Only the newest note of a group tells that the group was set: an earlier one that is left would keep the restore for ever."""
    monkeypatch.setattr("archiver.upkeep.retention.sweeping.debris_sweep._BATCH", 1)
    archive, store = world
    for number, applied in enumerate((False, False, True)):
        add_note(store, applied=applied, number=number)
    store.effects, store.dies_at = 0, dies_at
    with pytest.raises(KilledError):
        sweep(archive)
    store.dies_at = None
    assert verified(archive) == []
    assert "restores/r-1" in streams(survey_debris(archive, TERMS)) or not any("/r-1/" in key for key in store.objects)


def phase_of(key: str) -> str:
    name = key.split("/")[-2]
    return "claim" if name == "0" else name if name in {"plan", "finished"} else "rest"


def test_what_is_left_of_a_restore_when_only_ends_are_there_goes(world: tuple[Archive, MortalStore]) -> None:
    """A sweep was killed after it had deleted a plan."""
    archive, store = world
    for key in [key for key in store.objects if "/r-1/" in key and "/finished/" not in key]:
        del store.objects[key]
    assert lost_control_objects(archive, {}) == []
    assert "restores/r-1" in streams(survey_debris(archive, TERMS))
    sweep(archive)
    assert lost_control_objects(archive, {}) == []


def test_verify_is_right_at_every_moment_of_a_sweep(
    world: tuple[Archive, MortalStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lists while a sweep deletes: each page of its listing may be of another moment."""
    archive, store = world
    listed = MemoryStore.list

    def list_beside(prefix: str, start_after: str = "") -> Iterator[ListedObject]:
        for item in list(listed(store, prefix, start_after)):
            if item.key in store.objects:  # else it is gone when its page is listed
                yield item
            if prefix == LAYOUT.control_root and "r-1" in item.key:
                kinds = sorted(
                    (["claim", "rest", "plan", "finished"].index(phase_of(key)), key)
                    for key in store.objects
                    if "/r-1/" in key
                )
                first = [key for phase, key in kinds if phase == kinds[0][0]]
                del store.objects[first[-1]]

    monkeypatch.setattr(store, "list", list_beside)
    assert verified(archive) == []
    assert not any("/r-1/" in key for key in store.objects)


# --- restores


def change_id(store: MemoryStore) -> None:
    """Of the topic that is finished: a later run has begun to fill another one."""
    key = LAYOUT.fact_key("restores/r-1/b/plan", 0)
    other = encode_fact({**TARGET, "target_topic_id": "U"})
    store.objects[key] = replace(store.objects[key], body=other)


def change_end(store: MemoryStore) -> None:
    key = LAYOUT.fact_key("restores/r-1/b/finished", 0)
    changed = store.objects[key].body.replace(b'"T"', b'"U"')
    store.objects[key] = replace(store.objects[key], body=changed)


def forge(store: MemoryStore, name: str, fact: Fact) -> None:
    """Put a newer fact of a target."""
    stream = f"restores/r-1/b/{name}"
    number = sum(key.startswith(f"{LAYOUT.control_prefix(stream)}0") for key in store.objects)
    put_old(store, LAYOUT.fact_key(stream, number), encode_fact(fact))


def name_nothing(store: MemoryStore) -> None:
    """Plan, end and claim agree, and none of them names a topic, as of brokers without ids: it may be another one."""
    for name in ("plan", "finished", "0"):
        forge(store, name, {**plan_of("b", partition_of(0)), "target_topic_id": ""})


def note_nothing(store: MemoryStore) -> None:
    """A newer note of a group that has not been set."""
    add_note(store, applied=False)
    note = {"format": 1, "target_cluster_id": "c", "group": "g", "source_group": "g", "topics": {}}
    put_old(store, LAYOUT.fact_key(f"restores/r-1/@groups/{'0' * 64}", 1), encode_fact(note))


def add_note(store: MemoryStore, *, applied: bool, topic_id: str = "T", number: int = 0) -> None:
    move = {
        "before": None,
        "wanted": {"offset": 1, "metadata": ""},
        "as_of_ms": None,
        "applied": applied,
    }
    topics = {"a": {"topic_id": topic_id, "partitions": {"0": move}}}
    note = {"format": 1, "target_cluster_id": "c", "group": "g", "source_group": "g", "topics": topics}
    key = LAYOUT.fact_key(f"restores/r-1/@groups/{'0' * 64}", number)
    put_old(store, key, encode_fact(note))


def put_old(store: MemoryStore, key: str, body: bytes) -> None:
    store.objects[key] = StoredObject(body, {}, FIRST)


def add_odd_restore(store: MemoryStore) -> None:
    """They change nothing of the others."""
    for name in ("\u00e4", "-x", "r-1 ", "a\nb", "..", "@groups", "%2e"):
        put_old(store, f"p/control/restores/{name}/a/plan/000000.json", encode_fact(TARGET))
        put_old(store, f"p/control/restores/{name}/a/finished/000000.json", encode_fact(TARGET))
    put_old(store, "p/control/restores/r-1.json", b"{}")
    put_old(store, "p/control/restores//000000.json", b"{}")


REASONS: dict[str, tuple[Callable[[MemoryStore], object], DebrisStay | None]] = {
    "other-id": (change_id, DebrisStay.UNFINISHED),
    "broken-end": (change_end, DebrisStay.UNREADABLE),
    "no-plan": (lambda store: store.objects.pop(LAYOUT.fact_key("restores/r-1/b/plan", 0)), DebrisStay.UNFINISHED),
    "stranger": (lambda store: put_old(store, "p/control/restores/r-1/notes.txt", b"mine"), DebrisStay.STRANGE),
    "open-note": (lambda store: add_note(store, applied=False), DebrisStay.UNFINISHED),
    "applied-note": (lambda store: add_note(store, applied=True), None),
    "hostile-note": (
        lambda store: put_old(store, LAYOUT.fact_key("restores/r-1/@groups/x", 0), b'{"format": 1, "topics": 5}'),
        DebrisStay.UNREADABLE,
    ),
    "new-target": (lambda store: put_fact(store, "restores/r-1/new/plan", TARGET), DebrisStay.UNFINISHED),
    "forged-end": (lambda store: forge(store, "finished", {"format": 1}), DebrisStay.UNFINISHED),
    "no-topic-id": (name_nothing, DebrisStay.UNFINISHED),
    "note-of-another": (lambda store: add_note(store, applied=True, topic_id="U"), DebrisStay.UNFINISHED),
    "note-of-nothing": (note_nothing, DebrisStay.UNFINISHED),
    "odd-restores": (add_odd_restore, None),
}


@pytest.mark.parametrize("name", REASONS)
def test_why_a_restore_stays(world: tuple[Archive, MortalStore], name: str) -> None:
    archive, store = world
    change, why = REASONS[name]
    change(store)
    plan = survey_debris(archive, TERMS)
    assert set(streams(plan)) <= set(GOING)
    assert ("restores/r-1" in streams(plan)) == (why is None)
    if why is not None:
        assert plan.staying[DebrisKind.RESTORE][why] >= 1
    assert "restores/r-2" in streams(plan)


def test_a_restore_is_as_old_as_its_last_note(world: tuple[Archive, MortalStore]) -> None:
    archive, store = world
    key = LAYOUT.fact_key("restores/r-1/a/0", 1)
    store.objects[key] = replace(store.objects[key], last_modified=FIRST + timedelta(days=70))
    at = replace(TERMS, now_ms=FIRST_MS + 100 * DAY_MS)
    assert "restores/r-1" not in streams(survey_debris(archive, at))
    assert "restores/r-1" in streams(survey_debris(archive, replace(at, now_ms=at.now_ms + 1)))
    short = replace(at, restores_ms=0, store_now_ms=FIRST_MS + 71 * DAY_MS - 1)
    assert "restores/r-1" not in streams(survey_debris(archive, short))  # min-object-age, whatever restores.keep says


def test_a_restore_that_goes_on_while_it_is_deleted_is_left(world: tuple[Archive, MortalStore]) -> None:
    archive, store = world
    plan = survey_debris(archive, TERMS)
    store.meanwhile = [lambda: None, lambda: put_fact(store, "restores/r-1/b/7", TARGET)]
    done = sweep_debris(archive, plan.going[:1], lambda: None, NOW_MS)
    (told,) = done.left
    assert told.startswith("control/restores/r-1/: somebody has put something there since it was planned")
    assert LAYOUT.fact_key("restores/r-1/b/7", 0) in store.objects


# --- snapshots


def test_snapshots_stay_for_ever_unless_it_is_said_how_long(world: tuple[Archive, MortalStore]) -> None:
    archive, _ = world
    plan = survey_debris(archive, replace(TERMS, snapshots_ms=None))
    assert not any(one.startswith("group-positions") for one in streams(plan))


def test_whole_days_that_are_old_go(world: tuple[Archive, MortalStore]) -> None:
    """The newest of them stays: where a group stood at the beginning of the time that is kept is read from it."""
    archive, _ = world
    old = 30 * DAY_MS + int(datetime(2026, 2, 2, tzinfo=UTC).timestamp() * 1000)  # the end of the third day
    assert "group-positions/2025-12-02" not in streams(survey_debris(archive, replace(TERMS, now_ms=old)))
    assert "group-positions/2025-12-02" in streams(survey_debris(archive, replace(TERMS, now_ms=old + 1)))
    assert "group-positions/2026-02-01" not in streams(survey_debris(archive, replace(TERMS, now_ms=old + 1)))


@pytest.mark.parametrize(("put_later", "goes"), [(timedelta(days=1, hours=23), True), (timedelta(days=2), False)])
def test_a_day_that_was_put_later_lets_no_earlier_day_go(
    world: tuple[Archive, MortalStore], put_later: timedelta, goes: bool
) -> None:
    """Whoever may put snapshots can put days that the backup never saw."""
    archive, store = world
    for day in ("2026-02-02", "2026-03-01"):
        put_snapshot(store, day, put_later=put_later)
    plan = survey_debris(archive, TERMS)
    assert ("group-positions/2026-02-01" in streams(plan)) == goes
    put_snapshot(store, "2026-03-01", 1, put_later=timedelta(days=2))
    put_snapshot(store, "2026-02-02", 1, put_later=timedelta(days=2))
    assert "group-positions/2026-02-01" not in streams(survey_debris(archive, TERMS))


def test_a_young_day_lets_no_old_one_go(world: tuple[Archive, MortalStore]) -> None:
    """Else one snapshot of today would take the last ones of before."""
    archive, store = world
    for key in [key for key in store.objects if "group-positions/2025" in key]:
        del store.objects[key]
    put_snapshot(store, "2026-04-10")
    assert not any(one.startswith("group-positions") for one in streams(survey_debris(archive, TERMS)))


def test_the_newest_day_that_can_be_read_stays_and_so_does_all_behind_it(world: tuple[Archive, MortalStore]) -> None:
    """Whoever may put objects can put days of the future, or days that nobody can read."""
    archive, store = world
    put_old(store, LAYOUT.fact_key("group-positions/2199-01-01", 0), encode_fact({"format": 1, "time_ms": 1}))
    put_snapshot(store, "2198-01-01")
    for day in ("2026-04-02", "2026-04-01"):
        for number in range(4):
            put_old(store, LAYOUT.fact_key(f"group-positions/{day}", number), b"{}")
    put_old(store, "p/control/group-positions/2026-4-1/000000.json", b"{}")
    put_old(store, "p/control/group-positions/today/000000.json", b"{}")
    plan = survey_debris(archive, replace(TERMS, snapshots_ms=0))
    days = [one.rpartition("/")[2] for one in streams(plan) if one.startswith("group-positions")]
    assert days == ["2025-12-01", "2025-12-02"]
    assert plan.staying[DebrisKind.SNAPSHOTS] == {DebrisStay.NEWEST: 3}


def test_a_day_with_something_else_in_it_stays(world: tuple[Archive, MortalStore]) -> None:
    archive, store = world
    put_old(store, "p/control/group-positions/2025-12-02/mine.txt", b"")
    assert "group-positions/2025-12-02" not in streams(survey_debris(archive, TERMS))


CONFIG = ArchiverConfig.model_validate({"storage": {"url": "s3://bucket/p"}, "retention": {"groups": "1d"}})


def hold_of(topics: str, released_ms: int | None = None) -> dict[str, Hold]:
    return {"h": Hold(name="h", topics=topics, reason="", by="", added_ms=0, released_ms=released_ms)}


def test_holds_and_unfinished_restores_keep_snapshots(world: tuple[Archive, MortalStore]) -> None:
    archive, store = world
    terms = debris_terms(archive, CONFIG, hold_of("*"), NOW_MS, RestorePins(archive))
    assert terms.snapshots_stay is DebrisStay.HELD
    stays = debris_terms(archive, CONFIG, hold_of("*", released_ms=1), NOW_MS, RestorePins(archive)).snapshots_stay
    assert stays is DebrisStay.PINNED  # its plans were put a moment ago, by the store's clock
    del store.objects[LAYOUT.fact_key("restores/open/b/plan", 0)]
    assert debris_terms(archive, CONFIG, hold_of("a"), NOW_MS, RestorePins(archive)).snapshots_stay is None
    kept = CONFIG.model_copy(update={"retention": CONFIG.retention.model_copy(update={"keep": ("__consumer.*",)})})
    assert debris_terms(archive, kept, {}, NOW_MS, RestorePins(archive)).snapshots_stay is DebrisStay.KEPT
    plan = survey_debris(archive, replace(TERMS, snapshots_stay=DebrisStay.HELD))
    assert plan.staying[DebrisKind.SNAPSHOTS] == {DebrisStay.NEWEST: 1, DebrisStay.HELD: 2, DebrisStay.YOUNG: 1}


def test_what_has_changed_right_before_keeps_a_group(world: tuple[Archive, MortalStore]) -> None:
    archive, store = world
    plan = survey_debris(archive, TERMS)

    done = sweep_debris(archive, plan.going, lambda: DebrisStay.HELD, NOW_MS)
    assert done.left[0] == "control/group-positions/2025-12-01/: stays: positions are on hold"
    assert len([key for key in store.objects if "group-positions" in key]) == 16


# --- the index


def test_a_generation_stays_for_a_while_after_the_next_was_begun(world: tuple[Archive, MortalStore]) -> None:
    archive, store = world
    begun_ms = int(store.objects[LAYOUT.index_key(7, 0)].last_modified.timestamp() * 1000)
    soon = replace(TERMS, min_age_ms=0, store_now_ms=begun_ms + 3_599_999)
    assert not any(one.startswith("index") for one in streams(survey_debris(archive, soon)))
    later = replace(soon, store_now_ms=begun_ms + 3_600_000)
    assert [one for one in streams(survey_debris(archive, later)) if one.startswith("index")] == GOING[-2:]


@pytest.mark.parametrize("body", [None, b"", b"nothing"])
def test_no_generation_goes_whose_successor_is_not_whole(
    world: tuple[Archive, MortalStore], body: bytes | None
) -> None:
    """Whoever may put objects can begin a generation."""
    archive, store = world
    if body is None:
        put_old(store, LAYOUT.index_key(999_999, 1), b"x")
    else:
        put_old(store, LAYOUT.index_key(999_999, 0), body)
    plan = survey_debris(archive, TERMS)
    assert not any(one.startswith("index") for one in streams(plan))
    (error,) = plan.errors
    assert error.startswith("earlier versions of the index: p/control/index/999999/000000.zst: ")
    assert "restores/r-1" in streams(plan)  # the other kinds go on


def test_a_reader_that_has_opened_an_earlier_generation_reads_the_one_that_holds(
    world: tuple[Archive, MortalStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, store = world
    get, moves = store.get, [lambda: None]

    def swept_meanwhile(key: str, most_bytes: int = 1 << 40) -> object:
        if "000007/000000" in key and moves:
            moves.clear()
            put_generation(store, 8, 1)
            for file in range(3):
                store.objects.pop(LAYOUT.index_key(7, file), None)
        return get(key, most_bytes)

    monkeypatch.setattr(store, "get", swept_meanwhile)
    found = read_index(archive)
    assert (found.files, found.lost_files, len(found.of(("t", 0)).entries)) == (1, 0, 1)


# --- what fails, and how much it takes


def test_a_listing_that_fails_half_way_deletes_nothing_of_its_kind(
    world: tuple[Archive, MortalStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, store = world
    listed = store.list

    def fails(prefix: str, start_after: str = "") -> Iterator[ListedObject]:
        for number, item in enumerate(listed(prefix, start_after)):
            if prefix == LAYOUT.control_prefix("restores") and number > 30:
                raise StoreError("the second page is denied")
            yield item

    monkeypatch.setattr(store, "list", fails)
    plan = survey_debris(archive, TERMS)
    assert streams(plan) == GOING[2:]
    assert plan.errors == ["notes of finished restores: the second page is denied"]


def test_a_group_that_fails_stops_no_other(world: tuple[Archive, MortalStore], monkeypatch: pytest.MonkeyPatch) -> None:
    archive, store = world
    plan = survey_debris(archive, TERMS)

    def fails(archive: Archive, stream: str) -> Iterator[ListedObject]:
        if stream == "restores/r-1":
            raise StoreError("denied")
        return list_group(archive, stream)

    monkeypatch.setattr("archiver.upkeep.retention.sweeping.debris_sweep.list_group", fails)
    done = sweep_debris(archive, plan.going, lambda: None, NOW_MS)
    assert done.refused == ["denied"]
    assert LAYOUT.fact_key("restores/r-1/a/plan", 0) in store.objects
    assert done.groups[DebrisKind.RESTORE] == 1


class LongStore(MemoryStore):
    """Lists so many keys of one restore, which it does not hold."""

    def __init__(self, keys: int) -> None:
        super().__init__()
        self._keys = keys

    def list(self, prefix: str, start_after: str = "") -> Iterator[ListedObject]:  # noqa: ARG002 - lists from the first
        if not prefix.startswith("p/control/restores"):
            return
        for number in range(self._keys):
            key = LAYOUT.chosen_key("long", "a", 0, f"{number:024x}")
            yield ListedObject(key=key, size=1, etag="e", last_modified=FIRST)
        for name in ("0", "finished", "plan"):
            yield ListedObject(key=LAYOUT.fact_key(f"restores/long/a/{name}", 0), size=1, etag="e", last_modified=FIRST)


@pytest.mark.parametrize("keys", [20_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_a_restore_of_many_objects_takes_no_more_memory(keys: int) -> None:
    store = LongStore(keys)
    for name, fact in (("finished", TARGET), ("plan", plan_of("a", partition_of(0))), ("0", VERIFIED)):
        put_fact(store, f"restores/long/a/{name}", fact)
    tracemalloc.start()
    try:
        (group,) = survey_debris(Archive(store, LAYOUT), TERMS).going
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert group.objects == keys + 3
    assert peak < 2_000_000


# --- own notes


def test_what_sweeps_have_noted_for_themselves_goes_when_nobody_reads_it(world: tuple[Archive, MortalStore]) -> None:
    archive, store = world
    for number in range(1_003):
        put_old(store, LAYOUT.fact_key("sweeps/reports", number), b"{}")
    put_old(store, LAYOUT.fact_key(f"sweeps/plans/{'0' * 32}", 0), b"{}")
    put_old(store, "p/control/sweeps/plans/mine/000000.json", b"{}")
    store.objects[LAYOUT.fact_key(f"sweeps/plans/{'1' * 32}", 0)] = StoredObject(
        b"{}", {}, datetime.fromtimestamp(NOW_MS / 1000 - 7200, UTC)
    )
    sweep_debris(archive, (), lambda: None, NOW_MS)
    below = sorted(key.removeprefix("p/control/sweeps/") for key in store.objects if "/sweeps/" in key)
    assert len([key for key in below if key.startswith("reports/")]) == 1_000
    assert [key.split("/")[1] for key in below if key.startswith("plans/")] == ["1" * 32, "mine"]
    assert verified(archive) == []
