"""The metrics of a sweep, as Prometheus' own parser reads the file."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from archiver.archive.notes.sweeps import SweepReport, SweptTopic
from archiver.errors import ArchiverError, UsageError
from archiver.upkeep.retention.sweeping.sweep_metrics import SWEEP_METRICS, check_metrics_file, write_metrics

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
        with pytest.raises(
            ArchiverError, match=r"was not written: .*No space left on device; the sweep itself is done$"
        ):
            write_metrics(path, replace(REPORT, failed=0))
    assert [one.name for one in tmp_path.iterdir()] == ["sweep.prom"]
    assert path.read_bytes() == before
    write_metrics(path, replace(REPORT, failed=0))
    assert values_in(path)["archiver_sweep_failures"] == {"": 0}


def test_a_folder_that_is_missing_is_told_before_the_sweep(tmp_path: Path) -> None:
    check_metrics_file(tmp_path / "sweep.prom")
    check_metrics_file(Path("sweep.prom"))
    with pytest.raises(UsageError, match=r"^--metrics-file .*/none/sweep\.prom: there is no folder .*/none$"):
        check_metrics_file(tmp_path / "none" / "sweep.prom")
