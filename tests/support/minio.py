"""A MinIO server as a process of our own, on a free port of 127.0.0.1."""

import http.client
import os
import shutil
import signal
import ssl
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from archiver.process.running.children import start_child
from tests.support.kafka_broker import free_ports

_REPOSITORY = Path(__file__).resolve().parents[2]
_START_SECONDS = 30.0
_STOP_SECONDS = 10.0


def find_minio() -> Path | None:
    """The minio binary: $ARCHIVER_MINIO, else the one that set-up built of the pinned module; None when there is none.

    No other one is taken, such as one in PATH: nothing tells its version. One that was asked for by name and is not there is an
    error.
    """
    named = os.environ.get("ARCHIVER_MINIO")
    if named:
        if not Path(named).is_file():
            raise FileNotFoundError(f"no minio binary at {named}")
        return Path(named)
    built = _REPOSITORY / ".cache" / "bin" / "minio"
    return built if os.access(built, os.X_OK) else None


def minio_or_skip(certificates: Path | None = None, environment: Mapping[str, str] | None = None) -> "Minio":
    """A started server. Without a binary the test is skipped, or fails under ARCHIVER_REQUIRE_REAL=1."""
    binary = find_minio()
    if binary is not None:
        minio = Minio(binary, certificates, environment)
        minio.start()
        return minio
    reason = "no minio binary: `make setup` builds one, or name one in $ARCHIVER_MINIO"
    if os.environ.get("ARCHIVER_REQUIRE_REAL") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


class Minio:
    """One server over a temporary folder, which goes with it. `start` waits until it answers; `stop` may be repeated."""

    access_key = "archiver-test"
    secret_key = "archiver-test-secret"

    def __init__(
        self, binary: Path, certificates: Path | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        """`certificates`: a folder with public.crt and private.key; then it speaks TLS."""
        self._binary = binary
        self._certificates = certificates
        self._environment = environment or {}
        self._port = 0
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"{'https' if self._certificates else 'http'}://127.0.0.1:{self._port}"

    @property
    def drive(self) -> Path:
        """Where its objects lie."""
        if self._folder is None:
            raise RuntimeError("MinIO is not running")
        return self._folder / "drive"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("MinIO is not running")
        return self._process.pid

    def start(self) -> None:
        """Ready for requests on return. Another process may take the free port first: hence three tries."""
        for attempt in range(3):
            try:
                self._start_once()
            except RuntimeError:
                self.stop()
                if attempt == 2:
                    raise
            else:
                return

    def _start_once(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="minio-"))
        (self._port,) = free_ports(1)
        environment = {
            **os.environ,
            "MINIO_ROOT_USER": self.access_key,
            "MINIO_ROOT_PASSWORD": self.secret_key,
            "MINIO_BROWSER": "off",
            "MINIO_UPDATE": "off",
            **self._environment,
        }
        command = [str(self._binary), "server", str(self.drive), "--address", f"127.0.0.1:{self._port}"]
        command += ["--certs-dir", str(self._certificates)] if self._certificates else []
        with (self._folder / "log").open("wb") as log:
            self._process = start_child(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
        self._wait_until_ready()

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not self._is_ready() or self._has_ended():  # ready, but ended: another server took the port
            if self._has_ended():
                raise RuntimeError(f"MinIO ended at start:\n{self._log()}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"MinIO did not answer within {_START_SECONDS} s:\n{self._log()}")
            time.sleep(0.05)

    def _is_ready(self) -> bool:
        anyone = ssl._create_unverified_context()
        connection = (
            http.client.HTTPSConnection("127.0.0.1", self._port, timeout=2, context=anyone)
            if self._certificates
            else http.client.HTTPConnection("127.0.0.1", self._port, timeout=2)
        )
        try:
            connection.request("GET", "/minio/health/ready")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def _has_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def _log(self) -> str:
        return "" if self._folder is None else (self._folder / "log").read_text(errors="replace")[-4000:]

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        folder, self._folder = self._folder, None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
