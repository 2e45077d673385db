"""Several writers of one partition, one thread and one store: every order of steps, deaths and lost answers that a seed makes.

Kafka is a list of batches here, the store is memory; the archive is read back by fastavro and the read rule alone.
"""

import asyncio
import contextlib
import io
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import fastavro
import pytest

import archiver.backup.partition.fetched_batches
import archiver.backup.partition.partition_writer
import archiver.codec.batch
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.archive.index.archived_end import position_of
from archiver.archive.notes.topic_changes import record_topic
from archiver.archive.notes.topics import PartitionSource
from archiver.archive.segments.block_budget import DecodingBudget
from archiver.archive.segments.segment_facts import HoleCause
from archiver.archive.segments.spool import Spool
from archiver.backup.opening.opener import Opener
from archiver.backup.partition.fetched_batches import Fetch, fault_of
from archiver.backup.partition.partition_writer import PartitionWriter, PutLaterError
from archiver.errors import CorruptBatchError, LargeBatchError, StoreTemporaryError
from archiver.kafka.brokers.client import KafkaClient
from archiver.process.running.silence import SilenceCounter
from archiver.process.running.workers import workers
from archiver.store.port import Body, ListedObject, ObjectKind
from tests.support.feeds import sink_of, take_all
from tests.support.memory_store import MemoryStore
from tests.support.records import Rec
from tests.support.reference_batch import PLAIN, Batch, Oddities, batch_of, control_batch, encode

LAYOUT = Layout("p")
SOURCE = PartitionSource(topic="t", partition=0, life=0, topic_id="AAAAAAAAAAAAAAAAAAAAAQ", cluster_id="c")
SESSION_S = 10.0
EFFECTS = ("segment.closed", "segment.put", "position.counted")


class DiedError(BaseException):
    """The process was killed at a named place."""


class FaultyStore(MemoryStore):
    """A put may be refused, and may be done without an answer."""

    def __init__(self, chance: random.Random, *, overwrites: bool = False) -> None:
        super().__init__(overwrites=overwrites)
        self.chance = chance
        self.is_calm = False
        self.lost = self.refused = 0
        self.behind_listing: Callable[[], None] | None = None  # what happens before the lister goes on

    def put_if_absent(self, key: str, body: Body, metadata: Mapping[str, str], *, kind: ObjectKind) -> str | None:
        assert kind is ObjectKind.SEGMENT
        fate = "" if self.is_calm else self.chance.choice(["", "", "", "lost", "refused"])
        if fate == "refused":
            self.refused += 1
            raise StoreTemporaryError("refused")
        created = super().put_if_absent(key, body, metadata, kind=kind)
        if fate == "lost":
            self.lost += 1
            raise StoreTemporaryError("lost")
        return created

    def list(self, prefix: str, start_after: str = "") -> Iterator[ListedObject]:
        yield from super().list(prefix, start_after)
        happens, self.behind_listing = self.behind_listing, None
        if happens is not None:
            happens()


