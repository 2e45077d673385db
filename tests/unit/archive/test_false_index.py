"""An index that lies, in files as anybody may put them: nothing is left out of what is read without a word (docs/format.md §9)."""

import dataclasses
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

import archiver.archive.index.lookup
import archiver.archive.reading.reader
from archiver.archive.copies.archived_topic import ArchivedTopic
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout, SegmentKey
from archiver.archive.index.index_generations import append_to_index
from archiver.archive.index.inventory import read_inventory
from archiver.archive.reading.catalog import find_topic, read_archive
from archiver.archive.reading.plain_records import read_records, wanted_of
from archiver.archive.reading.reader import read_parts
from archiver.archive.segments.entries import IndexEntry
from archiver.archive.segments.segment_facts import SegmentFacts
from archiver.codec.selection import FIRST_LONG, LAST_LONG, Selection, TopicSelection
from archiver.codec.tally import Tally
from archiver.config.model import IndexUse
from archiver.errors import ArchiverError, FalseFactsError, UsageError
from archiver.restore.plan.request import RestoreRequest
from archiver.restore.plan.restore_plan import plan_restore
from archiver.store.port import ObjectKind
from tests.support.frames import frame_of, records_of
from tests.support.memory_store import CountingStore
from tests.support.records import Rec
from tests.support.segments import SOURCE, known_facts, written

LAYOUT = Layout("p")
NUMBERS = ("first", "last", "next", "records", "tombstones", "min_timestamp", "max_timestamp", "bytes", "largest_record",
           "source_bytes")  # fmt: skip
LATEST = 60  # times are below


@dataclass(frozen=True)
class Built:
    """An archive of one partition: real objects, their true entries, and all records that it has."""

    store: CountingStore
    entries: list[IndexEntry]
    records: list[Rec]

    def copy(self) -> CountingStore:
        store = CountingStore()
        store.objects = dict(self.store.objects)
        return store


def key_of(base: int) -> SegmentKey:
    return SegmentKey(topic=SOURCE.topic, partition=SOURCE.partition, base=base)


def built(spool: Path, draw: random.Random, *, without: int | None = None) -> Built:
    """Segments of a few records each; one of them may be gone."""
    store, entries, records = CountingStore(), list[IndexEntry](), list[Rec]()
    base = 0
    for number in range(6):
        offsets = sorted(draw.sample(range(base, base + 9), 4))
        batch = [Rec(offset, draw.randrange(LATEST), 0, b"k", b"v%d" % offset) for offset in offsets]
        content, facts = written(spool, batch, base)
        base = facts.next
        if number != without:
            key = key_of(facts.base)
            etag = store.put_if_absent(LAYOUT.segment_key(key), content, facts.to_metadata(), kind=ObjectKind.SEGMENT)
            assert etag is not None
            entries.append(IndexEntry(key, len(content), etag, facts))
            records += batch
    return Built(store, entries, records)


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> list[Built]:
    draw, spool = random.Random(7), tmp_path_factory.mktemp("spool")
    return [built(spool, draw, without=without) for without in (None, None, 0, 3, 5)]


def forged(facts: SegmentFacts, draw: random.Random, ends: list[int]) -> SegmentFacts:
    """Other numbers, such as facts may have; offsets mostly such as names of objects have, the next one's above all."""
    following = min((end for end in ends if end > facts.next), default=facts.next)
    while True:
        changes: dict[str, int] = {}
        if draw.random() < 0.3:
            changes["next"] = following
        for name in draw.sample(NUMBERS, draw.randint(0 if changes else 1, 4)):
            if name in {"first", "last", "next"}:
                changes[name] = draw.choice([*ends, facts.next + draw.randint(-9, 9), draw.randrange(100)])
            else:
                changes[name] = draw.choice([0, 1, 5, draw.randrange(-9, 99), FIRST_LONG, LAST_LONG])
        try:
            return replace(facts, **changes)  # type: ignore[arg-type]
        except ValueError:
            continue


