"""The demo's broker as tests need it: clusters, other properties, restarts, kept classes, and ports that no other process is given."""

import random
import socket
import tempfile
from collections import deque
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final, Self

from archiver.demo import sandbox
from archiver.demo.sandbox import BROKER_PROPERTIES, JAVA_OPTIONS, PORTS, random_id
from archiver.errors import ArchiverError
from archiver.process.machine.jvm_classes import options_to_read, options_to_write


def keep_classes(jars: Path) -> None:
    """Start and stop a broker once, which takes five seconds: from then on brokers with these jars start with half the CPU."""
    classes = classes_of(jars)
    classes.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="kafka-") as folder, options_to_write(classes) as options:
        broker = KafkaBroker(jars, Path(folder), java_options=(*JAVA_OPTIONS, *options))
        broker.start()
        broker.stop()


def classes_of(jars: Path) -> Path:
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


_MOST_HELD: Final = 64
_HELD: Final[deque[socket.socket]] = deque()


class KafkaBroker(sandbox.KafkaBroker):
    """Broker and controller of a cluster of its own; with `joins`, one more broker of that one's cluster, which needs the property `node.id`."""

    def __init__(
        self,
        jars: Path,
        data_dir: Path,
        *,
        joins: Self | None = None,
        properties: Mapping[str, str] | None = None,
        java_options: tuple[str, ...] = JAVA_OPTIONS,
    ) -> None:
        super().__init__(jars, data_dir, java_options=java_options)
        self._is_controller = joins is None
        if joins is not None:
            self.controller, self.cluster_id = joins.controller, joins.cluster_id
        self._properties = dict(properties or {})

    @property
    def pid(self) -> int:
        """The process id of the running broker's JVM."""
        if self._process is None:
            raise ArchiverError("the broker is not running")
        return self._process.pid

    def restart(self, timeout: float = 60.0) -> None:
        """Stop the broker, and start it on the same port with the same data."""
        self.stop()
        self.start(timeout)

    def _free_ports(self, count: int) -> list[int]:
        return free_ports(count)

    def _java(self, java: str) -> list[str]:
        command, *options = super()._java(java)
        return [command, *options_to_read(classes_of(self.jars)), *options]

    def _properties_of_node(self) -> dict[str, str]:
        found = super()._properties_of_node()
        if not self._is_controller:
            found |= {"process.roles": "broker", "listeners": f"PLAINTEXT://127.0.0.1:{self.port}"}
        return {**found, **self._properties}

    def _format(self, java: str, settings: Path) -> None:
        """Format the first broker with Kafka's own tool; copy its files for the others, to save their JVMs."""
        folder = self.data_dir / "log"
        features = _FORMATTED.get(self.jars)
        if features is None:
            super()._format(java, settings)
            written = folder.rglob("*.checkpoint")  # the version may want one such file
            _FORMATTED[self.jars] = {path.relative_to(folder): path.read_bytes() for path in written}
            return
        for path, content in features.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
        node_id = {**BROKER_PROPERTIES, **self._properties}["node.id"]
        names = {"version": "1", "cluster.id": self.cluster_id, "node.id": node_id, "directory.id": random_id()}
        (folder / "meta.properties").write_text("".join(f"{name}={text}\n" for name, text in names.items()))


# The features of a version, by the folder of its jars: the same for each new cluster of that version.
_FORMATTED: Final[dict[Path, dict[Path, bytes]]] = {}
