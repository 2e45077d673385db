"""`archiver copy`, in stores in memory: cut off at each put, a copy is readable, and does not look whole."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from archiver.archive.format.control import append_fact
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout, SegmentKey
from archiver.archive.index.index_generations import append_to_index
from archiver.archive.notes.topic_changes import record_topic
from archiver.archive.notes.topics import record_cluster
from archiver.archive.segments.entries import IndexEntry
from archiver.errors import StrangerError, UsageError
from archiver.store.port import MOST_PUT_BYTES, Body, ObjectKind
from archiver.upkeep.copying import copy_archive
from archiver.upkeep.verify import check_listing
from tests.support.memory_store import MemoryStore
from tests.support.records import Rec
from tests.support.segments import SOURCE, written

FIRST, SECOND = Layout("first"), Layout("other/second")
RUNS = ("restores/x/orders/plan", "moments/a/0123456789abcdef", "sweeps/reports", "drills/x", "runs/backup")
BASES = (24, 48, 72, 96)


class KilledError(Exception):
    """The process ends here."""


class MortalStore(MemoryStore):
    """Ends the process at a put, before or after it."""

    left = 10**6

    def put_if_absent(self, key: str, body: Body, metadata: Mapping[str, str], *, kind: ObjectKind) -> str | None:
        self.left -= 1
        if self.left < 0:
            raise KilledError
        return super().put_if_absent(key, body, metadata, kind=kind)


@pytest.fixture
def source(tmp_path: Path) -> Archive:
    """Four objects of one partition, below which a sweep has deleted one; an index that knows them; notes of runs; a stranger."""
    archive, entries = Archive(MemoryStore(), FIRST), []
    record_cluster(archive, "c")
    record_topic(archive, topic="orders", topic_id=SOURCE.topic_id, cluster_id="c", partitions=4, configs={})
    for base in BASES:
        content, facts = written(tmp_path, [Rec(base + at, 1000 + at, 0, b"k", b"v%d" % at) for at in range(20)], base)
        key = SegmentKey(topic=SOURCE.topic, partition=SOURCE.partition, base=base)
        etag = archive.store.put_if_absent(
            FIRST.segment_key(key), content, facts.to_metadata(), kind=ObjectKind.SEGMENT
        )
        entries.append(IndexEntry(key, len(content), etag or "", facts))
    append_to_index(archive, entries)
    swept = {"format": 1, "topic": "orders", "life": 0, "partition": SOURCE.partition, "ranges": [[0, 24]]}
    append_fact(archive, f"swept/orders/0/{SOURCE.partition}", lambda _: swept)
    for stream in RUNS:
        append_fact(archive, stream, lambda _: {"format": 1})
    archive.store.put_if_absent("first/topics/orders/junk", b"x", {}, kind=ObjectKind.FACT)
    assert check_listing(archive).problems == []
    return archive


def contents(archive: Archive) -> dict[str, tuple[bytes, Mapping[str, str]]]:
    store = archive.store
    assert isinstance(store, MemoryStore)
    found = {key.removeprefix(archive.layout.root): (one.body, one.metadata) for key, one in store.objects.items()}
    return {key: one for key, one in found.items() if key != "README.txt"}  # each archive writes its own


def expected(source: Archive) -> dict[str, tuple[bytes, Mapping[str, str]]]:
    of_runs = tuple(f"control/{stream}/" for stream in RUNS)
    return {key: one for key, one in contents(source).items() if not key.startswith(of_runs) and "junk" not in key}


def test_a_copy_has_all_but_the_notes_of_runs(source: Archive) -> None:
    target = Archive(MemoryStore(), SECOND)
    result = copy_archive(source, target)
    copied = contents(target)
    probe = {key for key in copied if key.startswith("control/probe/")}
    assert {key: copied[key] for key in copied.keys() - probe} == expected(source)
    assert (result.objects, result.problems) == (len(expected(source)), [])
    assert check_listing(target, reads_records=True).problems == []
    again = copy_archive(source, target)
    assert (again.objects, list(again.problems)) == (0, [])


def test_a_copy_that_is_cut_off_does_not_look_whole_and_is_resumed(source: Archive) -> None:
    places = len(expected(source)) + 2  # and the probe, and the readme
    for place in range(places):
        store = MortalStore()
        target = Archive(store, SECOND)
        store.left = place
        with pytest.raises(KilledError):
            copy_archive(source, target)
        found = check_listing(target)
        assert found.problems or found.topics == 0, f"looks whole after {place} of {places} puts"
        store.left = 10**6
        copy_archive(source, target)
        assert check_listing(target).problems == []
        assert expected(source).items() <= contents(target).items()


def test_segments_are_put_in_the_order_of_the_source(source: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("archiver.upkeep.copying._SEGMENTS_AT_ONCE", 1)
    store = source.store
    assert isinstance(store, MemoryStore)
    first, last = (
        FIRST.segment_key(SegmentKey(topic=SOURCE.topic, partition=SOURCE.partition, base=one)) for one in (24, 96)
    )
    moments = store.objects[first].last_modified, store.objects[last].last_modified
    for key, moment in zip((last, first), moments, strict=True):
        store.objects[key] = replace(store.objects[key], last_modified=moment)
    target = Archive(MemoryStore(), SECOND)
    copy_archive(source, target)
    order = list(contents(target))
    assert order[:2] == ["control/probe/000000.json", "control/cluster/000000.json"]
    assert order[2].startswith("control/index/")
    assert order[-1].startswith("control/swept/")
    segments = [int(key.rpartition("-")[2].removesuffix(".data")) for key in order if key.startswith("topics/")]
    assert segments == [96, 48, 72, 24]


@pytest.mark.parametrize("stream", ["topics/orders", None])
def test_a_damaged_object_is_named_and_not_copied(source: Archive, stream: str | None) -> None:
    store = source.store
    assert isinstance(store, MemoryStore)
    segment = SegmentKey(topic=SOURCE.topic, partition=SOURCE.partition, base=48)
    key = FIRST.segment_key(segment) if stream is None else FIRST.fact_key(stream, 0)
    store.objects[key] = replace(store.objects[key], body=store.objects[key].body.replace(b"o", b"0", 1)[:-1] + b"?")
    target = Archive(MemoryStore(), SECOND)
    (problem,) = copy_archive(source, target).problems
    assert problem.startswith(f"{key}: ")
    assert set(contents(target)) == {*expected(source), "control/probe/000000.json"} - {key.removeprefix("first/")}
    assert check_listing(target).problems


def test_a_store_that_changes_what_is_put_is_found(source: Archive) -> None:
    class Cutting(MemoryStore):
        def put_if_absent(self, key: str, body: Body, metadata: Mapping[str, str], *, kind: ObjectKind) -> str | None:
            assert isinstance(body, bytes)
            cut = body[:-1] if key.endswith(".data") else body
            return super().put_if_absent(key, cut, metadata, kind=kind)

    problems = copy_archive(source, Archive(Cutting(), SECOND)).problems
    assert len(problems) == len(BASES)


def test_what_another_writer_put_stays_and_is_named(source: Archive) -> None:
    target = Archive(MemoryStore(), SECOND)
    record_cluster(target, "c")
    key = SECOND.segment_key(SegmentKey(topic=SOURCE.topic, partition=SOURCE.partition, base=48))
    target.store.put_if_absent(key, b"another", {}, kind=ObjectKind.SEGMENT)
    (problem,) = copy_archive(source, target).problems
    assert problem.startswith(f"{key}: differs from ")
    found = target.store.get(key)
    assert found is not None
    assert found[0] == b"another"


def test_wrong_targets_are_refused_before_anything_is_put(source: Archive) -> None:
    other = Archive(MemoryStore(), SECOND)
    record_cluster(other, "another")
    with pytest.raises(StrangerError, match="this archive belongs to cluster another, and this is c"):
        copy_archive(source, other)
    assert list(contents(other)) == ["control/cluster/000000.json"]
    with pytest.raises(UsageError, match="nothing is archived there"):
        copy_archive(Archive(MemoryStore(), FIRST), Archive(MemoryStore(), SECOND))


def test_an_object_that_a_sweep_deletes_meanwhile_is_no_problem(source: Archive) -> None:
    class Swept(MemoryStore):
        def get(self, key: str, most_bytes: int = MOST_PUT_BYTES) -> tuple[bytes, Mapping[str, str]] | None:
            return None if f"-{24:020}." in key else super().get(key, most_bytes)

    store = Swept()
    assert isinstance(source.store, MemoryStore)
    store.objects = source.store.objects
    result = copy_archive(Archive(store, FIRST), Archive(MemoryStore(), SECOND))
    assert result.problems == []