def drawn_selection(draw: random.Random) -> Selection:
    first, last, start, end = 0, LAST_LONG, FIRST_LONG, LAST_LONG
    if draw.random() < 0.5:
        first, last = sorted((draw.randrange(100), draw.randrange(100)))
    if draw.random() < 0.5:
        start, end = sorted((draw.randrange(LATEST), draw.randrange(LATEST)))
    return Selection(first_offset=first, last_offset=last, from_ms=start, until_ms=end)


def request_of(wanted: Selection, *, skips_damage: bool = False) -> RestoreRequest:
    offsets = {SOURCE.partition: (wanted.first_offset, wanted.last_offset)}
    selected = TopicSelection(offsets=offsets, from_ms=wanted.from_ms, until_ms=wanted.until_ms)
    return RestoreRequest(wanted=selected, skips_damage=skips_damage)


def restored(
    store: CountingStore, wanted: Selection, use: IndexUse = IndexUse.CHECK, *, skips_damage: bool = False
) -> list[Rec]:
    """All records that a restore reads. Raises what it would refuse, or its tasks would."""
    request = request_of(wanted, skips_damage=skips_damage)
    archive = read_archive(Archive(store, LAYOUT), use=use, reads=request.wanted.of)
    (topic,) = plan_restore(archive, {SOURCE.topic: "target"}, request)
    partition = topic.partitions[SOURCE.partition]
    if partition.problem:
        raise UsageError(partition.problem)
    frames = read_parts(store, SOURCE.topic, SOURCE.partition, partition.planned_parts, selection=partition.selection)
    return [record for frame in frames for record in records_of(frame)]


def told(topic: ArchivedTopic, store: CountingStore, wanted: Selection) -> list[int]:
    problems: list[str] = []
    rows = read_records(store, topic, report_problem=problems.append, partition=SOURCE.partition, selection=wanted)
    found = [row["offset"] for row in rows]
    if problems:
        raise UsageError("; ".join(problems))
    return found


def catted(store: CountingStore, wanted: Selection) -> list[int]:
    """The offsets that `cat` shows. Raises what it complains of."""
    topic = find_topic(Archive(store, LAYOUT), SOURCE.topic, reads=wanted_of(SOURCE.partition, wanted))
    return told(topic, store, wanted)


def truth(archive: Built, wanted: Selection) -> list[Rec]:
    return [
        record
        for record in archive.records
        if wanted.first_offset <= record.offset <= wanted.last_offset and wanted.has(record.timestamp)
    ]


def lacks(archive: Built, wanted: Selection) -> bool:
    """Whether offsets that are wanted are in no object, though others are behind them."""
    ends = [0, *(one.facts.next for one in archive.entries)]
    return any(
        end < one.facts.base and end <= wanted.last_offset and one.facts.base > wanted.first_offset
        for end, one in zip(ends, archive.entries, strict=False)
    )


def lies(archive: Built, draw: random.Random) -> Iterator[IndexEntry]:
    ends = [end for one in archive.entries for end in (one.facts.base, one.facts.next)]
    for entry in draw.sample(archive.entries, draw.randint(1, len(archive.entries))):
        yield entry._replace(facts=forged(known_facts(entry), draw, ends))


def outcome_of(read: Callable[[], object], expected: object, *, is_whole: bool) -> str:
    try:
        found = read()
    except FalseFactsError:
        return "found out when it was read"
    except ArchiverError:
        return "refused"
    assert found == expected
    assert is_whole, "that offsets are missing was not told"
    return "the truth"


