"""The examples in `infra/`: schedules of retention sweeps, and bucket policies. What they run, and what they allow, is what there is."""

import ast
import configparser
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from archiver.cli.commands import build_parser
from tests.support.brokers import REPOSITORY
from tests.support.rights_stage import IN_SECOND, IN_STORE
from tests.support.rights_table import COMMANDS, Right

INFRA = REPOSITORY / "infra"
PROGRAM = "/opt/archiver/bin/archiver"  # docs/install.md
UNITS = [INFRA / "retention" / f"archiver-retention.{kind}" for kind in ("service", "timer")]
# A right to put below the prefix, or below control/, is given for the streams that the role writes.
PUT_BY_WRITERS = ["README.txt"] + [
    f"control/{stream}/" for stream in ("cluster", "index", "present", "probe", "runs", "starts", "topics")
]
PUT_BY = {
    "backup": ["topics/", "control/cluster-metadata/", "control/group-positions/", *PUT_BY_WRITERS],
    "compacted": ["compacted/", "control/moments/", "control/roles/", *PUT_BY_WRITERS],
}
PUT_BY_SWEEPS = ("group-folds", "policies", "runs", "swept", "sweeps")
DELETED_BY_SWEEPS = ("group-positions", "index", "restores", "runs", "sweeps", "swept")
DELETED_BY_DRILLS = ("drills/", "restores/drill-")
STREAMS = {
    "sweep": {
        Right.PUT_SWEEPS: [("s3:PutObject", f"control/{stream}/") for stream in PUT_BY_SWEEPS],
        Right.DELETE_CONTROL: [("s3:DeleteObject", f"control/{stream}/") for stream in DELETED_BY_SWEEPS],
    },
    "drill": {Right.DELETE_CONTROL: [("s3:DeleteObject", f"control/{below}") for below in DELETED_BY_DRILLS]},
}
SECOND = "the second "  # of a copy
ROLES = {
    "backup": ["`backup`", "`backup --until-end`"],
    "compacted": ["`compacted run`"],
    "copy": ["`copy`"],
    "drill": ["`drill`"],
    "restore": ["`restore`"],
    "sweep": ["`retention`"],
}


def assert_runs_a_sweep(command: str) -> None:
    words = shlex.split(command)
    start = 1 + next((at for at, word in enumerate(words) if Path(word).name == "archiver"), -1)
    assert words[start] == "retention"
    build_parser("retention").parse_args(words[start:])


def section_of(unit: str, section: str) -> configparser.SectionProxy:
    parsed = configparser.ConfigParser(interpolation=None, strict=False)
    parsed.optionxform = str  # type: ignore[assignment,method-assign]
    parsed.read(INFRA / "retention" / unit, encoding="utf-8")
    return parsed[section]


