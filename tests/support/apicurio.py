"""Apicurio Registry, a program of others, over its Confluent API. It keeps a journal of all changes in a topic, and its ids come by reading that again."""

import json
import subprocess
import tarfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from archiver.demo.sandbox import JAVA_OPTIONS
from archiver.errors import ArchiverError
from tests.support.brokers import REPOSITORY, Broker
from tests.support.kafka_broker import free_ports
from tests.support.parts import APICURIO, fetch_part
from tests.support.schema_registry import TOPIC, Reference, Registry, Told
from tests.support.servers import serving
from tests.support.target_topics import set_configs

_READY_S = 60.0
_IDS_ASKED = 40  # there is no list of ids
_NOT_FOUND = 404


@contextmanager
def apicurio(broker: Broker, folder: Path) -> Iterator[Registry]:
    """A registry over the topic of a broker, until the end of the block. `folder` is for the program and its log.

    It refuses to start on a compacted topic, though it says that compaction does nothing to it: its topic is one again as
    soon as it has started.
    """
    java, program = _java_or_skip(), _unpacked(folder)
    port, management = free_ports(2)
    settings = {
        "APICURIO_STORAGE_KIND": "kafkasql",
        "APICURIO_KAFKASQL_BOOTSTRAP_SERVERS": broker.bootstrap,
        "APICURIO_KAFKASQL_TOPIC": TOPIC,
        "APICURIO_KAFKASQL_CONSUMER_POLL_TIMEOUT": "100",
        "APICURIO_REST_DELETION_ARTIFACT_ENABLED": "true",
        "APICURIO_REST_DELETION_ARTIFACT_VERSION_ENABLED": "true",
        "QUARKUS_HTTP_HOST": "127.0.0.1",
        "QUARKUS_HTTP_PORT": str(port),
        "QUARKUS_MANAGEMENT_HOST": "127.0.0.1",
        "QUARKUS_MANAGEMENT_PORT": str(management),
    }
    set_configs(broker, TOPIC, cleanup_policy="delete", retention_ms="-1")
    command = [java, *JAVA_OPTIONS, f"-Djava.io.tmpdir={folder}", "-jar", str(program)]
    with serving(command, port, folder / f"apicurio-{port}.log", settings):
        _wait_until_ready(f"http://127.0.0.1:{management}/health/ready")
        set_configs(broker, TOPIC, cleanup_policy="compact")
        yield _Apicurio(f"http://127.0.0.1:{port}/apis/ccompat/v7")


class _Apicurio:
    def __init__(self, url: str) -> None:
        self._url = url

    def register(self, subject: str, schema: str, *references: Reference) -> int:
        named = [{"name": one.name, "subject": one.subject, "version": one.version} for one in references]
        answer = self._ask("POST", f"/subjects/{_quoted(subject)}/versions", {"schema": schema, "references": named})
        return int(answer["id"])

    def delete(self, subject: str, version: int | None = None, *, permanently: bool = False) -> None:
        path = f"/subjects/{_quoted(subject)}" + ("" if version is None else f"/versions/{version}")
        self._ask("DELETE", path + ("?permanent=true" if permanently else ""))

    def set_compatibility(self, level: str, subject: str = "") -> None:
        self._ask("PUT", f"/config/{_quoted(subject)}".rstrip("/"), {"compatibility": level})

    def told(self) -> Told:
        known = self._ask("GET", "/subjects?deleted=true")
        asked = {number: self._find(f"/schemas/ids/{number}") for number in range(1, _IDS_ASKED)}
        levels = {subject: self._find(f"/config/{_quoted(subject)}") for subject in known}
        return Told(
            subjects={subject: dict(self._versions(subject)) for subject in self._ask("GET", "/subjects")},
            with_deleted={
                subject: tuple(self._ask("GET", f"/subjects/{_quoted(subject)}/versions?deleted=true"))
                for subject in known
            },
            ids={number: found["schema"] for number, found in asked.items() if found is not None},
            compatibility={
                "": self._ask("GET", "/config")["compatibilityLevel"],
                **{subject: found["compatibilityLevel"] for subject, found in levels.items() if found is not None},
            },
        )

    def _versions(self, subject: str) -> Iterator[tuple[int, tuple[int, str, tuple[Reference, ...]]]]:
        for version in self._ask("GET", f"/subjects/{_quoted(subject)}/versions"):
            told = self._ask("GET", f"/subjects/{_quoted(subject)}/versions/{version}")
            references = tuple(Reference(**one) for one in told.get("references", ()))
            yield version, (told["id"], told["schema"], references)

    def _find(self, path: str) -> Any:  # noqa: ANN401 - JSON
        try:
            return self._ask("GET", path)
        except urllib.error.HTTPError as refused:
            if refused.code != _NOT_FOUND:
                raise
            return None

    def _ask(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 - JSON
        sent = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self._url + path, sent, {"Content-Type": "application/vnd.schemaregistry.v1+json"}, method=method
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)


def _quoted(subject: str) -> str:
    return urllib.parse.quote(subject, safe="")


def _java_or_skip() -> str:
    found = subprocess.run([REPOSITORY / "infra" / "java.sh"], capture_output=True, text=True, check=False)
    if found.returncode != 0:
        pytest.skip(found.stderr)
    return found.stdout.strip()


def _unpacked(folder: Path) -> Path:
    program = folder / "apicurio" / "quarkus-run.jar"
    if not program.is_file():
        try:
            (packed,) = fetch_part(APICURIO).iterdir()
        except ArchiverError as error:
            pytest.skip(str(error))
        with tarfile.open(packed) as archive:
            archive.extractall(program.parent, filter="data")
    return program


def _wait_until_ready(url: str) -> None:
    """It answers before it has read its topic."""
    deadline_s = time.monotonic() + _READY_S
    while not _is_ready(url):
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"{url} does not say that the registry is ready")
        time.sleep(0.1)


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