@dataclass(slots=True)
class World:
    """One partition, its archive, and time."""

    chance: random.Random
    spool: Path
    store: FaultyStore
    now_s: float = 0.0
    batches: list[tuple[int, int, bytes]] = field(default_factory=list)  # first and last offset, bytes
    truth: list[Rec] = field(default_factory=list)
    served: set[int] = field(default_factory=set)  # offsets that a batch has, also of markers and aborted records
    aborted: list[tuple[int, int, int]] = field(default_factory=list)  # producer, first offset, offset of the marker
    kept_from: int = 0  # what lies below was swept
    swept: int = 0
    seen_at_s: dict[str, float] = field(default_factory=dict)  # when an object was first noticed

    def grow(self) -> None:
        """Offsets leave gaps, as behind compaction; there are transactions, some of them aborted."""
        fate = self.chance.choice(["records"] * 5 + ["emptied", "aborted"])
        if fate == "emptied":
            first = self._end() + 1
            self._append(batch_of([], base_offset=first, last_offset=first + 4), Oddities(payload=b""))
            return
        records = self._make_records()
        if fate == "records":
            self.truth += records
            self._append(batch_of(records, base_offset=records[0].offset, last_offset=records[-1].offset + 1))
            return
        self._append(batch_of(records, transactional=True, producer_id=7))
        marker = self._end() + self.chance.choice([1, 2])
        self._append(control_batch(marker, commit=False, producer_id=7))
        self.aborted.append((7, records[0].offset, marker))

    def _end(self) -> int:
        return self.batches[-1][1] if self.batches else -1

    def _make_records(self) -> list[Rec]:
        offset = self._end() + 1 + self.chance.choice([0, 0, 0, 2])
        records = []
        for _ in range(self.chance.randint(1, 4)):
            records.append(Rec(offset, 1000 + offset, 0, b"k", b"v%d" % offset))
            offset += self.chance.choice([1, 1, 3])
        return records

    def _append(self, batch: Batch, odd: Oddities = PLAIN) -> None:
        self.served.update(record.offset for record in batch.records)
        self.batches.append((batch.base_offset, batch.last_offset, encode(batch, odd)))

    def tick(self) -> None:
        self.now_s += 1.0
        self.grow()
        for key in self.store.objects:
            self.seen_at_s.setdefault(key, self.now_s)
        if self.chance.random() < 0.05:
            self.sweep()

    def fetch(self, position: int) -> Fetch | None:
        ahead = [content for _, last, content in self.batches if last >= position]
        taken = ahead[: self.chance.randint(1, 3)]
        if not taken:
            return None
        aborted = tuple((producer, first) for producer, first, marker in self.aborted if marker >= position)
        return Fetch(position=position, records=memoryview(b"".join(taken)), aborted=aborted)

    def writer(self, hint: int | None = None) -> "Process":
        return Process(self, hint)

    def sweep(self) -> None:
        """As retention does: oldest first, never the newest, and nothing that is young."""
        keys = sorted(self.store.objects)
        for key in keys[: self.chance.randint(0, max(0, len(keys) - 1))]:
            if self.now_s - self.seen_at_s.setdefault(key, self.now_s) < 2 * SESSION_S:
                break
            self.swept += 1
            self.kept_from = int(self.store.objects[key].metadata["archiver-next"])
            self.store.delete([key])


class Process:
    """A writer of this partition; `None` when it is dead. Its clock is the world's, its silence_counter its own."""

    def __init__(self, world: World, hint: int | None, most_records: int | None = None) -> None:
        self.world = world
        self.silence_counter = SilenceCounter(SESSION_S, lambda: world.now_s)
        self.sink = sink_of(
            Archive(world.store, LAYOUT),
            Spool(world.spool, keeps_bytes=1 << 20, keeps_from_bytes=0),
            records=most_records or world.chance.randint(1, 9),
            silence_counter=self.silence_counter,
        )
        end = position_of(Archive(world.store, LAYOUT), SOURCE.topic, 0, 0, hint)
        self.writer = PartitionWriter(SOURCE, end, self.sink, silences=self.silence_counter.silences)
        self.is_waiting = False

    def step(self) -> None:
        self.silence_counter.beat()
        self.work()

    def work(self) -> None:
        """Without a beat before: as when a stopped process wakes up in the middle. A put that did not work waits."""
        fetch = self.world.fetch(self.writer.position)
        with contextlib.suppress(PutLaterError):
            if fetch is None or self.is_waiting or self.world.chance.random() < 0.1:
                self.is_waiting = True
                self.writer.flush()
                self.is_waiting = False
            else:
                self.is_waiting = True
                take_all(self.writer, fetch)
                self.is_waiting = False


