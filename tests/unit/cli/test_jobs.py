"""The metrics file of jobs: which commands write one, and that docs/metrics.md names all that is in it."""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from archiver.cli.commands import build_parser
from archiver.cli.jobs import add_job
from archiver.errors import ArchiverError, UsageError
from tests.support.metrics_tables import PAGE

OF_JOBS = PAGE.read_text(encoding="utf-8").partition("## Of jobs")[2].partition("\n## ")[0]


def commands_with(option: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    """Names of commands that have an option, each without `archiver`."""
    if option in parser._option_string_actions:
        yield parser.prog.partition(" ")[2]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for one in action.choices.values():
                yield from commands_with(option, one)


def test_the_page_names_the_commands() -> None:
    first = OF_JOBS.partition(" writes these")[0]
    named = {name.removesuffix(" --until-end") for name in re.findall(r"`([a-z][^`]*)`", first)}
    found = set(commands_with("--metrics-file", build_parser()))
    assert {"import" if name.startswith("import ") else name for name in found} == named


def written(path: Path, exit_code: int | None) -> dict[str, dict[str, float]]:
    """The samples by metric and job after a run with this exit code; None: one that raises."""

    def run(_: argparse.Namespace) -> int:
        if exit_code is None:
            raise ArchiverError("no")
        return exit_code

    parser = argparse.ArgumentParser(prog="archiver groups fold")
    add_job(parser, run)
    options = parser.parse_args(["--metrics-file", str(path)])
    if exit_code is None:
        with pytest.raises(ArchiverError):
            options.command(options)
    else:
        assert options.command(options) == exit_code
    families = text_string_to_metric_families(path.read_text(encoding="utf-8"))
    return {one.name: {sample.labels["kind"]: sample.value for sample in one.samples} for one in families}


def test_a_written_file_has_the_metrics_of_the_page(tmp_path: Path) -> None:
    path = tmp_path / "job.prom"
    found = written(path, 0)
    assert sorted(found) == sorted(re.findall(r"^\| `(archiver_\w+)`", OF_JOBS, re.MULTILINE))
    assert found["archiver_job_exit_code"] == {"groups fold": 0}
    failed = written(path, None)
    assert failed["archiver_job_exit_code"] == {"groups fold": 1}
    success = "archiver_job_last_success_timestamp_seconds"
    assert failed[success] == found[success]


def test_a_file_of_another_job_is_refused(tmp_path: Path) -> None:
    """Its series would vanish, and with them the alert on the age of its last success."""
    path = tmp_path / "job.prom"
    written(path, 0)
    before = path.read_bytes()
    parser = argparse.ArgumentParser(prog="archiver copy")
    add_job(parser, lambda _: 0)
    for file, why in ((path, "has the metrics of groups fold"), (tmp_path, "is a folder")):
        options = parser.parse_args(["--metrics-file", str(file)])
        with pytest.raises(UsageError, match=why):
            options.command(options)
    assert path.read_bytes() == before
