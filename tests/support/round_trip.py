"""An archive in a bucket of its own, and the way there and back in this process: all real, but for Spark's engine."""

import contextlib
import io
import os
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
import yaml

import archiver.spark.purge_proof
import archiver.spark.repartition
import archiver.spark.restore_job
import archiver.spark.session.spark_session
import archiver.spark.session.tasks
from archiver.backup.partition.feed import PartitionReport
from archiver.backup.service.run_backup import run_backup
from archiver.cli.main import main
from archiver.config.model import ArchiverConfig, TargetConfig
from archiver.restore.plan.request import RestoreRequest, parse_renames
from archiver.restore.report.restore_report import RestoreResult
from archiver.spark.restore import run_restore_job
from archiver.spark.verify import VerifyResult, run_verify
from archiver.upkeep.object_check import Level
from tests.support.brokers import Bucket
from tests.support.forked_commands import start_command
from tests.support.processes import end_of

Task = TypeVar("Task")
Report = TypeVar("Report")

ALL_OF_LONG = str(2**63 - 1)
# A topic that keeps whatever is written to it: any timestamp, any age, large records.
KEEP_ALL = {
    "retention.ms": "-1",
    "message.timestamp.after.max.ms": ALL_OF_LONG,
    "message.timestamp.before.max.ms": ALL_OF_LONG,
    "max.message.bytes": str(24 * 1024 * 1024),
}


@dataclass(frozen=True, slots=True)
class ArchiveSite:
    """One archive, without a prefix, and a folder for spool and configuration files."""

    bucket: Bucket
    folder: Path

    def config(self, bootstrap: str, include: Iterable[str], **backup: object) -> dict[str, Any]:
        """archive.yaml as values; `backup` are keys of its section `backup.segment`."""
        return {
            "kafka": {"bootstrap.servers": bootstrap},
            "storage": {"url": self.bucket.url, "endpoint": self.bucket.s3.endpoint},
            "topics": {"include": list(include)},
            # What other tests' groups commit must not turn up in this one's archive.
            "backup": {"groups": "off", "spool": {"dir": str(self.folder / "spool")}, "segment": dict(backup)},
        }

    def back_up(self, bootstrap: str, *include: str, **segment: object) -> dict[tuple[str, int], PartitionReport]:
        config = ArchiverConfig.model_validate(self.config(bootstrap, include, **segment))
        found, _ = run_backup(config, lambda _: None)
        return {(report.source.topic, report.source.partition): report for report in found.partitions}

    def back_up_with(self, bootstrap: str, topic: str, **backup: object) -> dict[tuple[str, int], PartitionReport]:
        """The same of one topic; `backup` are keys of its section `backup`."""
        config = self.config(bootstrap, [topic])
        found, _ = run_backup(
            ArchiverConfig.model_validate(config | {"backup": config["backup"] | backup}), lambda _: None
        )
        return {(report.source.topic, report.source.partition): report for report in found.partitions}

    def restore(
        self,
        bootstrap: str,
        *,
        topics: str | None = None,
        rename: Sequence[str] = (),
        restore_id: str | None = None,
        **asked: Any,  # noqa: ANN401 - of a RestoreRequest
    ) -> RestoreResult:
        """Run the restore job with its tasks one after the other in this thread."""
        config = ArchiverConfig.model_validate(self.config(bootstrap, ()))
        return run_restore_job(
            config.storage,
            TargetConfig(kafka={"bootstrap.servers": bootstrap}),
            RestoreRequest(topics=topics, renames=parse_renames(rename), **asked),
            restore_id=restore_id,
            notice=lambda _: None,
        )

    def verify(
        self, bootstrap: str, include: Iterable[str], level: Level = Level.LISTING, *, against_kafka: bool = False
    ) -> VerifyResult:
        config = ArchiverConfig.model_validate(self.config(bootstrap, include))
        return run_verify(config, level, against_kafka=against_kafka)

    def write_config(self, bootstrap: str, *include: str, **segment: object) -> Path:
        path = self.folder / "archive.yaml"
        path.write_text(yaml.safe_dump(self.config(bootstrap, include, **segment)))
        return path

    def write_target(self, bootstrap: str) -> Path:
        path = self.folder / "target.yaml"
        path.write_text(yaml.safe_dump({"kafka": {"bootstrap.servers": bootstrap}}))
        return path

    def command(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """Start the command, in a process group of its own, in the folder that has archive.yaml."""
        return start_command(
            arguments,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env=environment_of(self.bucket) | environment,
        )

    def run(self, *arguments: str, timeout_s: float = 90.0) -> subprocess.CompletedProcess[str]:
        return end_of(self.command(*arguments), timeout_s)

    def run_within(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The same in this process: it starts no Spark, and no interpreter, which takes more than a second of CPU."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = main(arguments)
            except SystemExit as done:  # of what was mistyped
                code = int(done.code or 0)
        return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def run_here(_spark: object, tasks: Sequence[Task], run: Callable[[Task], Report], *_: object) -> list[Report]:
    return [run(task) for task in tasks]


def environment_of(bucket: Bucket) -> dict[str, str]:
    hidden = ("AWS_", "ARCHIVER_")
    kept = {name: text for name, text in os.environ.items() if not name.startswith(hidden)}
    return {**kept, "AWS_ACCESS_KEY_ID": bucket.s3.access_key, "AWS_SECRET_ACCESS_KEY": bucket.s3.secret_key}


@contextlib.contextmanager
def archive_site(bucket: Bucket, folder: Path) -> Iterator[ArchiveSite]:
    """For as long as it lasts, this process has the bucket's credentials (they come by the AWS chain alone) and no Spark."""
    with without_spark() as patch:
        for name, text in environment_of(bucket).items():
            if name.startswith("AWS_"):
                patch.setenv(name, text)
        yield ArchiveSite(bucket, folder)


@contextlib.contextmanager
def without_spark() -> Iterator[pytest.MonkeyPatch]:
    """Jobs of ours run their tasks one after the other in this thread."""
    with pytest.MonkeyPatch.context() as patch:
        spark = SimpleNamespace(defaultParallelism=1, master="local[1]")
        patch.setattr(
            archiver.spark.session.spark_session,
            "open_context",
            lambda _name, **_: contextlib.nullcontext(lambda: spark),
        )
        for module in (
            archiver.spark.purge_proof,
            archiver.spark.restore_job,
            archiver.spark.session.tasks,
            archiver.spark.repartition,
        ):
            patch.setattr(module, "run_on_spark", run_here)
        yield patch


def errors_of(reports: Mapping[tuple[str, int], PartitionReport]) -> dict[tuple[str, int], str]:
    return {which: str(report.error) for which, report in reports.items() if report.error is not None}
