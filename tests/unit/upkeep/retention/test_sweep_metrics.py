"""The metrics of a sweep, as Prometheus' own parser reads the file."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from archiver.archive.notes.sweeps import SweepReport, SweptTopic
from archiver.errors import ArchiverError, UsageError
from archiver.process.output.job_metrics import check_metrics_file, job_families, write_metrics_file
from archiver.upkeep.retention.sweeping.sweep_metrics import SWEEP_METRICS, sweep_families

TOPIC = SweptTopic(objects=3, records=30, bytes=300, deleted_because={"old": 3}, kept_because={}, stopped="")
REPORT = SweepReport(
    begun_ms=1_700_000_000_500,
    topics={"orders": TOPIC, 'od"d\\': replace(TOPIC, objects=0, records=0, bytes=0, stopped="a hold was added")},
    kept={"gone": "it was created again"},
    refused=2,
    problems=["denied", "denied"],
    took_ms=4_500,
    waiting=["orders"],
    failed=1,
)


def write_metrics(path: Path, report: SweepReport) -> None:
    write_metrics_file(path, sweep_families(report))


def values_in(path: Path) -> dict[str, dict[str, float]]:
    return {
        family.name: {",".join(sample.labels.values()): sample.value for sample in family.samples}
        for family in text_string_to_metric_families(path.read_text(encoding="utf-8"))
    }


def test_the_file_tells_of_the_sweep(tmp_path: Path) -> None:
    write_metrics(tmp_path / "sweep.prom", REPORT)
    found = values_in(tmp_path / "sweep.prom")
    assert list(found) == [one.name for one in SWEEP_METRICS]
    assert {name.removeprefix("archiver_sweep_"): value for name, value in found.items()} == {
        "last_run_timestamp_seconds": {"": 1_700_000_000.5},
        "duration_seconds": {"": 4.5},
        "deleted_objects": {"orders": 3, 'od"d\\': 0},
        "deleted_records": {"orders": 30, 'od"d\\': 0},
        "deleted_bytes": {"orders": 300, 'od"d\\': 0},
        "topics": {"swept": 2, "waiting": 1, "stopped": 1, "kept": 1},
        "refused_deletes": {"": 2},
        "failures": {"": 1},
    }


def test_who_reads_sees_a_whole_file_of_one_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "sweep.prom"
    write_metrics(path, REPORT)
    before = path.read_bytes()

    def fail(*_: object) -> None:
        assert path.read_bytes() == before
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", fail)
        with pytest.raises(ArchiverError, match=r"was not written: .*No space left on device; the job itself is done$"):
            write_metrics(path, replace(REPORT, failed=0))
    assert [one.name for one in tmp_path.iterdir()] == ["sweep.prom"]
    assert path.read_bytes() == before
    write_metrics(path, replace(REPORT, failed=0))
    assert values_in(path)["archiver_sweep_failures"] == {"": 0}


def test_a_folder_that_is_missing_is_told_before_the_sweep(tmp_path: Path) -> None:
    check_metrics_file(tmp_path / "sweep.prom", "retention")
    check_metrics_file(Path("sweep.prom"), "retention")
    with pytest.raises(UsageError, match=r"^--metrics-file .*/none/sweep\.prom: there is no folder .*/none$"):
        check_metrics_file(tmp_path / "none" / "sweep.prom", "retention")


def test_a_failed_run_keeps_the_last_success(tmp_path: Path) -> None:
    path = tmp_path / "verify.prom"
    told = []
    for now_s, exit_code in ((100, 3), (200, 0), (300, 3), (400, 1), (500, 0)):
        write_metrics_file(path, job_families(path, "verify", now_s=now_s, seconds=1.5, exit_code=exit_code))
        found = values_in(path)
        told.append(found["archiver_job_last_success_timestamp_seconds"].get("verify"))
        assert found["archiver_job_last_run_timestamp_seconds"] == {"verify": now_s}
        assert found["archiver_job_exit_code"] == {"verify": exit_code}
        assert found["archiver_job_duration_seconds"] == {"verify": 1.5}
    assert told == [None, 200, 200, 200, 500]


@pytest.mark.parametrize("content", [b"\xff", b"{}", b'archiver_job_last_success_timestamp_seconds{kind="ls"} 7\n'])
def test_another_file_has_no_last_success(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.prom").write_bytes(content)
    families = job_families(tmp_path / "a.prom", "verify", now_s=9, seconds=1, exit_code=1)
    write_metrics_file(tmp_path / "a.prom", families)
    assert values_in(tmp_path / "a.prom")["archiver_job_last_success_timestamp_seconds"] == {}
