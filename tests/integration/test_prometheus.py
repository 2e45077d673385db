"""A real Prometheus asks real processes: a backup that ends is reported within ten minutes, and so is a job without a success.

It takes a quarter of an hour.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.integration.test_monitoring import RULES, dashboard_expressions, rules
from tests.support.brokers import CACHE, REPOSITORY, Broker
from tests.support.instances import compacted_config, instance, write
from tests.support.kafka_broker import free_ports
from tests.support.kafka_topics import create_topic, produce_values
from tests.support.processes import end_of
from tests.support.real_sweeps import archive_of, start_sweep
from tests.support.round_trip import KEEP_ALL, ArchiveSite
from tests.support.servers import serving
from tests.support.service import Instance, eventually, running

pytestmark = [pytest.mark.long, pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(2400)]

PROMISED_S: Final = 600.0
QUIET_S: Final = 75.0  # five scrapes, and five turns of the rules
DAY_S: Final = 86_400
COMPOSE: Final = REPOSITORY / "infra" / "compose" / "prometheus.yaml"


class Prometheus:
    """A server with the rules of `infra/monitoring`, and with the intervals of `infra/compose`."""

    def __init__(self, folder: Path, jobs: int) -> None:
        (self.port,) = free_ports(1)
        self.config = folder / "prometheus.yml"
        self._jobs = jobs
        self._pid: int | None = None

    def scrape(self, services: Sequence[Instance]) -> None:
        """Ask these from now on, and the files of jobs."""
        config: dict[str, Any] = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))
        (job,) = config["scrape_configs"]
        job["static_configs"] = [{"targets": [f"127.0.0.1:{one.port}" for one in services]}]
        files = {
            "job_name": "node",
            "metrics_path": "/sweep.prom",
            "fallback_scrape_protocol": "PrometheusText0.0.4",
            "static_configs": [{"targets": [f"127.0.0.1:{self._jobs}"]}],
        }
        self.config.write_text(yaml.safe_dump({**config, "rule_files": [str(RULES)], "scrape_configs": [job, files]}))
        if self._pid is not None:
            os.kill(self._pid, signal.SIGHUP)

    @contextmanager
    def serve(self) -> Iterator[None]:
        subprocess.run([REPOSITORY / "infra" / "prometheus.sh"], check=True, stdout=subprocess.DEVNULL)
        command = [str(CACHE / "bin" / "prometheus"), f"--config.file={self.config}"]
        command += [
            f"--web.listen-address=127.0.0.1:{self.port}",
            f"--storage.tsdb.path={self.config.with_name('data')}",
        ]
        with serving(command, self.port, self.config.with_name("prometheus.log")) as self._pid:
            eventually(self._is_ready)
            yield

    def _is_ready(self) -> bool:
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=5):
            return True
        return False

    def ask(self, what: str, **given: str) -> Any:  # noqa: ANN401 - JSON
        url = f"http://127.0.0.1:{self.port}/api/v1/{what}?{urllib.parse.urlencode(given)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]

    def alerts(self, state: str = "") -> set[tuple[str, str]]:
        """Each alert with the kind of process or job that it names; those of a state alone, if one is given."""
        found = [one for one in self.ask("alerts")["alerts"] if state in one["state"]]
        return {(one["labels"]["alertname"], one["labels"].get("kind", "")) for one in found}

    def processes(self, kind: str) -> int:
        return len(self.ask("query", query=f'archiver_build_info{{kind="{kind}"}}')["result"])


def assert_quiet(prometheus: Prometheus, bootstrap: str, topic: str) -> None:
    """Neither a firing alert nor one that is about to, while records come."""
    eventually(lambda: [prometheus.processes(one) for one in ("backup", "compacted")] == [1, 2], "no series", 60)
    eventually(lambda: prometheus.alerts() == set(), "alerts of a healthy backup", 120, every_s=1)
    until_s = time.monotonic() + QUIET_S
    while time.monotonic() < until_s:
        produce_values(bootstrap, topic, [b"value"])
        time.sleep(3)
        assert prometheus.alerts() == set()


def assert_each_metric_is_there(prometheus: Prometheus) -> None:
    """Rules and dashboard name nothing else, and no label of ours gives way to one of Prometheus."""
    used = set(re.findall(r"archiver_[a-z_]+", " ".join([*dashboard_expressions(), *(one["expr"] for one in rules())])))
    assert len(used) > 20
    declared = {one["metric"] for one in prometheus.ask("targets/metadata")}  # OpenMetrics leaves suffixes out
    assert {name for name in used if re.sub("_(total|bucket)$", "", name) not in declared} == set()
    series = prometheus.ask("series", **{"match[]": '{__name__=~"archiver_.*"}'})
    assert [one for one in series if any(label.startswith("exported_") for label in one)] == []
    found = [one for group in prometheus.ask("rules")["groups"] for one in group["rules"]]
    assert [(one["name"], one.get("lastError")) for one in found if one["health"] != "ok"] == []


def assert_an_old_success_is_reported(prometheus: Prometheus, file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    (line,) = re.findall(r"^archiver_job_last_success_timestamp_seconds\{.*$", text, re.MULTILINE)
    series, value = line.split()
    file.write_text(text.replace(line, f"{series} {float(value) - 1.2 * DAY_S}"), encoding="utf-8")
    began_s = time.monotonic()
    eventually(lambda: ("ArchiverJobLate", "retention") in prometheus.alerts("firing"), "", PROMISED_S, every_s=1)
    print(f"the alert of a job fires after {time.monotonic() - began_s:.0f} s")
    assert prometheus.alerts() == {("ArchiverJobLate", "retention")}
    file.write_text(text, encoding="utf-8")
    eventually(lambda: prometheus.alerts() == set(), "the alert stays", 60, every_s=1)


def assert_an_end_is_reported(prometheus: Prometheus, backup: Instance, number: signal.Signals) -> None:
    backup.process.send_signal(number)
    backup.process.wait(60)
    began_s = time.monotonic()
    eventually(lambda: prometheus.alerts("firing") != set(), "no alert", PROMISED_S, every_s=1)
    print(f"the alert of {number.name} fires after {time.monotonic() - began_s:.0f} s")
    assert prometheus.alerts() == {("ArchiverDown", "backup")}  # the instances run


def late(site: ArchiveSite, age: str) -> list[str]:
    """What is late for `archiver status`."""
    done = site.run("status", "-c", "one.yaml", "--max-age", age, "--format", "json")
    found = [line.partition(":")[0] for line in json.loads(done.stdout)["late"]]
    assert done.returncode == (3 if found else 0)
    return found


def test_what_ends_is_reported_within_ten_minutes(
    broker_41: Broker, site: ArchiveSite, topic: str, tmp_path: Path
) -> None:
    bootstrap, jobs, keys = broker_41.bootstrap, tmp_path / "jobs", f"{topic}-keys"
    create_topic(bootstrap, topic, 2, KEEP_ALL)
    create_topic(bootstrap, keys, 2, {"cleanup.policy": "compact"})
    produce_values(bootstrap, topic, [b"value"])
    write(bootstrap, keys, {"key": "value"})
    config = compacted_config(site, bootstrap, topic, keys, turn_s=DAY_S)
    jobs.mkdir()
    (port,) = free_ports(1)
    files = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1", "--directory", str(jobs)]
    prometheus = Prometheus(tmp_path, port)
    with (
        serving(files, port, tmp_path / "files.log"),
        instance(site, config, "a", "--initial-role", "active") as a,
        instance(site, config, "b") as b,
        running(site, config) as backup,
    ):
        eventually(lambda: late(site, "1h") == [], "no note of a run")
        swept = end_of(start_sweep(site, bootstrap, topic, "", "--metrics-file", str(jobs / "sweep.prom")), 100)
        assert swept.returncode == 0, swept.stderr
        prometheus.scrape([backup, a, b])
        with prometheus.serve():
            assert_quiet(prometheus, bootstrap, topic)
            assert_each_metric_is_there(prometheus)
            assert_an_old_success_is_reported(prometheus, jobs / "sweep.prom")
            assert_an_end_is_reported(prometheus, backup, signal.SIGTERM)
            assert (late(site, "1h"), late(site, "5min")) == ([], ["backup"])
            with running(site, config) as second:
                prometheus.scrape([second, a, b])
                assert_quiet(prometheus, bootstrap, topic)
                assert_an_end_is_reported(prometheus, second, signal.SIGKILL)
                assert (late(site, "1h"), late(site, "5min")) == ([], ["backup"])
    store = archive_of(site).store
    store.delete([one.key for one in store.list("control/runs/retention/")])
    assert (late(site, "1h"), late(site, "retention=26h")) == ([], ["retention"])
