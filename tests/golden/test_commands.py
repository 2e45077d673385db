"""What commands print with `--format json`, over one archive: the files of `commands`, which tell of each change of a key or a value.

Checksums, stored sizes, durations and sentences are left out. ARCHIVER_WRITE_GOLDEN=1 writes the files again.
"""

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

import archiver.archive.format.handle
import archiver.spark.verify
import archiver.upkeep.inspection
from archiver.archive.format.control import encode_fact
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout, SegmentKey
from archiver.archive.notes.cluster_metadata import ClusterPart, NotedPart
from archiver.archive.notes.cluster_topics import ArchivingState, IncludeEntry, TopicRow, TopicsSurvey
from archiver.archive.notes.holds import Hold, add_hold
from archiver.archive.notes.run_notes import Outcome, RunKind, RunNote, put_run_note
from archiver.archive.notes.sweeps import append_report
from archiver.archive.notes.topic_changes import record_branch, record_topic
from archiver.archive.notes.topics import Branch
from archiver.archive.segments.segment_writer import OpenSegment
from archiver.archive.segments.spool import Spool
from archiver.backup.compacted.clearing.alarms import alarms_in
from archiver.backup.partition.feed import PartitionReport
from archiver.backup.partition.partition_writer import Written
from archiver.backup.service.run_service import ServiceResult
from archiver.backup.service.until_end import BackupReport
from archiver.cli.backup import backup_row, service_row
from archiver.cli.cluster import diff_row, noted_row
from archiver.cli.compacted_status import status_row
from archiver.cli.copy import copy_row
from archiver.cli.groups_applied import applied_row
from archiver.cli.groups_apply import groups_row
from archiver.cli.main import main
from archiver.cli.restore_preview import preview_row
from archiver.cli.restore_report import restore_row
from archiver.cli.retention import retention_row
from archiver.cli.status import status_row as runs_row
from archiver.cli.topics import topics_row
from archiver.errors import DroppedError, KafkaError
from archiver.groups.target.application_decisions import PositionOutcome
from archiver.kafka.brokers.cluster import OpenTransaction
from archiver.kafka.topics.cluster_parts import Part
from archiver.process.values.signed_json import sign
from archiver.restore.plan.estimate import Effort
from archiver.restore.plan.request import Existing
from archiver.restore.plan.task import TaskReport
from archiver.restore.report.preview import RestorePreview
from archiver.restore.report.restore_report import RestoreResult, TopicReport
from archiver.restore.targets.target_configs import Finish
from archiver.spark.drill import Drill
from archiver.store.port import ObjectKind
from archiver.upkeep.cluster_changes import Change, ClusterDiff, RowState
from archiver.upkeep.copying import CopyResult
from archiver.upkeep.run_status import RunStatus, read_status
from tests.support.frames import frame_of
from tests.support.memory_store import MemoryStore
from tests.support.records import Rec
from tests.support.segments import NO_LIMIT, SOURCE, content_of
from tests.unit.backup.compacted.test_status import read as compacted_status
from tests.unit.backup.compacted.test_status import turned
from tests.unit.cli.test_groups_applied import group, report
from tests.unit.cli.test_groups_apply import restored
from tests.unit.cli.test_retention import result_of, swept_debris
from tests.unit.cli.test_retention_last import REPORT
from tests.unit.restore.test_group_restore import planned, position, topic_of
from tests.unit.restore.test_plan_check import WHOLE

HERE: Final = Path(__file__).parent / "commands"
LAYOUT: Final = Layout("p")
VOLATILE: Final = re.compile(r"(sha256|digest|writer|seconds|stored_bytes|^size)$")
MOST_ROWS, MOST_WORDS = 8, 4
QUOTA: Final = ('{"user": null}', "producer_byte_rate", "1.0")


