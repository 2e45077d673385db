"""How many offsets no batch served (docs/format.md §4), against an oracle that walks the headers of a log in plain Python."""

import random
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

import archiver.codec.batch
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.archive.segments.segment_facts import HoleCause, SegmentFacts, facts_from_metadata
from archiver.archive.segments.segment_writer import MOST_HOLES
from archiver.archive.segments.spool import Spool
from archiver.backup.partition.fetched_batches import Fetch
from archiver.backup.partition.partition_writer import PartitionWriter
from tests.support.feeds import sink_of, take_all, writer_of
from tests.support.memory_store import MemoryStore
from tests.support.records import Rec
from tests.support.reference_batch import HEADER, LENGTH_END, PLAIN, Batch, Oddities, batch_of, control_batch, encode

LAYOUT = Layout("p")
_CONTROL_BIT = 0x20


def record_at(offset: int) -> Rec:
    return Rec(offset, 0, 0, b"k", b"v")


@dataclass
class Log:
    """What Kafka has of a partition, as batches in the form that a fetch brings."""

    drawn: random.Random
    batches: list[bytes] = field(default_factory=list)
    aborted: list[tuple[int, int, int]] = field(default_factory=list)  # producer, first offset, offset of the marker
    end: int = 0
    answers: list[tuple[int, int, int | None]] = field(default_factory=list)  # from, until, and the last stable offset

    def append(self, batch: Batch, odd: Oddities = PLAIN) -> None:
        self.batches.append(encode(batch, odd))
        self.end = batch.last_offset + 1

    def grow(self) -> None:
        self.end += self.drawn.choice([0, 0, 0, 0, 3])  # a batch that is gone
        first, size = self.end, self.drawn.randint(1, 6)
        left = [offset for offset in range(first, first + size) if self.drawn.random() < self.drawn.choice([1, 1, 0.6])]
        is_aborted = self.drawn.random() < 0.3
        batch = batch_of(
            [record_at(offset) for offset in left],
            base_offset=first, last_offset=first + size - 1,
            transactional=is_aborted, producer_id=4 if is_aborted else -1,
        )  # fmt: skip
        self.append(batch, PLAIN if left else Oddities(payload=b""))
        if is_aborted:
            self.aborted.append((4, first, self.end))
            self.append(control_batch(self.end, commit=False, producer_id=4))
        elif self.drawn.random() < 0.2:
            self.append(control_batch(self.end, commit=True, producer_id=5))

    def fetch(self, position: int) -> Fetch | None:
        ahead = [content for content in self.batches if last_of(content) >= position][: self.drawn.randint(1, 5)]
        aborted = tuple((producer, first) for producer, first, marker in self.aborted if marker >= position)
        if not ahead:
            return None
        after = last_of(ahead[-1]) + 1
        stable_end = None if self.drawn.random() < 0.1 else self.drawn.randint(after, self.end + 9)
        self.answers.append((position, after, stable_end))
        return Fetch(position=position, records=memoryview(b"".join(ahead)), aborted=aborted, stable_end=stable_end)


def last_of(content: bytes) -> int:
    base, *_, delta = struct.unpack_from(">qiibIhi", content)
    return int(base + delta)


def walk(content: bytes) -> Iterator[tuple[int, int, int, bool]]:
    """Of each batch: base offset, last offset, records by its header, and whether it is a marker."""
    while content:
        base, length, _, _, _, attributes, delta, *_, count = HEADER.unpack_from(content)
        yield base, base + delta, count, bool(attributes & _CONTROL_BIT)
        content = content[LENGTH_END + length :]


def gaps_of(log: Log) -> int:
    """Offsets of the whole log that no batch has, by headers alone."""
    found = list(walk(b"".join(log.batches)))
    ends = [0, *(last + 1 for _, last, _, _ in found)]
    between = sum(base - end for (base, *_), end in zip(found, ends, strict=False))
    return between + sum(last - base + 1 - count for base, last, count, _ in found)