def run(archives: list[Built], seed: int, count: int) -> Counter[str]:
    outcomes: Counter[str] = Counter()
    for number in range(count):
        draw = random.Random(f"{seed}-{number}")
        archive, wanted = draw.choice(archives), drawn_selection(draw)
        false = list(lies(archive, draw))
        whole = not lacks(archive, wanted)
        for name, read, expected in (
            ("restore", restored, truth(archive, wanted)),
            ("cat", catted, [record.offset for record in truth(archive, wanted)]),
        ):
            store = archive.copy()
            append_to_index(Archive(store, LAYOUT), archive.entries)
            append_to_index(Archive(store, LAYOUT), false)
            try:
                found = outcome_of(partial(read, store, wanted), expected, is_whole=whole)
            except AssertionError as error:
                raise AssertionError(f"{name} of seed {seed}, case {number}: {wanted}, {false}") from error
            outcomes[f"{name}: {found}"] += 1
    return outcomes


def test_no_lie_of_an_index_is_believed(archives: list[Built], seed: int) -> None:
    outcomes = run(archives, seed, 300)
    assert min(outcomes[f"{name}: {kind}"] for name in ("restore", "cat") for kind in
               ("the truth", "found out when it was read", "refused")) > 5, outcomes  # fmt: skip


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_no_lie_of_an_index_is_believed_long(archives: list[Built], seed: int) -> None:
    outcomes = run(archives, seed + 1, 100_000)
    print(f"\nfalse index, seed {seed + 1}: {dict(outcomes)}")


# --- one by one

EVERYTHING = Selection()


def lying(archive: Built, place: int, **changes: int) -> CountingStore:
    store = archive.copy()
    append_to_index(Archive(store, LAYOUT), archive.entries)
    entry = archive.entries[place]
    append_to_index(Archive(store, LAYOUT), [entry._replace(facts=replace(entry.facts, **changes))])  # type: ignore[arg-type]
    return store


def test_an_object_that_is_said_to_reach_far_hides_none(
    archives: list[Built], caplog: pytest.LogCaptureFixture
) -> None:
    """One PUT, and a plan of six objects would be one of a single object."""
    archive = archives[0]
    store = lying(archive, 0, next=archive.entries[-1].facts.next)
    assert restored(store, EVERYTHING) == archive.records
    assert f"{LAYOUT.segment_key(archive.entries[0].key)};" in caplog.text
    assert "control/index/" in caplog.text


def test_what_was_found_to_be_false_is_put_right_for_the_others(archives: list[Built]) -> None:
    archive = archives[0]
    store = lying(archive, 0, next=archive.entries[-1].facts.next)
    read_inventory(Archive(store, LAYOUT))
    asked = store.heads
    assert restored(store, EVERYTHING) == archive.records
    assert store.heads == asked


def test_a_last_object_that_is_said_to_end_within_a_merged_one_is_asked(tmp_path: Path) -> None:
    """It begins in the midst of the merged one, which is read only below that."""
    records = [Rec(offset, 0, 0, b"k", b"v%d" % offset) for offset in range(20)]
    store, entries = CountingStore(), list[IndexEntry]()
    for some in (records[:10], records[8:]):
        content, facts = written(tmp_path, some, some[0].offset)
        key = replace(key_of(facts.base), next=None if entries else facts.next)
        etag = store.put_if_absent(LAYOUT.segment_key(key), content, facts.to_metadata(), kind=ObjectKind.SEGMENT)
        assert etag is not None
        entries.append(IndexEntry(key, len(content), etag, facts))
    merged_next = entries[0].facts.next
    archive = Built(store, entries, records)
    with pytest.raises(UsageError, match="do not tell whether they are the same records"):
        restored(archive.copy(), EVERYTHING)
    assert restored(archive.copy(), EVERYTHING, skips_damage=True) == archive.records
    false = lying(archive, -1, next=merged_next, last=9, first=8, records=1)
    assert restored(false, EVERYTHING, skips_damage=True) == archive.records


