"""The rules and the dashboard of `infra/monitoring/`, by Prometheus' own parser and rule engine (promtool)."""

import json
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
import yaml

from archiver.backup.compacted.work.instance_metrics import INSTANCE_METRICS
from archiver.backup.reports.metrics import METRICS
from archiver.process.output.job_metrics import JOB_METRICS
from archiver.upkeep.retention.sweeping.sweep_metrics import SWEEP_METRICS
from tests.support.brokers import CACHE, REPOSITORY

FOLDER: Final = REPOSITORY / "infra" / "monitoring"
RULES: Final = FOLDER / "archiver.rules.yml"
_DAY: Final = 1500  # minutes, a little more than a day


@pytest.fixture(scope="module")
def promtool() -> Path:
    subprocess.run([REPOSITORY / "infra" / "promtool.sh"], check=True, stdout=subprocess.DEVNULL)
    return CACHE / "bin" / "promtool"


def dashboard_expressions() -> list[str]:
    panels = json.loads((FOLDER / "dashboard.json").read_text(encoding="utf-8"))["panels"]
    return [target["expr"] for panel in panels for target in panel["targets"]]


def rules() -> list[Mapping[str, str]]:
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_every_expression_is_parsed(promtool: Path, tmp_path: Path) -> None:
    recorded = [{"record": f"panel:{number}", "expr": expr} for number, expr in enumerate(dashboard_expressions())]
    assert len(recorded) > 15
    page = tmp_path / "dashboard.yml"
    page.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": recorded}]}))
    for path in (RULES, page):
        done = subprocess.run([promtool, "check", "rules", str(path)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_metric_exists() -> None:
    declared = {one.name for one in (*METRICS, *INSTANCE_METRICS, *SWEEP_METRICS, *JOB_METRICS)}
    used = set(re.findall(r"archiver_[a-z_]+", " ".join([*dashboard_expressions(), *(one["expr"] for one in rules())])))
    assert {name.removesuffix("_bucket") for name in used} - declared == set()


def test_every_rule_says_what_to_do() -> None:
    assert [one["alert"] for one in rules() if set(one["annotations"]) != {"summary", "action"}] == []


# A quiet day of a service, two instances, and their jobs, in promtool's notation: a value each minute.
QUIET: Final[Mapping[str, str]] = {
    'archiver_build_info{kind="backup",version="1",instance="backup"}': f"1x{_DAY}",
    'archiver_build_info{kind="compacted",version="1",instance="a"}': f"1x{_DAY}",
    'archiver_start_time_seconds{kind="backup",instance="backup"}': f"0x700 42000x{_DAY - 700}",
    'archiver_partitions{topic="orders",instance="backup"}': f"6x{_DAY}",
    'archiver_partitions{topic="keys",instance="a"}': f"6x{_DAY}",
    'archiver_partitions_failing{topic="orders"}': f"0x{_DAY}",
    'archiver_rpo_seconds{topic="orders"}': " ".join(["0+60x5"] * (_DAY // 6)),
    'archiver_retention_left_seconds{topic="orders"}': f"604800x{_DAY}",
    'archiver_holes_total{topic="orders",cause="expired"}': f"0x{_DAY}",
    'archiver_holes_total{topic="orders",cause="unreadable"}': f"0x{_DAY}",
    'archiver_branches_total{topic="orders"}': f"0x{_DAY}",
    'archiver_compacted_alarms{topic="keys",kind="damaged"}': f"0x{_DAY}",
    'archiver_compacted_turn_left_seconds{topic="keys"}': f"604800-60x{_DAY}",
    'archiver_job_last_success_timestamp_seconds{kind="retention"}': f"0x1439 86400x{_DAY - 1440}",
    'archiver_job_last_success_timestamp_seconds{kind="verify"}': f"0x{_DAY}",
    'archiver_job_exit_code{kind="retention"}': f"0x{_DAY}",
    'archiver_sweep_topics{state="stopped"}': f"0x{_DAY}",
    'archiver_sweep_topics{state="waiting"}': f"0x{_DAY}",
    "archiver_sweep_failures": f"0x{_DAY}",
    "archiver_sweep_refused_deletes": f"0x{_DAY}",
}


@dataclass(frozen=True, slots=True)
class Scenario:
    """What differs from a quiet day; which alerts fire then, and by which minute. `gone`: series that end after an hour."""

    alerts: frozenset[str]
    by_minute: int
    series: Mapping[str, str] = field(default_factory=dict)
    gone: str = ""


def fires(*alerts: str, by: int, gone: str = "", **series: str) -> Scenario:
    found = dict(series)
    return Scenario(frozenset(f"Archiver{one}" for one in alerts), by, found, gone)


_RPO = 'archiver_rpo_seconds{topic="orders"}'
_FAILING = 'archiver_partitions_failing{topic="orders"}'
SCENARIOS: Final[Mapping[str, Scenario]] = {
    "the service is dead": fires("Down", by=66, gone=r'"orders"|instance="backup"'),
    "the instances are dead": fires("Down", by=66, gone=r'"keys"|instance="a"'),
    "all are dead": fires("Down", by=66, gone=r'"orders"|"keys"|instance'),
    "all are dead since long": fires("Down", by=1520, gone=r'"orders"|"keys"|instance'),
    "the service fails again and again": fires(
        "Restarts", by=25, **{'archiver_start_time_seconds{kind="backup",instance="backup"}': "0x9 0+60x200"}
    ),
    "it has no partition": fires("WithoutPartitions", by=80, gone='"orders"'),
    "the spool is full": fires("Behind", by=70, **{_RPO: "0+60x200"}),
    "the broker is away": fires("Behind", "PartitionsFailing", by=70, **{_RPO: "0+60x200", _FAILING: "0x9 6x200"}),
    "the store is away": fires("PartitionsFailing", by=16, **{_FAILING: "0x9 6x200"}),
    "a topic is deleted": fires("TopicGone", by=11, **{'archiver_topics_gone{topic="orders"}': "0x9 1x200"}),
    "Kafka is about to delete": fires(
        "RetentionNear", by=16, **{'archiver_retention_left_seconds{topic="orders"}': "90000x9 80000x200"}
    ),
    "Kafka deleted": fires(
        "RecordsExpired", by=11, **{'archiver_holes_total{topic="orders",cause="expired"}': "0x9 1x200"}
    ),
    "Kafka deleted while no backup ran": fires(
        "RecordsExpired", by=11, **{'archiver_holes_total{topic="orders",cause="expired"}': "_x9 1x200"}
    ),
    "a batch was skipped": fires(
        "RecordsUnreadable", by=11, **{'archiver_holes_total{topic="orders",cause="unreadable"}': "0x9 1x200"}
    ),
    "a log was truncated": fires("LogTruncated", by=11, **{'archiver_branches_total{topic="orders"}': "0x9 1x200"}),
    "a producer is gone": fires(
        "TransactionOpen",
        by=20,
        **{'archiver_open_transaction_age_seconds{topic="orders",partition="0",producer_id="7"}': "0+60x200"},
    ),
    "a copy is damaged": fires(
        "CopyInDoubt", by=30, **{'archiver_compacted_alarms{topic="keys",kind="damaged"}': "0x9 1x200"}
    ),
    "a copy is overdue": fires(
        "CopyOverdue", by=11, **{'archiver_compacted_turn_left_seconds{topic="keys"}': "0x9 -90000x200"}
    ),
    "the cron job of sweeps is dead": fires(
        "JobLate", by=1562, **{'archiver_job_last_success_timestamp_seconds{kind="retention"}': "0x1700"}
    ),
    "the machine of that job is gone": fires("JobLate", by=1562, gone='last_success.*"retention"'),
    "verify is dead": fires(
        "ProofLate", by=1, **{'archiver_job_last_success_timestamp_seconds{kind="verify"}': "-691300x200"}
    ),
    "a job failed": fires("JobFailed", by=1, **{'archiver_job_exit_code{kind="verify"}': "3x200"}),
    "a sweep asked another cluster": fires(
        "SweepStopped", by=11, **{'archiver_sweep_topics{state="stopped"}': "0x9 4x200"}
    ),
    "a sweep waits": fires("SweepWaits", by=75, **{'archiver_sweep_topics{state="waiting"}': "0x9 1x200"}),
}


def ends(notation: str) -> str:
    """The series of a process that is gone after an hour."""
    return notation.split(" ", maxsplit=1)[0].replace(f"x{_DAY}", "x60").replace("0+60x5", "0x60") + " stale"


def _tests_of(scenario: Scenario) -> Mapping[str, object]:
    length = max(_DAY, scenario.by_minute)
    series = {**{name: text.replace(f"x{_DAY}", f"x{length}") for name, text in QUIET.items()}, **scenario.series}
    if scenario.gone:
        series = {name: ends(QUIET[name]) if re.search(scenario.gone, name) else text for name, text in series.items()}
    firing = 'count by (alertname) (ALERTS{alertstate="firing"}) * 0 + 1'
    expected = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(scenario.alerts)]
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [{"expr": firing, "eval_time": f"{scenario.by_minute}m", "exp_samples": expected}],
    }


def run_tests(promtool: Path, folder: Path, tests: list[Mapping[str, object]]) -> str:
    """Run them; returns what failed."""
    path = folder / "tests.yml"
    path.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}))
    done = subprocess.run([promtool, "test", "rules", str(path)], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.mark.parametrize("name", SCENARIOS)
def test_an_alert_fires(name: str, promtool: Path, tmp_path: Path) -> None:
    assert run_tests(promtool, tmp_path, [_tests_of(SCENARIOS[name])]) == ""


def test_each_alert_has_a_scenario() -> None:
    assert {name for one in SCENARIOS.values() for name in one.alerts} == {one["alert"] for one in rules()}


def test_no_alert_fires_on_a_quiet_day(promtool: Path, tmp_path: Path) -> None:
    """At none of its minutes."""
    ever = 'max_over_time(count(ALERTS{alertstate="firing"})[25h:1m])'
    quiet = _tests_of(Scenario(frozenset(), _DAY))
    tests = {**quiet, "promql_expr_test": [{"expr": ever, "eval_time": f"{_DAY}m", "exp_samples": []}]}
    assert run_tests(promtool, tmp_path, [tests]) == ""