def written_by(writer: PartitionWriter, log: Log, *, until: int | None = None) -> None:
    while (fetch := log.fetch(writer.position)) is not None and (until is None or writer.position < until):
        take_all(writer, fetch)


def writer_into(store: MemoryStore, spool: Path, most_records: int) -> PartitionWriter:
    return writer_of(sink_of(Archive(store, LAYOUT), Spool(spool), records=most_records))


def facts_in(store: MemoryStore) -> list[SegmentFacts]:
    found = [facts_from_metadata(store.objects[key].metadata, key) for key in sorted(store.objects)]
    return [facts for facts in found if facts is not None]


def made_log(drawn: random.Random, size: int) -> Log:
    log = Log(drawn)
    for _ in range(size):
        log.grow()
    log.append(batch_of([record_at(log.end)]))  # so that all of it lies in segments
    return log


@pytest.fixture(scope="module")
def spool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("spool")


@given(drawn=st.randoms(use_true_random=False), size=st.integers(0, 25), most_records=st.integers(1, 12))
def test_however_a_log_is_fetched_and_cut_each_offset_is_counted_once(
    drawn: random.Random, size: int, most_records: int, spool: Path
) -> None:
    log, store = made_log(drawn, size), MemoryStore()
    with patch.object(archiver.codec.batch, "STEP_BYTES", drawn.choice([1, 200, 1 << 20])):
        for _ in range(drawn.randint(0, 2)):  # killed: what it held is lost, what it put is not
            killed = writer_into(store, spool, most_records)
            written_by(killed, log, until=drawn.randrange(log.end))
            killed.discard()
        last = writer_into(store, spool, most_records)
        written_by(last, log)
        last.flush()
    found = facts_in(store)
    assert [facts.base for facts in found] == [0, *(facts.next for facts in found[:-1])]
    assert found[-1].next == log.end
    assert sum(facts.unserved or 0 for facts in found) == gaps_of(log)
    assert None not in {facts.unserved for facts in found}


@given(drawn=st.randoms(use_true_random=False), size=st.integers(0, 25), most_records=st.integers(1, 12))
def test_a_segment_tells_the_highest_stable_end_of_all_answers_that_filled_it(
    drawn: random.Random, size: int, most_records: int, spool: Path
) -> None:
    log, store = made_log(drawn, size), MemoryStore()
    writer = writer_into(store, spool, most_records)
    with patch.object(archiver.codec.batch, "STEP_BYTES", drawn.choice([1, 200, 1 << 20])):
        if drawn.random() < 0.3:  # what was held, and is dropped, tells nothing
            written_by(writer, log, until=drawn.randrange(log.end))
            writer.flush()
            if (fetch := log.fetch(writer.position)) is not None:
                writer.take(fetch)
            writer.discard()
            at = writer.position
            log.answers = [(start, min(after, at), end) for start, after, end in log.answers if start < at]
        written_by(writer, log)
        writer.flush()
    for facts in facts_in(store):
        told = {end for start, after, end in log.answers if start < facts.next and after > facts.base}
        assert facts.stable_end == (None if None in told else max(end or 0 for end in told))


@pytest.mark.parametrize("is_open", [True, False])
def test_a_proof_that_offsets_are_empty_tells_up_to_where_the_log_was_stable(is_open: bool, spool: Path) -> None:
    store = MemoryStore()
    writer = writer_into(store, spool, 1000)
    if is_open:
        writer.take(Fetch(position=0, records=memoryview(encode(batch_of([record_at(0)]))), stable_end=50))
    writer.pass_over(20, stable_end=70)
    if not is_open:
        writer.take(Fetch(position=20, records=memoryview(encode(batch_of([record_at(20)]))), stable_end=60))
    writer.flush()
    (facts,) = facts_in(store)
    assert (facts.next, facts.stable_end) == (20 + (not is_open), 70)
    assert facts.unserved == (19 if is_open else 20)