def run(world: World, monkeypatch: pytest.MonkeyPatch, steps: int) -> set[str]:
    """Let processes work in any order, die, sleep and be replaced. Returns the effects after which one died."""
    chance = world.chance
    died: set[str] = set()
    armed: list[str] = []

    def reach(name: str) -> None:
        if armed == [name]:
            armed.clear()
            died.add(name)
            raise DiedError

    monkeypatch.setattr(archiver.backup.partition.partition_writer, "reach", reach)
    monkeypatch.setattr(
        archiver.codec.batch, "STEP_BYTES", chance.choice([1, 150, 1 << 20])
    )  # one batch, two, a whole fetch
    awake, asleep = [world.writer(), world.writer()], []
    for _ in range(steps):
        world.tick()
        if chance.random() < 0.05:  # stopped: another one takes over
            asleep.append(awake.pop(chance.randrange(2)))
            awake.append(world.writer(chance.choice([None, *(first for first, _, _ in world.batches)])))
        if chance.random() < 0.3:
            armed[:] = [chance.choice(EFFECTS)]
        at = chance.randrange(2)
        try:
            if asleep and chance.random() < 0.05:
                world.now_s += SESSION_S
                awake[0].silence_counter.beat()
                awake[1].silence_counter.beat()
                awake[at] = asleep.pop(0)
                awake[at].work()
            else:
                awake[at].step()
        except DiedError:
            awake[at] = world.writer(chance.choice([None, world.writer().writer.newest_base]))
    armed.clear()
    return died


def finish(world: World) -> None:
    world.store.is_calm = True
    last = world.writer()
    while (fetch := world.fetch(last.writer.position)) is not None:
        last.silence_counter.beat()
        take_all(last.writer, fetch)
    last.writer.flush()


def read_archive(store: MemoryStore) -> tuple[list[Rec], list[tuple[int, int]]]:
    """Records by the read rule, and the coverages; only fastavro and metadata."""
    objects = sorted(
        store.objects.values(),
        key=lambda one: (int(one.metadata["archiver-base"]), -int(one.metadata["archiver-next"])),
    )
    found: list[Rec] = []
    position = 0
    for one in objects:
        found += [row for row in _rows(one.body) if row.offset >= position]
        position = max(position, int(one.metadata["archiver-next"]))
    return found, [(int(one.metadata["archiver-base"]), int(one.metadata["archiver-next"])) for one in objects]


def _rows(content: bytes) -> Iterator[Rec]:
    for row in fastavro.reader(io.BytesIO(content)):
        record = cast("dict[str, Any]", row)
        yield Rec(record["offset"], record["timestamp"], record["timestampType"], record["key"], record["value"])


@pytest.fixture
def world(seed: int, tmp_path: Path) -> World:
    return made_world(seed, tmp_path)


def made_world(seed: int, spool: Path, *, overwrites: bool = False) -> World:
    chance = random.Random(seed)
    return World(chance=chance, spool=spool, store=FaultyStore(chance, overwrites=overwrites))


def check(world: World) -> None:
    found, coverages = read_archive(world.store)
    assert found == [row for row in world.truth if row.offset >= world.kept_from]
    bounds = [base for base, _ in coverages][1:]
    assert bounds == [end for _, end in coverages][:-1], "coverage has a gap or a double"
    assert not coverages or coverages[0][0] >= world.kept_from, "what was swept is back"
    for key, one in world.store.objects.items():
        covered = set(range(int(one.metadata["archiver-base"]), int(one.metadata["archiver-next"])))
        assert int(one.metadata["archiver-unserved"]) == len(covered - world.served), key