def test_what_is_said_to_lie_outside_of_the_times_is_asked(archives: list[Built]) -> None:
    archive = archives[0]
    store = lying(archive, 2, min_timestamp=LATEST + 1, max_timestamp=LATEST + 2)
    early = Selection(from_ms=0, until_ms=LATEST)
    assert restored(store, early) == archive.records
    store = lying(archive, 2, min_timestamp=LATEST + 1, max_timestamp=LATEST + 2)
    assert len(restored(store, early, IndexUse.TRUST)) == len(archive.records) - 4  # who alone writes there, may say so


def test_a_gap_that_an_entry_hides_is_found_when_its_object_is_read(archives: list[Built]) -> None:
    archive = archives[3]
    store = lying(archive, 2, next=archive.entries[3].facts.base)
    with pytest.raises(FalseFactsError, match=r"next is \d+, planned was \d+.*storage.index"):
        restored(store, EVERYTHING)
    store = lying(archive, 2, next=archive.entries[3].facts.base)
    with pytest.raises(UsageError, match="are missing"):
        restored(store, EVERYTHING, IndexUse.IGNORE)


@pytest.mark.parametrize(
    "name", ["records", "min_timestamp", "max_timestamp", "bytes", "largest_record", "source_bytes"]
)
def test_other_facts_than_those_of_the_plan_end_a_restore(archives: list[Built], name: str) -> None:
    facts = archives[0].entries[1].facts
    change = {"records": -1, "min_timestamp": -1, "max_timestamp": 1}.get(name, 5)
    store = lying(archives[0], 1, **{name: getattr(facts, name) + change})
    with pytest.raises(FalseFactsError, match=f"{name.replace('_', '-')} is"):
        restored(store, EVERYTHING)


def test_no_entry_makes_a_merged_object_hide_others(archives: list[Built], tmp_path: Path) -> None:
    """Neither one that gives it the records that it should have, nor those that give the others fewer."""
    archive, store = archives[0], archives[0].copy()
    end = archive.entries[-1].facts.next
    content, facts = written(tmp_path, [Rec(end - 5, 0, 0, b"k", b"false")], 0)
    assert facts.next == end
    key = replace(key_of(0), next=end)
    etag = store.put_if_absent(LAYOUT.segment_key(key), content, facts.to_metadata(), kind=ObjectKind.SEGMENT)
    assert etag is not None
    with pytest.raises(UsageError, match="is damaged: it covers offsets"):
        restored(store, EVERYTHING)
    whole = Tally()
    whole.add(frame_of(archive.records))
    true = replace(facts, first=0, unserved=0, records=whole.records, digest=whole.digest)
    append_to_index(Archive(store, LAYOUT), [*archive.entries, IndexEntry(key, len(content), etag, true)])
    assert restored(store, EVERYTHING) == archive.records
    assert catted(store, EVERYTHING) == [record.offset for record in archive.records]
    for entry in archive.entries:
        false = replace(known_facts(entry), records=1, digest=0)
        append_to_index(Archive(store, LAYOUT), [entry._replace(facts=false)])
    with pytest.raises((FalseFactsError, UsageError)):
        restored(store, EVERYTHING)


def test_an_object_without_facts_has_none_of_an_index(archives: list[Built]) -> None:
    archive = archives[0]
    store = archive.copy()
    append_to_index(Archive(store, LAYOUT), archive.entries)
    key = LAYOUT.segment_key(archive.entries[1].key)
    bare = dataclasses.replace(store.objects[key], metadata={})
    store.objects[key] = bare
    assert restored(store, EVERYTHING) == archive.records  # its Avro header has them, too


def test_each_rule_is_needed(archives: list[Built], seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without one of them the property above does not hold, and that is seen."""
    for module, broken in (
        (archiver.archive.index.lookup._Claims, "leave_out"),
        (archiver.archive.reading.reader, "check_planned"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(module, broken, lambda one, *_: getattr(one, "places", 0) < 0)
            with pytest.raises(AssertionError):
                run(archives, seed, 300)
