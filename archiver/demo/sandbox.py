"""Runs real servers for demo and tests, without containers: a Kafka broker as a process, and S3 within this process."""

import http.client
import random
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self

from archiver.config.quantities import MEBIBYTE
from archiver.errors import ArchiverError
from archiver.process.machine.jars import JarFolder, Module, fetch_jars
from archiver.process.machine.java import check_java, last_lines, run_to_end
from archiver.process.running.children import start_child

KAFKA_HASHES: Final = Path(__file__).with_name("kafka_jars.sha256")

# Settings for quick groups and logs, and limits that accept records of 10 MB and more.
BROKER_PROPERTIES: Final[Mapping[str, str]] = {
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "auto.create.topics.enable": "false",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "broker.session.timeout.ms": "3000",  # after a kill, a start waits until the dead broker's session expires
    "broker.heartbeat.interval.ms": "500",
    "message.max.bytes": str(32 * MEBIBYTE),
    "replica.fetch.max.bytes": str(32 * MEBIBYTE),
    "socket.request.max.bytes": str(100 * MEBIBYTE),
    "log.initial.task.delay.ms": "500",
    "log.cleaner.backoff.ms": "500",
    "log.cleaner.threads": "1",
    "log.cleaner.dedupe.buffer.size": str(8 * MEBIBYTE),  # the default of 128 MiB is allocated at the start
    "log.segment.delete.delay.ms": "1000",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "background.threads": "2",
}