class Shop:
    """Topic `orders` in two lives, with a gap, an object over others and a stranger; `idle` without a record; a hold, a sweep, a snapshot."""

    def __init__(self, spool: Path) -> None:
        self.archive, self._spool = Archive(MemoryStore(), LAYOUT), spool
        for topic in ("orders", "idle"):
            record_topic(self.archive, topic=topic, topic_id=SOURCE.topic_id, cluster_id="c", partitions=2, configs={})
        for base in (0, 10, 30):
            self.put(1, base)
        self.put(0, 0, until=20)
        self.put(0, 0, named_next=20)
        branch = Branch(offset=35, leader_epoch=4, seen_ms=1_700_000_000_000)
        record_branch(self.archive, topic="orders", partition=1, parent=0, branch=branch)
        self.put(1, 35, life=1)
        self._put("topics/README", b"")
        hold = Hold(name="audit", topics="ord.*", from_ms=1_000, until_ms=None, reason="law", by="us", added_ms=2_000)
        add_hold(self.archive, hold)
        append_report(self.archive, REPORT)
        at = {"offset": 7, "leader_epoch": 3, "metadata": "m"}
        groups = {"billing": {"orders": {"1": at}}, "idle": {}}
        fact = {"format": 1, "cluster_id": "c", "time_ms": 1_767_225_600_000, "groups": groups, "missing": ["secret"]}
        self._put("control/group-positions/2026-01-01/000000.json", encode_fact(fact))

    def put(
        self, partition: int, base: int, *, until: int | None = None, life: int = 0, named_next: int | None = None
    ) -> None:
        source = replace(SOURCE, partition=partition, life=life)
        segment = OpenSegment(source, base, NO_LIMIT, Spool(self._spool))
        records = [Rec(base + at, 1_000 * (base + at), 0, b"k%d" % at, None if at else b"v") for at in (0, 5)]
        assert segment.append(frame_of(records), 0) == len(records)
        segment.cover(until or named_next or base + 10, leader_epoch=4, source_bytes=1000)
        finished = segment.finish()
        key = SegmentKey(topic="orders", life=life, partition=partition, base=base, next=named_next)
        self._put(LAYOUT.segment_key(key).removeprefix("p/"), content_of(finished), finished.facts.to_metadata())

    def _put(self, key: str, body: bytes, metadata: Mapping[str, str] | None = None) -> None:
        assert self.archive.store.put_if_absent(f"p/{key}", body, metadata or {}, kind=ObjectKind.FACT)


TASKS: Final = (
    TaskReport(
        target_topic="orders.back", partition=0, records=5, bytes=50, already_there=2, digest=7, target_digest=7
    ),
    TaskReport(target_topic="orders.back", partition=1, error="orders.back-1: someone else wrote", exit_code=3),
    TaskReport(target_topic="orders.back", partition=2, missing=("offsets 3-5 in an object: damaged",)),
)
TOPIC: Final = TopicReport(
    source="orders", life=1, target="orders.back", partitions=TASKS, retention_command="kafka-configs ...", is_finished=False,
    finish=Finish(oversized=1),
)  # fmt: skip
PREVIEW: Final = RestorePreview(
    restore_id="r",
    topics=[WHOLE],
    begun=[],
    existing=["copy"],
    policy=Existing.APPEND,
    is_partial=False,
    refused=["refused"],
    damage=["damaged"],
    notes=["noted"],
    doubts=["doubted"],
    effort=Effort(gets=1, puts=2, batches=3, seconds=4.0),
)
ENTRY: Final = IncludeEntry(entry="ord.*", place="topics.include[0]")
STANDING: Final = TopicRow(
    topic="orders",
    partitions=3,
    standing=ArchivingState.GONE,
    why="it was deleted",
    include=[ENTRY],
    exclude=[],
    in_archive=True,
)
PARTITION: Final = PartitionReport(
    source=SOURCE,
    from_offset=3,
    position=9,
    end_offset=10,
    written=Written(records=5, payload_bytes=50, stored_bytes=40, segments=1, put_retries=2),
    open_transactions=(
        OpenTransaction(producer_id=7, producer_epoch=0, start_offset=9, last_timestamp_ms=5, transactional_id="t"),
    ),
    error=KafkaError("broke"),
    dropped_records=1,
)
DRILL = Drill(
    drill="drill-0123456789ab",
    begun_ms=1_000_000,
    from_ms=900_000,
    archive="s3://bucket/prefix",
    target_cluster_id="c",
    topics={"orders": {"scratch": "s", "records": 3, "digests": {"0": "0" * 16}, "newest_ms": 999_000}},
    groups={"positions": 2, "compared": 1},
    problems={"orders: the sample is empty": 3},
)


def status_of_runs() -> RunStatus:
    """A backup that is late, a sweep, and a restore that was killed."""
    archive = Archive(MemoryStore(), LAYOUT)
    behind = {"durable_through_ms": 1_000, "partitions": 6, "problems": ("cannot reach Kafka",), "gone": ("payments",)}
    runs = (
        RunNote(kind=RunKind.BACKUP, name="p", outcome=Outcome.RUNNING, version="1", **behind),  # type: ignore[arg-type]
        RunNote(kind=RunKind.RETENTION, outcome=Outcome.DONE, version="1", holds=("law",), limits={"topics": "o.*"}),
        RunNote(kind=RunKind.RESTORE, name="mine", outcome=Outcome.RUNNING, version="1"),
    )
    for run in runs:
        assert put_run_note(archive, run) == ""
    return read_status(archive, 0, {"": 3_600_000})