def test_the_systemd_units_start_a_sweep() -> None:
    service = section_of("archiver-retention.service", "Service")
    assert service["ExecStart"].startswith(f"{PROGRAM} ")  # systemd's PATH does not have it
    assert_runs_a_sweep(service["ExecStart"])
    assert section_of("archiver-retention.timer", "Timer")["Persistent"] == "yes"


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_systemd_takes_the_units(unit: Path, tmp_path: Path) -> None:
    systemd = shutil.which("systemd-analyze")
    if systemd is None:  # a machine without systemd will not run them either
        assert unit.read_text(encoding="utf-8").count("[Unit]") == 1
        return
    for one in UNITS:
        copy = tmp_path / one.name
        copy.write_text(one.read_text(encoding="utf-8").replace(PROGRAM, "/usr/bin/env"), encoding="utf-8")
    done = subprocess.run(
        [systemd, "verify", "--man=no", str(tmp_path / unit.name)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_crontab_starts_a_sweep() -> None:
    lines = (INFRA / "retention" / "crontab").read_text(encoding="utf-8").splitlines()
    (line,) = (one for one in lines if one[:1].isdigit())
    *times, user, command = line.split(maxsplit=6)
    assert all(re.fullmatch(r"[0-9]+|\*", one) for one in times)
    assert (len(times), user) == (5, "archiver")
    assert command.startswith(f"{PROGRAM} ")  # nor has that of cron
    assert_runs_a_sweep(command)


def test_the_cron_job_starts_a_sweep() -> None:
    job = yaml.safe_load((INFRA / "retention" / "cronjob.yaml").read_text(encoding="utf-8"))
    assert (job["apiVersion"], job["kind"], job["spec"]["concurrencyPolicy"]) == ("batch/v1", "CronJob", "Forbid")
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert {one["name"] for one in container["volumeMounts"]} == {one["name"] for one in pod["volumes"]}
    assert_runs_a_sweep(shlex.join(container["args"]))


@pytest.mark.parametrize("version", ["1.28", "1.37"])
def test_kubernetes_takes_the_cron_job(version: str) -> None:
    """By its own schemas, strictly: a key that it does not know is an error."""
    schemas = pytest.importorskip("kubernetes_validate")
    job = yaml.safe_load((INFRA / "retention" / "cronjob.yaml").read_text(encoding="utf-8"))
    schemas.validate(job, version, strict=True)
    (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    container["arg"] = container.pop("args")
    with pytest.raises(schemas.ValidationError, match="'arg' was unexpected"):
        schemas.validate(job, version, strict=True)


def test_the_dag_starts_a_sweep() -> None:
    tree = ast.parse((INFRA / "retention" / "airflow_dag.py").read_text(encoding="utf-8"))
    (operator,) = (
        node for node in ast.walk(tree) if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "BashOperator"
    )
    given = {one.arg: one.value for one in operator.keywords}
    assert_runs_a_sweep(ast.literal_eval(given["bash_command"]))


def allowed_by(role: str) -> set[tuple[str, str]]:
    policy = json.loads((INFRA / "policies" / f"{role}.json").read_text(encoding="utf-8"))
    places = {"arn:aws:s3:::BUCKET/PREFIX/": "", "arn:aws:s3:::SECOND/ARCHIVE/": SECOND}
    buckets = {"arn:aws:s3:::BUCKET": "the bucket", "arn:aws:s3:::SECOND": f"{SECOND}bucket"}

    def place_of(resource: str) -> str:
        below = next((one for one in places if resource.startswith(one)), None)
        return buckets[resource] if below is None else places[below] + resource.removeprefix(below).removesuffix("*")

    return {
        (action, place_of(resource))
        for statement in policy["Statement"]
        if statement["Effect"] == "Allow"
        for action in statement["Action"]
        for resource in statement["Resource"]
    }


def needed_by(role: str) -> Iterator[tuple[str, str]]:
    for command in COMMANDS:
        if command.name in ROLES[role]:
            for right in command.needs:
                if right is Right.LIST:
                    yield "s3:ListBucket", "the bucket"
                elif right is Right.LIST_SECOND:
                    yield "s3:ListBucket", f"{SECOND}bucket"
                elif right in IN_SECOND:
                    yield IN_SECOND[right], SECOND
                elif right is Right.PUT:
                    yield from (("s3:PutObject", prefix) for prefix in PUT_BY[role])
                elif right in STREAMS.get(role, {}):
                    yield from STREAMS[role][right]
                elif right in IN_STORE and right is not Right.TAG:
                    yield IN_STORE[right]


# A sweep does without knowing locks. Without a right to delete them, old notes of runs stay.
_OLD_RUNS = ("s3:DeleteObject", "control/runs/")
MORE = {
    "backup": {_OLD_RUNS},
    "compacted": {_OLD_RUNS},
    "drill": {_OLD_RUNS},
    "restore": {_OLD_RUNS},
    "sweep": {("s3:GetObjectLegalHold", ""), ("s3:GetObjectRetention", "")},
}


@pytest.mark.parametrize("role", ROLES)
def test_a_policy_allows_what_the_table_of_rights_says_and_no_more(role: str) -> None:
    assert allowed_by(role) == set(needed_by(role)) | MORE.get(role, set())
