"""What is shown of an archived `__consumer_offsets`, with the archive of the topics: lags, ends, damage; as tables and as JSON."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from archiver.archive.format.control import append_fact
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout, SegmentKey
from archiver.archive.notes.topic_changes import record_topic
from archiver.archive.notes.topics import PartitionSource, record_cluster
from archiver.archive.reading.catalog import find_topic
from archiver.archive.segments.segment_writer import OpenSegment, SegmentLimits
from archiver.archive.segments.spool import Spool
from archiver.cli.groups_show import groups_lines, groups_row
from archiver.codec.selection import LAST_LONG
from archiver.config.model import IndexUse
from archiver.errors import FalseFactsError, UsageError
from archiver.groups.log.archived_log import read_log
from archiver.groups.log.folds import Folds
from archiver.groups.log.live_logs import LiveLog
from archiver.groups.positions.archived_position import State
from archiver.groups.positions.positions_as_of import positions_as_of
from archiver.groups.positions.shown import PositionFilter, ShownGroups, show_groups
from archiver.kafka.brokers.cluster import OpenTransaction
from archiver.store.port import ObjectKind
from tests.support.bucket_archive import put_false_entry
from tests.support.commit_frames import commit_value, position_key
from tests.support.frames import frame_of
from tests.support.memory_store import MemoryStore
from tests.support.records import Rec
from tests.support.segments import content_of

OFFSETS = "__consumer_offsets"
NEW_YEAR_MS = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000)  # when the store's clock begins
HOUR = 3_600_000
Row = tuple[bytes, bytes | None, int]


class LogArchive:
    """An archive in memory, put object by object."""

    def __init__(
        self, spool: Path, offsets_partitions: int = 1, offsets_seen_ms: int = NEW_YEAR_MS - 90 * HOUR
    ) -> None:
        self.store = MemoryStore()
        self.handle = Archive(self.store, Layout())
        self._spool = Spool(spool)
        record_cluster(self.handle, "c")
        self.know(OFFSETS, offsets_partitions, seen_ms=offsets_seen_ms)

    def know(
        self, topic: str, partitions: int = 1, topic_id: str = "A", seen_ms: int = NEW_YEAR_MS - 90 * HOUR
    ) -> None:
        record_topic(
            self.handle,
            topic=topic,
            topic_id=topic_id,
            cluster_id="c",
            partitions=partitions,
            configs={},
            seen_ms=seen_ms,
        )

    def put(
        self, topic: str, rows: Sequence[Row], base: int = 0, *, partition: int = 0, life: int = 0, skips: int = 0
    ) -> str:
        """Put one object, whose records follow each other behind some that are missing."""
        source = PartitionSource(topic=topic, partition=partition, life=life, topic_id="A", cluster_id="c")
        segment = OpenSegment(source, base, SegmentLimits(uncompressed_bytes=0), self._spool)
        records = [Rec(base + skips + at, at_ms, 0, key, value) for at, (key, value, at_ms) in enumerate(rows)]
        assert segment.append(frame_of(records), 0) == len(rows)
        segment.cover(base + skips + len(rows), leader_epoch=1, source_bytes=1)
        finished = segment.finish()
        key = Layout().segment_key(SegmentKey(topic=topic, life=life, partition=partition, base=base))
        self.store.put_if_absent(key, content_of(finished), finished.facts.to_metadata(), kind=ObjectKind.SEGMENT)
        return key

    def shown(self, as_of_ms: int = LAST_LONG, problems: list[str] | None = None, topics: str = ".*") -> ShownGroups:
        wanted = PositionFilter(as_of_ms=as_of_ms, groups=re.compile(".*"), topics=re.compile(topics))
        report = pytest.fail if problems is None else problems.append
        return show_groups(self.handle, wanted, IndexUse.CHECK, report)


def commit(group: str, offset: int | None, at_ms: int, topic: str = "orders", partition: int = 0) -> Row:
    value = None if offset is None else commit_value(offset)
    return position_key(group, topic, partition), value, NEW_YEAR_MS + at_ms


def orders(count: int, at_ms: int) -> list[Row]:
    return [(b"k", b"v", NEW_YEAR_MS + at_ms)] * count


def states(found: ShownGroups) -> dict[str, tuple[State, int | None, int | None]]:
    return {one.position.group: (one.position.state, one.lag, one.beyond) for one in found.positions}


def test_lags_and_distances_of_present_positions_are_shown(tmp_path: Path) -> None:
    archive = LogArchive(tmp_path)
    archive.know("orders")
    archive.put("orders", orders(10, -HOUR))
    rows = [commit("behind", 4, 0), commit("tip", 10, 1), commit("beyond", 13, 2), commit("gone", 4, 3)]
    archive.put(OFFSETS, [*rows, commit("gone", None, 4), commit("other", 1, 5, "else")])
    found = archive.shown()
    assert states(found) == {
        "behind": (State.SET, 6, None),
        "tip": (State.SET, 0, None),
        "beyond": (State.SET, 0, 3),
        "gone": (State.REMOVED, None, None),
        "other": (State.SET, None, None),
    }
    rows_told = {row["group"]: row for row in json.loads(json.dumps(groups_row(found, [])))["positions"]}
    assert rows_told["gone"]["offset"] is None
    assert rows_told["gone"]["state"] == "removed"
    assert (rows_told["other"]["topic_is"], rows_told["tip"]["topic_is"]) == ("not archived", "archived")
    assert rows_told["beyond"]["beyond_archive"] == 3
    table = "\n".join(groups_lines(found))
    assert re.search(r"beyond +orders +0 +13 +0 .*3 offsets beyond the end of the archive", table)
    assert re.search(r"gone +orders +0 +\? .*removed", table)
    assert f"{OFFSETS}-0: archived up to offset 6, of 2026-01-01T00:00:00Z" in table


def test_records_of_the_topic_show_that_it_outlived_a_removal(tmp_path: Path) -> None:
    archive = LogArchive(tmp_path)
    archive.know("orders")
    archive.put(OFFSETS, [commit("g", 4, -20 * HOUR), commit("g", None, -10 * HOUR)])
    assert states(archive.shown())["g"][0] is State.TOPIC_DELETED
    archive.put("orders", orders(10, -9 * HOUR - 1))  # an hour of doubt
    assert states(archive.shown())["g"][0] is State.TOPIC_DELETED
    archive.put("orders", orders(10, -8 * HOUR), base=10)
    assert states(archive.shown())["g"][0] is State.REMOVED


def test_records_of_a_topic_show_how_long_it_lived_before_it_was_created_again(tmp_path: Path) -> None:
    archive = LogArchive(tmp_path)
    archive.know("orders", seen_ms=NEW_YEAR_MS - 40 * HOUR)
    archive.know("orders", topic_id="B", seen_ms=NEW_YEAR_MS - 10 * HOUR)
    archive.put(OFFSETS, [commit("g", 4, -30 * HOUR), commit("g", None, -11 * HOUR), commit("g", 1, -9 * HOUR)])
    assert {one.position.state for one in archive.shown().positions} == {State.SET, State.AMBIGUOUS}
    # Records with the times of their producers may be older than the topic.
    archive.put("orders", orders(10, -12 * HOUR))
    found = {(one.position.life, one.position.state, one.lag) for one in archive.shown().positions}
    assert found == {(0, State.TOPIC_DELETED, 6), (1, State.SET, None)}


def test_what_is_gone_from_the_beginning_of_a_log_is_unknown_there(tmp_path: Path) -> None:
    archive = LogArchive(tmp_path)
    archive.put(OFFSETS, [commit("g", 4, -20 * HOUR)])
    archive.put(OFFSETS, [commit("g", 5, -10 * HOUR), commit("h", 1, -10 * HOUR)], base=1)
    problems: list[str] = []
    archive.store.delete([Layout().segment_key(SegmentKey(topic=OFFSETS, life=0, partition=0, base=0))])
    found = archive.shown(NEW_YEAR_MS - 15 * HOUR, problems)
    assert {one.position.group: one.position.state for one in found.positions} == {
        "g": State.UNKNOWN,
        "h": State.UNKNOWN,
    }
    assert {one.position.known_from_ms for one in found.positions} == {NEW_YEAR_MS - 10 * HOUR}
    assert len(problems) == 1
    (line, *_) = [line for line in groups_lines(found) if line.startswith("g ")]
    assert "known from 2025-12-31T14:00:00Z on" in line


def test_groups_that_were_idle_when_a_compacted_log_was_first_archived_are_known(tmp_path: Path) -> None:
    rows = [commit("idle", 4, -2000 * HOUR), commit("busy", 5, -HOUR)]
    for seen_ms, state in ((NEW_YEAR_MS, State.SET), (NEW_YEAR_MS - 30 * HOUR, State.UNKNOWN)):
        archive = LogArchive(tmp_path, offsets_seen_ms=seen_ms)
        archive.put(OFFSETS, rows, skips=5)
        found = states(archive.shown())
        assert (found["idle"][0], found["busy"][0]) == (state, State.SET)


def test_an_index_that_hides_what_compaction_took_is_found_out(tmp_path: Path) -> None:
    archive = LogArchive(tmp_path)
    key = archive.put(OFFSETS, [commit("idle", 4, -20 * HOUR)], skips=5)
    archive.put(OFFSETS, [commit("busy", 5, -10 * HOUR)], base=6)
    put_false_entry(archive.store, key, unserved=0)
    with pytest.raises(FalseFactsError, match="has other facts than the index tells"):
        archive.shown()


def test_what_is_gone_from_the_end_of_a_log_makes_unknown_what_lies_before(tmp_path: Path) -> None:
    """As the index remembers it, which has seen objects there."""
    archive = LogArchive(tmp_path)
    archive.put(OFFSETS, [commit("g", 4, -20 * HOUR), commit("h", 4, -10 * HOUR)])
    topic = find_topic(archive.handle, OFFSETS)
    shorter = replace(topic, partitions={0: topic.partitions[0].reaching(9, is_remembered=True)})
    problems: list[str] = []
    folds = Folds.of(archive.handle, problems.append)
    log = read_log(archive.store, shorter, 0, LAST_LONG, problems.append, folds)
    assert {one.state for one in positions_as_of([log], {})} == {State.UNKNOWN}
    earlier = read_log(archive.store, shorter, 0, NEW_YEAR_MS - 15 * HOUR, problems.append, folds)
    assert [(one.group, one.state) for one in positions_as_of([earlier], {})] == [("g", State.SET)]
    assert len(problems) == 2


def test_a_partition_of_which_nothing_can_be_read_has_a_line(tmp_path: Path) -> None:
    archive = LogArchive(tmp_path, 2)
    archive.put(OFFSETS, [commit("g", 4, 0)])
    key = archive.put(OFFSETS, [commit("h", 4, 0)], partition=1)
    stored = archive.store.objects[key]
    archive.store.objects[key] = type(stored)(
        stored.body[: len(stored.body) // 2], stored.metadata, stored.last_modified
    )
    problems: list[str] = []
    found = archive.shown(problems=problems)
    assert problems
    assert f"{OFFSETS}-1: archived up to offset 1, and nothing of it can be read" in list(groups_lines(found))
    assert groups_row(found, problems)["offsets_partitions"][1]["last_ms"] is None


def test_a_time_before_the_oldest_record_is_refused(tmp_path: Path) -> None:
    archive = LogArchive(tmp_path)
    archive.put(OFFSETS, [commit("g", 4, 0)])
    assert len(archive.shown(NEW_YEAR_MS).positions) == 1
    with pytest.raises(
        UsageError, match=r"is archived up to then: the oldest record .* is of 2026-01-01T00:00:00.000Z"
    ):
        archive.shown(NEW_YEAR_MS - 1)
    assert archive.shown(NEW_YEAR_MS, topics="other").positions == []


def test_the_later_word_of_log_and_snapshot_is_shown_with_where_it_is_from(tmp_path: Path) -> None:
    archive = LogArchive(tmp_path)
    archive.know("orders")
    archive.put(OFFSETS, [commit("g", 4, 0), commit("h", 4, 0), commit("k", 4, 0), commit("k", None, 5)])
    groups = {name: {"orders": {"0": {"offset": 7}}} for name in ("g", "k")}
    for at_ms in (NEW_YEAR_MS - HOUR, NEW_YEAR_MS + HOUR):  # of the first the log has all
        append_fact(
            archive.handle,
            "group-positions/2026-01-01",
            lambda _, at_ms=at_ms: {  # type: ignore[misc]
                "format": 1, "cluster_id": "c", "time_ms": at_ms, "duration_ms": 1, "groups": {"h": {}, **groups}, "missing": ["m"],
            },
        )  # fmt: skip

    def told(as_of_ms: int) -> list[tuple[str, int, str, str]]:
        found = archive.shown(as_of_ms)
        return [
            (one.position.group, one.position.offset, one.position.state, one.position.source)
            for one in found.positions
        ]

    assert told(NEW_YEAR_MS + HOUR - 1) == [("g", 4, "set", "log"), ("h", 4, "set", "log"), ("k", 4, "removed", "log")]
    assert told(LAST_LONG) == [
        ("g", 7, "set", "snapshot"),
        ("h", 4, "removed", "snapshot"),
        ("k", 7, "set", "snapshot"),
    ]
    lines = list(groups_lines(archive.shown()))
    assert lines[-1] == "the newest snapshot does not tell of group m: no earlier snapshot tells of it"


def test_names_that_are_no_text_stay_apart_and_are_escaped(tmp_path: Path) -> None:
    archive = LogArchive(tmp_path)
    keys = [position_key("a", "x", 0).replace(b"a", raw) for raw in (b"\xff", b"\xfe")]
    archive.put(OFFSETS, [(key, commit_value(at), NEW_YEAR_MS) for at, key in enumerate(keys)])
    found = archive.shown()
    assert len({one.position.group for one in found.positions}) == 2
    lines = list(groups_lines(found))
    assert [line.split()[0] for line in lines[1:3]] == ["\\udcfe", "\\udcff"]
    assert json.loads(json.dumps(groups_row(found, [])))["positions"][0]["group"] == "\udcfe"


def test_the_transaction_that_holds_a_log_back_is_told(tmp_path: Path) -> None:
    archive = LogArchive(tmp_path)
    archive.put(OFFSETS, [commit("g", 4, 0)])
    held = OpenTransaction(
        producer_id=7, producer_epoch=0, start_offset=1, last_timestamp_ms=NEW_YEAR_MS, transactional_id="pay"
    )
    live = {
        0: LiveLog(partition=0, end=9, last_stable=1, transactions=[held]),
        1: LiveLog(partition=1, end=5, last_stable=5),
        2: LiveLog(partition=2, end=5, last_stable=4, problem="no right"),
    }
    found = archive.shown()
    assert [line for line in groups_lines(found, live) if line.startswith("__")] == [
        (
            f"{OFFSETS}-0: archived up to offset 1, of 2026-01-01T00:00:00Z; the log ends at 9; held back at 1 by a"
            " transaction of producer id 7 (pay), begun at offset 1, last written to at 2026-01-01T00:00:00Z"
        ),
        f"{OFFSETS}-1: not archived; the log ends at 5",
        f"{OFFSETS}-2: not archived; the log ends at 5; held back at 4; by which transaction is not known: no right",
    ]
    assert groups_row(found, [], live)["live_offsets_partitions"][0]["transactions"][0]["transactional_id"] == "pay"
    assert "live_offsets_partitions" not in groups_row(found, [])


class TwoClusters:
    """A cluster that was made anew under the same name, with the same topics: the archive has a second life of each."""

    DISASTER = -10 * HOUR  # against New Year; a backup sees the new topics five hours later
    SEEN = -5 * HOUR

    def __init__(self, folder: Path, partitions: int = 1) -> None:
        self.archive = archive = LogArchive(folder, partitions, offsets_seen_ms=NEW_YEAR_MS - 90 * HOUR)
        archive.know("orders")
        archive.put("orders", orders(900, -20 * HOUR))
        for topic in ("orders", OFFSETS):
            archive.know(topic, topic_id="B", seen_ms=NEW_YEAR_MS + self.SEEN)
        archive.put("orders", orders(10, -HOUR), life=1)
        old = [commit("billing", 300, -30 * HOUR), commit("gone", 5, -29 * HOUR), commit("gone", None, -28 * HOUR)]
        archive.put(OFFSETS, [*old, commit("billing", 480, self.DISASTER - 1000)])
        archive.put(OFFSETS, [commit("billing", 7, self.SEEN - HOUR), commit("audit", 2, -HOUR)], life=1)

    def told(self, at_ms: int | None = None) -> set[tuple[str, int, int, str]]:
        found = self.archive.shown(LAST_LONG if at_ms is None else NEW_YEAR_MS + at_ms)
        return {
            (one.position.group, one.position.life, one.position.offset, one.position.state) for one in found.positions
        }


def test_a_time_before_a_new_cluster_is_told_by_the_log_of_the_old_one(tmp_path: Path) -> None:
    clusters = TwoClusters(tmp_path)
    gone = ("gone", 0, 5, "removed")
    assert clusters.told(-29 * HOUR) == {("billing", 0, 300, "set"), ("gone", 0, 5, "set")}
    assert clusters.told(clusters.DISASTER) == {("billing", 0, 480, "set"), gone}
    assert clusters.told(clusters.SEEN - HOUR - 1) == {("billing", 0, 480, "set"), gone}
    # The new cluster was there before a backup saw it.
    ended = ("billing", 0, 480, "topic deleted")
    assert clusters.told(clusters.SEEN - HOUR) >= {ended, gone}
    assert clusters.told() == {ended, gone, ("billing", 1, 7, "set"), ("audit", 1, 2, "set")}


def test_a_cluster_that_is_gone_after_a_minute_tells_as_much(tmp_path: Path) -> None:
    """Topics that were seen first in one survey came together, however short the cluster before them lived."""
    archive, second = LogArchive(tmp_path, offsets_seen_ms=NEW_YEAR_MS), 1000
    archive.know("orders", seen_ms=NEW_YEAR_MS + 10)
    for number, topic in enumerate(("orders", "payments", OFFSETS)):
        archive.know(topic, topic_id="B", seen_ms=NEW_YEAR_MS + 20 * second + number * 2 * second)
    archive.put("orders", orders(10, 0))
    archive.put("orders", orders(10, 21 * second), life=1)
    archive.put(OFFSETS, [commit("billing", 480, 10 * second)])
    archive.put(OFFSETS, [commit("billing", 7, 18 * second)], life=1)

    def told(at_ms: int) -> set[tuple[int, int, str]]:
        found = archive.shown(at_ms).positions
        return {(one.position.life, one.position.offset, one.position.state) for one in found}

    assert told(NEW_YEAR_MS + 15 * second) == {(0, 480, "set")}
    assert told(LAST_LONG) == {(0, 480, "topic deleted"), (1, 7, "set")}


def test_each_life_of_the_offsets_topic_has_its_lines(tmp_path: Path) -> None:
    found = TwoClusters(tmp_path, 2).archive.shown()
    lines = [line.partition(",")[0] for line in groups_lines(found, {}) if line.startswith("__")]
    assert lines == [f"{OFFSETS}-0: archived up to offset 4", f"{OFFSETS}@1-0: archived up to offset 2"]
    assert [(row["life"], row["next"]) for row in groups_row(found, [])["offsets_partitions"]] == [(0, 4), (1, 2)]


def test_a_topic_that_is_older_than_its_offsets_topic_was_there_all_the_time(tmp_path: Path) -> None:
    """Somebody deleted `__consumer_offsets` alone: positions went, and no topic did."""
    archive = LogArchive(tmp_path)
    archive.know("orders")
    archive.know(OFFSETS, topic_id="B", seen_ms=NEW_YEAR_MS - 5 * HOUR)
    archive.put("orders", orders(10, 0))
    archive.put(OFFSETS, [commit("kept", 3, -20 * HOUR), commit("lost", 4, -20 * HOUR)])
    archive.put(OFFSETS, [commit("kept", 8, -HOUR)], life=1)
    found = {(one.position.group, one.position.offset, one.position.state) for one in archive.shown().positions}
    assert found == {("kept", 8, State.SET), ("lost", 4, State.REMOVED)}


def test_a_new_cluster_of_which_no_commit_is_archived_yet_takes_no_position_from_the_old_one(tmp_path: Path) -> None:
    archive = LogArchive(tmp_path)
    archive.know("orders")
    archive.put("orders", orders(10, -20 * HOUR))
    archive.put(OFFSETS, [commit("billing", 3, -6 * HOUR)])
    for topic in ("orders", OFFSETS):
        archive.know(topic, topic_id="B", seen_ms=NEW_YEAR_MS - 5 * HOUR)
    archive.put("orders", orders(10, -HOUR), life=1)
    assert {(one.position.life, one.position.offset) for one in archive.shown().positions} == {(0, 3)}
