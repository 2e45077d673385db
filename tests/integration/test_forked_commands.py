"""A command that was forked is what an installed one is: to the system, to what it asks, and to who started it."""

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from archiver.interrupt import INTERRUPTED
from tests.support.forked_commands import installed_commands, start_command
from tests.support.processes import command_of, state_of
from tests.support.service import eventually

STATUS = ("Umask", "Threads", "SigBlk", "SigIgn", "SigCgt", "Uid", "Groups")
forked_or_installed = pytest.mark.parametrize("is_forked", [True, False], ids=["forked", "installed"])


@pytest.fixture
def waiting_store() -> Iterator[tuple[int, list[bytes]]]:
    """A port, and what comes there. It answers nothing."""
    seen: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def listen() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                kept.append(connection)
                seen.append(connection.recv(65536))

        kept: list[socket.socket] = []
        thread = threading.Thread(target=listen)
        thread.start()
        yield server.getsockname()[1], seen
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
        for connection in kept:
            connection.close()


def start(folder: Path, *arguments: str, is_forked: bool, **environment: str) -> subprocess.Popen[str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("AWS_", "ARCHIVER_"))}
    with nullcontext() if is_forked else installed_commands():
        return start_command(
            arguments,
            cwd=folder,
            env={**kept, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def test_the_system_sees_the_same(tmp_path: Path, waiting_store: tuple[int, list[bytes]]) -> None:
    port, seen = waiting_store
    (tmp_path / "archive.yaml").write_text(f"storage: {{url: 's3://bucket', endpoint: 'http://127.0.0.1:{port}'}}\n")
    former = os.umask(0o027)
    try:
        found = []
        for is_forked in (True, False):
            secrets = {
                "AWS_ACCESS_KEY_ID": f"key-{is_forked}",
                "AWS_SECRET_ACCESS_KEY": "secret",
                "AWS_REGION": "north",
            }
            with start(tmp_path, "ls", "-c", "archive.yaml", is_forked=is_forked, **secrets) as process:
                credential = f"Credential=key-{is_forked}/".encode()
                eventually(lambda: any(credential in text for text in seen))  # noqa: B023 - called here
                assert ("command_server" in command_of(process.pid)) == is_forked
                found.append(seen_of(process.pid))
                process.send_signal(signal.SIGTERM)
                out, err = process.communicate(timeout=60)
                found[-1]["end"] = (process.returncode, out, err)
        assert found[0] == found[1]
        assert found[0]["end"] == (4, "", f"archiver: {INTERRUPTED}\n")
        assert found[0]["Umask"] == "0027"
    finally:
        os.umask(former)


def seen_of(pid: int) -> dict[str, object]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    found: dict[str, object] = {name: text.strip() for name, _, text in (line.partition(":") for line in lines)}
    found = {name: found[name] for name in STATUS}
    found["folder"] = str(Path(f"/proc/{pid}/cwd").readlink())
    # An installed command has one more pipe: its watcher's, by which it ends with the process that started it.
    found["files"] = {str(file.readlink()).partition(":")[0] for file in Path(f"/proc/{pid}/fd").iterdir()}
    found["session"] = os.getsid(pid) == os.getpgid(pid) == pid
    return found


@forked_or_installed
def test_a_killed_command_reports_its_signal(
    tmp_path: Path, waiting_store: tuple[int, list[bytes]], *, is_forked: bool
) -> None:
    port, seen = waiting_store
    (tmp_path / "archive.yaml").write_text(f"storage: {{url: 's3://bucket', endpoint: 'http://127.0.0.1:{port}'}}\n")
    secrets = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
    process = start(tmp_path, "ls", "-c", "archive.yaml", is_forked=is_forked, **secrets)
    eventually(lambda: bool(seen))
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    process.kill()
    assert process.communicate(timeout=60) == ("", "")
    assert (process.returncode, process.poll(), process.wait()) == (-signal.SIGKILL,) * 3
    eventually(lambda: state_of(process.pid) in {"", "Z"})