@given(drawn=st.randoms(use_true_random=False), size=st.integers(1, 25), jumps=st.integers(1, 30))
def test_beside_holes_never_too_few_are_counted(drawn: random.Random, size: int, jumps: int, spool: Path) -> None:
    """The log start moves again and again, also into batches. Holes that are joined swallow what lies between them."""
    log, store = made_log(drawn, size), MemoryStore()
    writer, starts = (
        writer_into(store, spool, 1000),
        sorted(drawn.choices(range(1, log.end), k=jumps) if log.end > 1 else []),
    )
    for start in starts:
        if start > writer.position:
            writer.skip(start, drawn.choice([HoleCause.EXPIRED] * 9 + [HoleCause.UNREADABLE]))
        fetch = log.fetch(writer.position)
        if drawn.random() < 0.7 and fetch is not None:
            writer.take(fetch)
        if writer.is_due:
            writer.flush()
    written_by(writer, log)
    writer.flush()
    served = set(served_offsets(log))
    for facts in facts_in(store):
        assert facts.unserved is not None
        covered = set(range(facts.base, facts.next))
        for hole in facts.holes:
            covered -= set(range(hole.first_offset, hole.last_offset + 1))
        assert len(covered - served) <= facts.unserved <= len(covered) - facts.records


def served_offsets(log: Log) -> Sequence[int]:
    return [offset for content in log.batches for offset in offsets_in(content)]


def offsets_in(content: bytes) -> list[int]:
    """The offsets of the records of a batch; ours are uncompressed, and have deltas below 64."""
    ((base, _, count, _),) = walk(content)
    at, found = HEADER.size, []
    for _ in range(count):
        length = content[at] >> 1  # a zigzag varint of one byte
        found.append(base + (content[at + 3] >> 1))
        at += 1 + length
    return found


def test_a_segment_that_another_writer_was_first_to_put_is_cut_again(spool: Path) -> None:
    """Its cut lies in a batch of which compaction has taken some records; markers lie on both sides."""
    log, store = Log(random.Random(0)), MemoryStore()
    log.append(control_batch(0, commit=True, producer_id=5))
    log.append(batch_of([record_at(offset) for offset in (2, 4, 7, 8)], base_offset=1, last_offset=9))
    log.append(control_batch(10, commit=True, producer_id=5))
    log.append(batch_of([record_at(11)]))
    slow, quick = writer_into(store, spool, 1000), writer_into(store, spool, 2)
    everything = Fetch(position=0, records=memoryview(b"".join(log.batches)))
    assert slow.take(everything) is None
    assert quick.take(everything) is not None  # full: the rest waits
    quick.flush()
    slow.flush()
    assert slow.position == 5
    written_by(slow, log)
    slow.flush()
    assert [(one.base, one.next, one.records, one.unserved) for one in facts_in(store)] == [(0, 5, 2, 2), (5, 12, 3, 3)]


def test_what_lies_between_joined_holes_counts_once(spool: Path) -> None:
    """No object could name so many holes. What was left out between them is then told by the hole, and by nothing else."""
    log, store = Log(random.Random(0)), MemoryStore()
    writer = writer_into(store, spool, 1000)
    for number in range(MOST_HOLES + 3):
        writer.skip(log.end + 10)
        log.end += 10
        log.append(control_batch(log.end, commit=True, producer_id=number))
        writer.take(Fetch(position=writer.position, records=memoryview(log.batches[-1])))
    log.append(batch_of([record_at(log.end + 2)], base_offset=log.end))
    written_by(writer, log)
    writer.flush()
    (facts,) = facts_in(store)
    held = sum(hole.last_offset - hole.first_offset + 1 for hole in facts.holes)
    assert (len(facts.holes), held) == (MOST_HOLES, 10 * (MOST_HOLES + 3) + 3)
    assert 2 <= (facts.unserved or 0) <= 2 + MOST_HOLES