@pytest.mark.parametrize("turn", [0, 1, *(pytest.param(turn, marks=pytest.mark.long) for turn in (2, 3))])
def test_any_order_of_steps_keeps_every_offset_once(
    seed: int, turn: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    died: set[str] = set()
    lost = refused = swept = 0
    for number in range(100):
        world = made_world(seed + 100 * turn + number, tmp_path)
        died |= run(world, monkeypatch, 150)
        finish(world)
        check(world)
        lost, refused, swept = lost + world.store.lost, refused + world.store.refused, swept + world.swept
        if number >= 14 and min(lost, refused, swept) > 0 and died == set(EFFECTS):
            return
    raise AssertionError(f"not everything happened: {lost=} {refused=} {swept=} {died=}")


def test_a_store_that_overwrites_would_be_noticed(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check itself can fail: without put-if-absent one of these orders loses or doubles something."""

    def is_wrong(number: int) -> bool:
        world = made_world(seed + number, tmp_path, overwrites=True)
        run(world, monkeypatch, 150)
        finish(world)
        try:
            check(world)
        except AssertionError:
            return True
        return False

    assert any(is_wrong(number) for number in range(100))


def test_nothing_is_put_under_a_swept_key_after_a_silence(world: World) -> None:
    sleeper, other = Process(world, None, most_records=1000), world.writer()
    world.store.is_calm = True
    for _ in range(40):
        world.grow()
    take_all(sleeper.writer, cast("Fetch", world.fetch(0)))
    held = sleeper.writer.position
    while (fetch := world.fetch(other.writer.position)) is not None:
        take_all(other.writer, fetch)
    other.writer.flush()
    newest = max(world.store.objects)
    world.store.delete([key for key in world.store.objects if key != newest])
    world.now_s += SESSION_S + 1
    sleeper.writer.flush()
    assert list(world.store.objects) == [newest]
    assert sleeper.writer.position == position_of(Archive(world.store, LAYOUT), "t", 0, 0).next > held


async def open_feed(process: Process) -> PartitionWriter:
    """Open the partition as a backup does. No cluster is asked."""
    fact = record_topic(
        Archive(MemoryStore(), LAYOUT), topic="t", topic_id=SOURCE.topic_id, cluster_id="c", partitions=1, configs={}
    )
    with workers(1, "test") as pool:
        opener = Opener(cast("KafkaClient", None), sink=process.sink, pool=pool, cluster_id="c")
        return (await opener.open(fact, SOURCE.topic_id, 0)).writer


def test_nothing_is_put_under_a_swept_key_after_a_silence_while_a_partition_is_opened(world: World) -> None:
    """The opener has read an empty archive, sleeps, and makes its writer after it has woken up."""
    world.store.is_calm = True
    for _ in range(40):
        world.grow()

    def others_archive_and_sweep() -> None:
        other = Process(world, None, most_records=5)
        while (fetch := world.fetch(other.writer.position)) is not None:
            take_all(other.writer, fetch)
        other.writer.flush()
        world.store.delete([key for key in world.store.objects if key != max(world.store.objects)])
        world.now_s += SESSION_S + 1

    sleeper = Process(world, None, most_records=5)
    world.store.behind_listing = others_archive_and_sweep
    writer = asyncio.run(open_feed(sleeper))
    (newest,) = world.store.objects
    take_all(writer, cast("Fetch", world.fetch(0)))
    writer.flush()
    assert list(world.store.objects) == [newest]


def test_log_starts_that_move_again_and_again_leave_one_hole(world: World) -> None:
    world.store.is_calm = True
    for _ in range(40):
        world.grow()
    writer = world.writer().writer
    middle = world.batches[20][0]
    writer.skip(5)
    writer.skip(middle)
    while (fetch := world.fetch(writer.position)) is not None:
        take_all(writer, fetch)
    writer.flush()
    first = world.store.objects[min(world.store.objects)]
    assert (first.metadata["archiver-base"], first.metadata["archiver-holes"]) == ("0", f"0-{middle - 1}:expired")
    world.kept_from = middle
    assert read_archive(world.store)[0] == [row for row in world.truth if row.offset >= middle]


@pytest.mark.parametrize("has_open", [False, True])
def test_holes_of_other_causes_are_not_joined(world: World, has_open: bool) -> None:
    world.store.is_calm = True
    for _ in range(40):
        world.grow()
    writer = world.writer().writer
    if has_open:
        first = world.fetch(0)
        assert first is not None
        take_all(writer, first)
    begin, middle = writer.position, world.batches[20][0]
    writer.skip(begin + 2, HoleCause.BEFORE_START)
    writer.skip(begin + 4)
    writer.skip(middle)
    while (fetch := world.fetch(writer.position)) is not None:
        take_all(writer, fetch)
    writer.flush()
    holes = [body.metadata["archiver-holes"] for body in world.store.objects.values()]
    assert f"{begin}-{begin + 1}:before-start;{begin + 2}-{middle - 1}:expired" in holes


def test_a_record_that_no_reader_would_open_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archiver.backup.partition.fetched_batches, "MOST_BLOCK_BYTES", 900)
    with_headers = [Rec(0, 1, 0, b"k", b"v", ((b"h" * 100, b"x" * 60),))]
    for records, is_fine in (([Rec(0, 1, 0, b"k", b"v" * 160)], True), (with_headers, False)):
        fault = fault_of(memoryview(encode(batch_of(records))), 0, (), 1 << 20, DecodingBudget(1 << 20))
        assert (fault is None) == is_fine
        assert is_fine or isinstance(fault, LargeBatchError)


def test_a_fault_keeps_no_frame_of_its_batch() -> None:
    """Its traceback would keep what was decompressed."""
    content = bytearray(encode(batch_of([Rec(0, 1, 0, b"k", b"v")])))
    content[-1] ^= 1
    fault = fault_of(memoryview(content), 0, (), 1 << 20, DecodingBudget(1 << 20))
    assert fault is not None
    assert fault.__traceback__ is None


@pytest.mark.parametrize("both_skip", [True, False])
def test_a_batch_that_two_writers_pass_is_one_hole(world: World, both_skip: bool) -> None:
    """The first put decides: a hole, or records where the other one could read them."""
    world.store.is_calm = True
    for _ in range(40):
        world.grow()
    first, second = (world.writer(None).writer for _ in range(2))
    begin, after = world.batches[0][0], world.batches[1][0]
    for writer, skips in ((first, True), (second, both_skip)):
        if skips:
            writer.pass_over(begin)
            writer.skip(after, HoleCause.UNREADABLE)
        fetch = world.fetch(writer.position)
        assert fetch is not None
        take_all(writer, fetch)
        writer.flush()
    while (fetch := world.fetch(second.position)) is not None:
        take_all(second, fetch)
    second.flush()
    told = [one.metadata for one in world.store.objects.values() if one.metadata["archiver-holes"]]
    assert [one["archiver-holes"] for one in told] == [f"{begin}-{after - 1}:unreadable"]
    assert [one["archiver-format"] for one in told] == ["2"]
    assert read_archive(world.store)[0] == [row for row in world.truth if row.offset >= after]


@pytest.mark.parametrize("step_bytes", [1, 1 << 20])
def test_batches_that_go_back_are_damage_in_whatever_steps(
    step_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are whole, with good CRCs; a decoder that sees only the second one would take it for what is archived already."""
    monkeypatch.setattr(archiver.codec.batch, "STEP_BYTES", step_bytes)
    world = World(random.Random(0), tmp_path, FaultyStore(random.Random(0)))
    world.store.is_calm = True
    first, second = (encode(batch_of([Rec(offset, 1, 0, b"k", b"v")])) for offset in (10, 5))
    writer = Process(world, None).writer
    with pytest.raises(CorruptBatchError, match=r"offset 5: .* behind one that ends at 10"):
        take_all(writer, Fetch(position=0, records=memoryview(first + second)))
    writer.flush()
    assert writer.durable_position == 11


def test_who_is_overtaken_never_tells_that_more_is_durable_than_lies_in_the_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop asks while the put goes on in a thread: a candidate would count as complete by what it tells."""
    world = made_world(0, tmp_path)
    world.store.is_calm = True
    for first in (0, 10):
        records = [Rec(first + at, 1000, 0, b"k", b"v") for at in range(10)]
        world._append(batch_of(records, base_offset=first, last_offset=first + 9))
    fast, slow = Process(world, None, 100), Process(world, None, 100)
    told: list[tuple[str, int]] = []

    def fetch(number: int) -> Fetch:
        return Fetch(position=0, records=memoryview(b"".join(one[2] for one in world.batches[:number])), aborted=())

    def reach(name: str) -> None:
        told.append((name, slow.writer.durable_position))

    fast.writer.take(fetch(1))
    fast.writer.flush()
    slow.writer.take(fetch(2))
    monkeypatch.setattr(archiver.backup.partition.partition_writer, "reach", reach)
    slow.writer.flush()
    assert told == [("segment.closed", 0), ("segment.put", 0), ("position.counted", 10)]