ROWS: Final[Mapping[str, Callable[[], object]]] = {
    "groups apply": lambda: groups_row(
        restored(
            planned([position("g"), position("g", topic="other")], topic_of()),
            report(group(PositionOutcome.SET)),
            "a problem",
        )
    ),
    "backup": lambda: backup_row(
        BackupReport(partitions=[PARTITION], problems=[KafkaError("broke")], left=[("keys", 3)]), 1.0
    ),
    "backup service": lambda: service_row(ServiceResult(records=7, dropped=[DroppedError("held", records=3)])),
    "cluster show": lambda: noted_row(Part.QUOTAS, NotedPart(ClusterPart(part=Part.QUOTAS, rows=(QUOTA,)), 1_000)),
    "cluster diff": lambda: diff_row(
        ClusterDiff([Change(Part.QUOTAS, QUOTA, one, "2.0") for one in RowState], ["u"]), is_applied=False
    ),
    "compacted status": lambda: status_row(status := compacted_status(turned()[0]), list(alarms_in(status))),
    "groups rollback": lambda: applied_row(
        report(
            group(*PositionOutcome),
            group(error=KafkaError("broke"), name="h"),
            group(refusal="no", name="i"),
            expiry_ms=5,
        )
    ),
    "restore dry run": lambda: preview_row(PREVIEW),
    "restore": lambda: restore_row(RestoreResult(restore_id="r", seconds=2.0, filling_seconds=1.0, topics=[TOPIC])),
    "status": lambda: runs_row(status_of_runs(), ["audit"]),
    "topics": lambda: topics_row(TopicsSurvey(rows=[STANDING], unmatched=[ENTRY])),
    "retention": lambda: retention_row(replace(result_of(), digest="d" * 64)),
    "retention of control objects": lambda: retention_row(swept_debris()),
    "copy": lambda: copy_row(CopyResult(objects=3, bytes=900), 1.0),
    "drill": lambda: sign(DRILL.report | {"version": "0.1.0"}, None),
}
KEY: Final = LAYOUT.segment_key(SegmentKey(topic="orders", partition=1, base=10))
COMMANDS: Final[Mapping[str, Sequence[str]]] = {
    "ls": ("ls",),
    "ls topic": ("ls", "orders"),
    "ls segments": ("ls", "orders", "--segments"),
    "inspect": ("inspect", KEY),
    "verify": ("verify",),
    "hold list": ("hold", "list"),
    "groups show": ("groups", "show"),
    "retention last": ("retention", "--last"),
    "retention history": ("retention", "--history"),
    "config show": ("config", "show"),
}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    return Shop(tmp_path_factory.mktemp("spool"))


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_prints_what_it_printed(
    name: str, shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = MemoryStore()
    copy.objects = dict(shop.archive.store.objects)  # type: ignore[attr-defined]
    for module in (archiver.archive.format.handle, archiver.spark.verify, archiver.upkeep.inspection):
        monkeypatch.setattr(module, "open_archive", lambda _: Archive(copy, LAYOUT))
    config = tmp_path / "archive.yaml"
    config.write_text("{storage.url: s3://bucket/p, kafka.bootstrap.servers: b:1, topics.include: [orders, idle]}")
    exit_code = main([*COMMANDS[name], "-c", str(config), "--format", "json"])
    compare(name, {"exit_code": exit_code, "stdout": json.loads(capsys.readouterr().out)})


@pytest.mark.parametrize("name", ROWS)
def test_a_result_is_spelled_as_it_was(name: str) -> None:
    """Of commands that ask a cluster, or start Spark."""
    compare(name, json.loads(json.dumps(ROWS[name]())))


def compare(name: str, told: object) -> None:
    path, content = (
        HERE / f"{name.replace(' ', '-')}.json",
        json.dumps(steady(told), indent=1, ensure_ascii=False) + "\n",
    )
    if os.environ.get("ARCHIVER_WRITE_GOLDEN"):
        path.write_text(content, encoding="utf-8")
    assert content == path.read_text(encoding="utf-8")


def steady(told: object, name: str = "") -> object:
    """Leave out what differs from run to run, and words that other tests compare."""
    match told:
        case dict():
            return {key: steady(value, key) for key, value in told.items()}
        case list():
            rows: list[object] = [steady(one, name) for one in told[:MOST_ROWS]]
            return rows if len(told) <= MOST_ROWS else [*rows, f"({len(told)} in all)"]
        case str() if len(told.split()) > MOST_WORDS:
            return "(a sentence)"
        case float() | int() | str() if isinstance(told, float) or VOLATILE.search(name):
            return f"({name})"
        case _:
            return told