# C1 only and one GC thread: ready in 2.1 s instead of 2.6 s, and it leaves the other core alone.
JAVA_OPTIONS: Final = ("-Xmx768m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
LOGGING_OPTIONS: Final = (
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.config=warn",  # else 300 lines of settings at each start
)

# Ports below the ephemeral range: no outgoing connection takes the port while the broker restarts.
PORTS: Final = range(20000, 32000)


def fetch_kafka(version: str, cache_dir: Path) -> Path:
    """Return the folder with the jars of this Kafka version, `<cache_dir>/kafka-<version>`, fetched from Maven when absent."""
    return fetch_jars(kafka_of(version), cache_dir, KAFKA_HASHES)


def kafka_of(version: str) -> JarFolder:
    """Return the modules of a Kafka version, with slf4j-simple: without a logging backend a broker that cannot start dies silently."""
    broker = Module("org.apache.kafka", "kafka_2.13", version)
    return JarFolder(name=f"kafka-{version}", modules=(broker, Module("org.slf4j", "slf4j-simple", "1.7.36")))


def free_ports(count: int) -> list[int]:
    """Return free ports of 127.0.0.1. No outgoing connection takes one; another server may."""
    found: list[int] = []
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            return found
    raise ArchiverError(f"no {count} free ports in {PORTS.start}-{PORTS.stop}")


class KafkaBroker:
    """One KRaft node as a process on 127.0.0.1. Its data stays in `data_dir` over restarts.

    Broker and controller of a cluster of its own. It dies with this process, also when this process is killed. Use it as a
    context manager, or call `start` and `stop`. Not safe for use from two threads at once.
    """

    def __init__(self, jars: Path, data_dir: Path, *, java_options: tuple[str, ...] = JAVA_OPTIONS) -> None:
        self.jars = jars
        self.data_dir = data_dir
        self.log_path = data_dir / "broker.log"
        self.port, controller_port = self._free_ports(2)
        self.controller: str = f"127.0.0.1:{controller_port}"
        self.cluster_id: str = random_id()
        self._java_options = java_options
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """The broker's address, for bootstrap.servers."""
        return f"127.0.0.1:{self.port}"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, timeout: float = 60.0) -> None:
        """Start on the port chosen at construction, and wait until clients can create topics."""
        if self.running:
            raise ArchiverError(f"the broker at {self.bootstrap} runs already")
        java = check_java()
        self.data_dir.mkdir(parents=True, exist_ok=True)
        settings = self._write_properties()
        if not (self.data_dir / "log" / "meta.properties").exists():
            self._format(java, settings)
        command = [*self._java(java), "kafka.Kafka", str(settings)]
        with self.log_path.open("ab") as log:
            process = start_child(command, stdout=log, stderr=subprocess.STDOUT)
        self._process = process
        try:
            self._wait_until_ready(process, time.monotonic() + timeout)
        except BaseException:
            self.kill()
            raise

    def stop(self, timeout: float = 15.0) -> None:
        """End the broker by SIGTERM, and by SIGKILL when the deadline has passed. Does nothing when it does not run."""
        self._end(signal.SIGTERM, timeout)

    def kill(self) -> None:
        """End the broker by SIGKILL: like a crash of the machine, but without loss of the page cache."""
        self._end(signal.SIGKILL, 15.0)

    def last_log_lines(self) -> str:
        """For error messages."""
        if not self.log_path.exists():
            return ""
        return last_lines(self.log_path.read_text(encoding="utf-8", errors="replace"), 20)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _free_ports(self, count: int) -> list[int]:
        return free_ports(count)

    def _java(self, java: str) -> list[str]:
        return [java, *self._java_options, *LOGGING_OPTIONS, "-cp", f"{self.jars}/*"]

    def _properties_of_node(self) -> dict[str, str]:
        return {
            **BROKER_PROPERTIES,
            "process.roles": "broker,controller",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://{self.controller}",
            "controller.quorum.voters": f"1@{self.controller}",
            "log.dirs": str(self.data_dir / "log"),
        }

    def _write_properties(self) -> Path:
        path = self.data_dir / "server.properties"
        lines = [f"{name}={text}\n" for name, text in self._properties_of_node().items()]
        path.write_text("".join(lines), encoding="utf-8")
        return path

    def _format(self, java: str, settings: Path) -> None:
        self._run_to_end(java, "kafka.tools.StorageTool", "format", "-t", self.cluster_id, "-c", str(settings))

    def _run_to_end(self, java: str, *arguments: str) -> None:
        done = run_to_end([*self._java(java), *arguments])
        if done.returncode != 0:
            said = last_lines(done.stdout, 15)
            raise ArchiverError(f"{arguments[0]} failed with {done.returncode} in {self.data_dir}:\n{said}").in_lines()

    def _wait_until_ready(self, process: subprocess.Popen[bytes], deadline: float) -> None:
        while not _answers(self.port):
            with suppress(subprocess.TimeoutExpired):  # until it has ended, or it is time to ask again
                raise self._start_error(f"died at start with {process.wait(timeout=0.05)}")
            if time.monotonic() > deadline:
                raise self._start_error("was not ready in time")

    def _start_error(self, what: str) -> ArchiverError:
        said = self.last_log_lines()
        return ArchiverError(f"the broker at {self.bootstrap} {what}; the end of {self.log_path}:\n{said}").in_lines()

    def _end(self, number: signal.Signals, timeout: float) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)  # does nothing when the process has ended
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def random_id() -> str:
    """Return 16 random bytes as Kafka writes them, in 22 characters; never with a leading dash, which its tool reads as an option."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
    source = random.SystemRandom()
    return "".join(source.choice(alphabet) for _ in range(21)) + source.choice("AQgw")


def _answers(port: int) -> bool:
    """Return whether a metadata answer (v1, no topics) names a broker: it is registered then, and serves."""
    client = b"archiver-sandbox"
    body = struct.pack(f">hhih{len(client)}si", 3, 1, 0, len(client), client, 0)
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2.0) as connection:
            connection.sendall(struct.pack(">i", len(body)) + body)
            (length,) = struct.unpack(">i", _receive(connection, 4))
            answer = _receive(connection, length)
    except OSError:
        return False
    return int.from_bytes(answer[4:8], "big") >= 1  # correlation id, then the count of brokers


def _receive(connection: socket.socket, count: int) -> bytes:
    received = b""
    while len(received) < count:
        part = connection.recv(count - len(received))
        if not part:
            raise ConnectionError("closed")
        received += part
    return received


class _MotoServer(Protocol):
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def get_host_and_port(self) -> tuple[str, int]: ...


class EmbeddedS3:
    """S3 within this process, in memory, with one bucket. A context manager."""

    access_key: Final = "archiver"
    secret_key: Final = "archiver-secret"  # noqa: S105  # of an S3 that only this machine reaches

    def __init__(self, bucket: str) -> None:
        self.bucket = bucket
        self.endpoint = ""
        self._server: _MotoServer | None = None

    def __enter__(self) -> Self:
        try:
            from moto.server import ThreadedMotoServer  # noqa: PLC0415  # an extra, and slow to import
        except ImportError as error:
            raise ArchiverError("S3 in process needs moto: pip install 'kafka-archiver[demo]'") from error
        server: _MotoServer = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        self._server = server
        host, port = server.get_host_and_port()
        self.endpoint = f"http://{host}:{port}"
        self._create_bucket()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.stop()
            self._server = None

    def _create_bucket(self) -> None:
        """Create the bucket by a plain request: moto checks no signatures."""
        connection = http.client.HTTPConnection(self.endpoint.removeprefix("http://"), timeout=10)
        try:
            connection.request("PUT", f"/{self.bucket}")
            status = connection.getresponse().status
        finally:
            connection.close()
        if status != http.client.OK:
            raise ArchiverError(f"the embedded S3 at {self.endpoint} refused to create bucket {self.bucket}: {status}")
