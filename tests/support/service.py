"""The continuous backup as a process of its own: the installed command, watched through its endpoint."""

import contextlib
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.support.foreign_reader import read_partitions
from tests.support.forked_commands import start_command
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_broker import free_ports
from tests.support.records import Rec
from tests.support.round_trip import ArchiveSite, environment_of

_PATIENCE_S = 100.0  # a machine may stand still for a minute


class Instance:
    """One running `archiver backup`. `name` keeps its files apart from those of others in the same folder."""

    def __init__(
        self,
        site: ArchiveSite,
        config: Mapping[str, Any],
        name: str,
        environment: Mapping[str, str] | None = None,
        *,
        arguments: Sequence[str] = (),
        command: Sequence[str] = ("backup",),
    ) -> None:
        (self.port,) = free_ports(1)
        self.log_path = site.folder / f"{name}.log"
        self._config = site.folder / f"{name}.yaml"
        self._config.write_text(yaml.safe_dump({**config, "metrics": {"listen": f"127.0.0.1:{self.port}"}}))
        with self.log_path.open("ab") as log:
            self.process = start_command(
                [*command, "-c", str(self._config), "--verbose", *arguments],
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=site.folder,
                env={**environment_of(site.bucket), **(environment or {})},
            )

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def metric(self, name: str) -> dict[frozenset[tuple[str, str]], float]:
        """Value by labels; empty while it does not answer. Only its own lines are parsed: tests ask ten times a second."""
        lines = (line for line in self.metrics_text().splitlines() if line.startswith((f"{name}{{", f"{name} ")))
        return {
            frozenset(sample.labels.items()): sample.value
            for family in text_string_to_metric_families("\n".join(lines))
            for sample in family.samples
        }

    def metrics_text(self) -> str:
        """As it tells them; empty while it does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=5) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""

    def value(self, name: str, **labels: str) -> float:
        return self.metric(name).get(frozenset(labels.items()), float("nan"))

    def total(self, name: str, **labels: str) -> float:
        """The sum over all label sets that contain these."""
        return sum(value for have, value in self.metric(name).items() if labels.items() <= have)

    def is_ready(self) -> bool:
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=5) as answer,
        ):
            return bool(answer.status == 200)
        return False

    @property
    def readiness(self) -> str:
        """Why it is not ready; empty when it is, or does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=5):
                return ""
        except urllib.error.HTTPError as refusal:
            return refusal.read().decode()
        except OSError:
            return ""

    def stop(self, timeout_s: float = _PATIENCE_S) -> int:
        """SIGTERM; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout_s)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


def service_config(site: ArchiveSite, bootstrap: str, *include: str, **backup: object) -> dict[str, Any]:
    """Quick in everything: looks for topics, closes segments and notices the dead within seconds."""
    config = site.config(bootstrap, include, age="1s")
    config["topics"]["refresh"] = "1s"
    config["backup"] |= {"session-timeout": "6s", "groups": "off", **backup}
    return config


@contextlib.contextmanager
def running(
    site: ArchiveSite,
    config: Mapping[str, Any],
    name: str = "one",
    *,
    arguments: Sequence[str] = (),
    **environment: str,
) -> Iterator[Instance]:
    """One instance, until the end of the block; then it is killed if it still runs."""
    instance = Instance(site, config, name, environment, arguments=arguments)
    try:
        yield instance
    except BaseException:
        print(f"--- {instance.log_path}\n{instance.log[-6000:]}")
        raise
    finally:
        instance.kill()


def eventually(
    reached: Callable[[], bool], what: str = "", timeout_s: float = _PATIENCE_S, every_s: float = 0.1
) -> None:
    """Wait until a condition holds. What takes long is asked for less often: each question takes time from what is waited for."""
    begun_s = time.monotonic()
    while not reached():
        waited_s = time.monotonic() - begun_s
        assert waited_s < timeout_s, what or "not reached in time"
        if every_s:  # else what is asked waits itself
            time.sleep(max(every_s, min(waited_s / 20, 0.5)))


def until_archived(
    site: ArchiveSite,
    oracle: JavaOracle,
    bootstrap: str,
    topic: str,
    directory: str = "",
    timeout_s: float = _PATIENCE_S,
) -> dict[int, list[Rec]]:
    """Wait until all that Kafka's consumer sees now is in the archive, each record once; return it.

    `directory` is where the topic's life lies under `topics/`, when it is not the first.
    """
    seen = oracle.consume(bootstrap, topic).records
    expected = {partition: records for partition, records in seen.items() if records}

    def archived() -> dict[int, list[Rec]]:
        return read_partitions(site.bucket, directory or topic)

    def count(of: Mapping[int, list[Rec]]) -> int:
        return sum(map(len, of.values()))

    eventually(lambda: count(archived()) >= count(expected), f"{topic} is not archived to its end", timeout_s)
    assert archived() == expected
    return expected
