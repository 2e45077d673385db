"""A broker as before KRaft, with a ZooKeeper process that keeps its cluster."""

import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from archiver.demo.sandbox import BROKER_PROPERTIES, JAVA_OPTIONS
from archiver.errors import ArchiverError
from archiver.process.machine.java import check_java
from archiver.process.machine.jvm_classes import options_to_write
from archiver.process.running.children import start_child
from tests.support.kafka_broker import KafkaBroker, classes_of, free_ports

KAFKA_28 = "2.8.2"
# A broker that was upgraded, and whose protocol was left as it was: it gives topics no ids.
WITHOUT_TOPIC_IDS: Mapping[str, str] = {"inter.broker.protocol.version": "2.7"}
_KRAFT_ONLY = frozenset({
    "node.id",
    "controller.listener.names",
    "broker.session.timeout.ms",
    "broker.heartbeat.interval.ms",
})  # fmt: skip
_SESSION_MS = 3000
_TICK_MS = 500


class ZooKeeperBroker(KafkaBroker):
    """One broker and its ZooKeeper. Both die with this process; what they hold stays in `data_dir` over restarts.

    `properties` may be changed between a stop and a start: `inter.broker.protocol.version` is raised so.
    """

    def __init__(
        self,
        jars: Path,
        data_dir: Path,
        *,
        properties: Mapping[str, str] | None = None,
        java_options: tuple[str, ...] = JAVA_OPTIONS,
    ) -> None:
        super().__init__(jars, data_dir, properties=properties, java_options=java_options)
        (self._zookeeper_port,) = free_ports(1)
        self._zookeeper: subprocess.Popen[bytes] | None = None

    @property
    def properties(self) -> dict[str, str]:
        return self._properties

    def start(self, timeout: float = 60.0) -> None:
        self._start_zookeeper(timeout)
        try:
            super().start(timeout)
        except BaseException:
            self._end_zookeeper()
            raise
        named = (self.data_dir / "log" / "meta.properties").read_text(encoding="utf-8")
        self.cluster_id = dict(line.split("=", 1) for line in named.splitlines() if "=" in line)["cluster.id"]

    def _end(self, number: signal.Signals, timeout: float) -> None:
        super()._end(number, timeout)
        self._end_zookeeper()

    def _write_properties(self) -> Path:
        shared = {name: text for name, text in BROKER_PROPERTIES.items() if name not in _KRAFT_ONLY}
        properties = {
            **shared,
            "broker.id": "1",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "zookeeper.connect": f"127.0.0.1:{self._zookeeper_port}",
            "zookeeper.session.timeout.ms": str(_SESSION_MS),
            "log.dirs": str(self.data_dir / "log"),
            **self._properties,
        }
        return _write(self.data_dir / "server.properties", properties)

    def _format(self, java: str, settings: Path) -> None:
        """Nothing: such a broker makes what it needs at its first start."""

    def _start_zookeeper(self, timeout: float) -> None:
        self.data_dir.mkdir(parents=True, exist_ok=True)
        settings = _write(
            self.data_dir / "zookeeper.properties",
            {
                "dataDir": str(self.data_dir / "zookeeper"),
                "clientPort": str(self._zookeeper_port),
                "clientPortAddress": "127.0.0.1",
                "maxClientCnxns": "0",
                "admin.enableServer": "false",
                "tickTime": str(_TICK_MS),
                "4lw.commands.whitelist": "dump",
            },
        )
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        with (self.data_dir / "zookeeper.log").open("ab") as log:
            command = [*self._java(check_java()), main, str(settings)]
            self._zookeeper = start_child(command, stdout=log, stderr=subprocess.STDOUT)
        deadline_s = time.monotonic() + timeout
        while not self._is_zookeeper_free():
            if self._zookeeper.poll() is not None or time.monotonic() > deadline_s:
                self._end_zookeeper()
                raise ArchiverError(f"ZooKeeper did not start; see {self.data_dir / 'zookeeper.log'}")
            time.sleep(0.05)

    def _is_zookeeper_free(self) -> bool:
        """Whether it answers, and has forgotten a broker that was killed: another one of its name is refused until then."""
        with suppress(OSError), socket.create_connection(("127.0.0.1", self._zookeeper_port), timeout=1.0) as asked:
            asked.sendall(b"dump")
            with asked.makefile("rb") as answer:
                told = answer.read()
            return b"Sessions with Ephemerals" in told and b"/brokers/ids/" not in told
        return False

    def _end_zookeeper(self) -> None:
        process, self._zookeeper = self._zookeeper, None
        if process is None:
            return
        process.kill()  # it writes its log ahead: nothing that it has answered is lost
        process.wait()


class StartZooKeeperBroker(Protocol):
    """Starts a broker that one test has to itself; it is stopped after the test."""

    def __call__(self, version: str = KAFKA_28, **properties: str) -> ZooKeeperBroker: ...


def keep_classes(jars: Path) -> None:
    """As tests.support.kafka_broker.keep_classes. ZooKeeper is killed, and writes no file; it maps the broker's, too."""
    classes = classes_of(jars)
    classes.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="kafka-") as folder, options_to_write(classes) as options:
        broker = ZooKeeperBroker(jars, Path(folder), java_options=(*JAVA_OPTIONS, *options))
        broker.start()
        broker.stop()


def _write(path: Path, properties: Mapping[str, str]) -> Path:
    path.write_text("".join(f"{name}={text}\n" for name, text in properties.items()), encoding="utf-8")
    return path
