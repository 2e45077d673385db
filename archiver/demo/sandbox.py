"""Real servers without containers, for the demo and the tests: a Kafka broker as a process, and S3 within this process."""

import atexit
import http.client
import random
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self

from archiver.config.quantities import MEBIBYTE
from archiver.errors import ArchiverError
from archiver.process.children import start_child
from archiver.process.jars import JarFolder, Module, fetch_jars
from archiver.process.java import check_java, last_lines, run_to_end
from archiver.process.jvm_classes import options_to_read, options_to_write

KAFKA_HASHES: Final = Path(__file__).with_name("kafka_jars.sha256")

# Settings of groups and logs that make things happen soon, and limits that let records of 10 MB and more through.
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
    "broker.session.timeout.ms": "3000",  # after a kill, a start waits until the controller has given the dead broker up
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


def fetch_kafka(version: str, cache_dir: Path, hashes: Path = KAFKA_HASHES) -> Path:
    """Return the folder with the jars of this Kafka version, `<cache_dir>/kafka-<version>`, fetched from Maven when absent."""
    return fetch_jars(kafka_of(version), cache_dir, hashes)


def kafka_of(version: str) -> JarFolder:
    """Return the modules of a Kafka version, with slf4j-simple: without a logging backend a broker that cannot start dies silently."""
    broker = Module("org.apache.kafka", "kafka_2.13", version)
    return JarFolder(name=f"kafka-{version}", modules=(broker, Module("org.slf4j", "slf4j-simple", "1.7.36")))


def keep_classes(jars: Path) -> None:
    """Start and stop a broker once, which takes five seconds: from then on brokers with these jars start with half the CPU."""
    classes = _classes_of(jars)
    classes.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="kafka-") as folder, options_to_write(classes) as options:
        broker = KafkaBroker(jars, Path(folder), java_options=(*JAVA_OPTIONS, *options))
        broker.start()
        broker.stop()


def _classes_of(jars: Path) -> Path:
    return jars.parent / f"{jars.name}.jsa"


def free_ports(count: int) -> list[int]:
    """Return free ports of 127.0.0.1, which no other process is given for a while."""
    found: list[int] = []
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        with suppress(OSError):
            _hold(port)
            found.append(port)
        if len(found) == count:
            return found
    raise ArchiverError(f"no {count} free ports in {PORTS.start}-{PORTS.stop}")


def _hold(port: int) -> None:
    """Reserve a port, by a socket that is bound to it, while a broker starts, which takes seconds.

    A server, which binds with SO_REUSEADDR, may listen there nevertheless.
    """
    with ExitStack() as failed:
        holder = failed.enter_context(socket.socket())
        holder.bind(("127.0.0.1", port))
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        failed.pop_all()
    _HELD.append(holder)
    if len(_HELD) > _MOST_HELD:
        _HELD.popleft().close()


@atexit.register
def _let_go() -> None:
    while _HELD:
        _HELD.pop().close()


_MOST_HELD: Final = 64
_HELD: Final[deque[socket.socket]] = deque()


class KafkaBroker:
    """One KRaft node as a process on 127.0.0.1. Its data stays in `data_dir` over restarts.

    Broker and controller of a cluster of its own; with `joins`, one more broker of that one's cluster, which needs the
    property `node.id`. The broker dies with this process, also when this process is killed. Use it as a context manager, or
    call `start` and `stop`. Not safe for use from two threads at once.
    """

    def __init__(
        self,
        jars: Path,
        data_dir: Path,
        *,
        joins: Self | None = None,
        properties: Mapping[str, str] | None = None,
        java_options: tuple[str, ...] = JAVA_OPTIONS,
    ) -> None:
        self.jars = jars
        self.data_dir = data_dir
        self.log_path = data_dir / "broker.log"
        self.port, controller_port = free_ports(2)
        self.controller: str = f"127.0.0.1:{controller_port}" if joins is None else joins.controller
        self.cluster_id: str = _random_id() if joins is None else joins.cluster_id
        self._is_controller = joins is None
        self._properties = dict(properties or {})
        self._java_options = java_options
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """The broker's address, for bootstrap.servers."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The process id of the running broker's JVM."""
        if self._process is None:
            raise ArchiverError("the broker is not running")
        return self._process.pid

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
        """End the broker by SIGKILL: as a crash of the machine, but that the page cache is not lost."""
        self._end(signal.SIGKILL, 15.0)

    def restart(self, timeout: float = 60.0) -> None:
        """Stop the broker, and start it on the same port with the same data."""
        self.stop()
        self.start(timeout)

    def last_log_lines(self, count: int = 20) -> str:
        """For error messages."""
        if not self.log_path.exists():
            return ""
        return last_lines(self.log_path.read_text(encoding="utf-8", errors="replace"), count)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _java(self, java: str) -> list[str]:
        options = [*options_to_read(_classes_of(self.jars)), *self._java_options]
        return [java, *options, *LOGGING_OPTIONS, "-cp", f"{self.jars}/*"]

    def _write_properties(self) -> Path:
        listeners = f"PLAINTEXT://127.0.0.1:{self.port}"
        properties = {
            **BROKER_PROPERTIES,
            "process.roles": "broker,controller" if self._is_controller else "broker",
            "listeners": f"{listeners},CONTROLLER://{self.controller}" if self._is_controller else listeners,
            "controller.quorum.voters": f"1@{self.controller}",
            "log.dirs": str(self.data_dir / "log"),
            **self._properties,
        }
        path = self.data_dir / "server.properties"
        path.write_text("".join(f"{name}={text}\n" for name, text in properties.items()), encoding="utf-8")
        return path

    def _format(self, java: str, settings: Path) -> None:
        """Format the first broker with Kafka's own tool; copy its files for the others, to save their JVMs."""
        folder = self.data_dir / "log"
        features = _FORMATTED.get(self.jars)
        if features is None:
            self._run_to_end(java, "kafka.tools.StorageTool", "format", "-t", self.cluster_id, "-c", str(settings))
            written = folder.rglob("*.checkpoint")  # the version may want one such file
            _FORMATTED[self.jars] = {path.relative_to(folder): path.read_bytes() for path in written}
            return
        for path, content in features.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
        node_id = {**BROKER_PROPERTIES, **self._properties}["node.id"]
        names = {"version": "1", "cluster.id": self.cluster_id, "node.id": node_id, "directory.id": _random_id()}
        (folder / "meta.properties").write_text("".join(f"{name}={text}\n" for name, text in names.items()))

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


# The features of a version, by the folder of its jars: the same for each new cluster of that version.
_FORMATTED: Final[dict[Path, dict[Path, bytes]]] = {}


def _random_id() -> str:
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
