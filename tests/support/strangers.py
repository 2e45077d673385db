"""Another user of this machine, who tries what can be tried of a Spark without its secret.

As a program it is told places on stdin, becomes that user, and prints what it got. It knows Spark's protocol as far as a
block takes: frames of a length and a type.
"""

import json
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

NOBODY: Final = 65534
PATIENCE_S: Final = 1.0  # who asks for more before it answers does not answer
UNASKED_S: Final = 0.3
RPC_REQUEST, RPC_RESPONSE, CHUNK_REQUEST, CHUNK = 3, 4, 0, 1
BLOCKS: Final = [f"broadcast_{number}_piece0" for number in range(2)]  # of tasks
PY4J_CALL: Final = b"c\nz:java.lang.System\ngetProperty\nsuser.name\ne\n"


def what_a_stranger_gets(ports: list[int], sockets: list[str], files: list[str], *, uid: int) -> list[str]:
    """Try all of these as this user."""
    told = json.dumps({"ports": ports, "sockets": sockets, "files": files, "uid": uid})
    command = [sys.executable, "-I", "-S", __file__]
    done = subprocess.run(command, input=told, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    got: list[str] = json.loads(done.stdout)
    return got


def gains(ports: list[int], sockets: list[str], files: list[str]) -> Iterator[str]:
    for port in ports:
        if unasked := unasked_of(port):
            yield f"{unasked!r} of {port}, unasked"
        for block in BLOCKS:
            if found := block_of(port, block):
                yield f"{block} of {port}: {len(found)} bytes"
        if (answer := answer_of(port, PY4J_CALL)).startswith(b"!y"):
            yield f"{answer!r} of {port}"
    for path in sockets:
        with socket.socket(socket.AF_UNIX) as connection:
            try:
                connection.connect(path)
                yield f"a connection to {path}"
            except PermissionError:
                pass
    for path in files:
        if os.access(path, os.R_OK) or os.access(path, os.W_OK):
            yield f"a way into {path}"


def connect(port: int) -> socket.socket:
    made = socket.socket()  # create_connection imports an encoding, which this user may not read
    made.settimeout(PATIENCE_S)
    made.connect(("127.0.0.1", port))
    return made


def unasked_of(port: int) -> bytes:
    with connect(port) as connection:
        connection.settimeout(UNASKED_S)
        try:
            return connection.recv(100)
        except OSError:
            return b""


def answer_of(port: int, request: bytes) -> bytes:
    with connect(port) as connection:
        try:
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            return connection.recv(1000)
        except OSError:
            return b""


def block_of(port: int, block: str) -> bytes:
    """Fetch a block as executors do: open a stream of it, and ask for its first chunk."""
    with connect(port) as connection, connection.makefile("rb") as answers:
        try:
            asked = b"\0" + text("app") + text("driver") + struct.pack(">i", 1) + text(block)
            connection.sendall(frame(struct.pack(">bqi", RPC_REQUEST, 1, len(asked)) + asked))
            opened = next_frame(answers)
            if opened[:1] != bytes([RPC_RESPONSE]):
                return b""
            connection.sendall(frame(struct.pack(">b", CHUNK_REQUEST) + opened[14:22] + bytes(4)))
            got = next_frame(answers)
            return got[13:] if got[:1] == bytes([CHUNK]) else b""
        except (OSError, struct.error):  # nothing, or hung up
            return b""


def text(part: str) -> bytes:
    return struct.pack(">i", len(part)) + part.encode()


def frame(message: bytes) -> bytes:
    return struct.pack(">q", 8 + len(message)) + message


def next_frame(answers: IO[bytes]) -> bytes:
    (length,) = struct.unpack(">q", answers.read(8))
    return answers.read(max(0, min(length - 8, 1 << 24)))


def listening(pids: list[int]) -> tuple[list[tuple[str, int]], list[str]]:
    """Where processes listen: addresses and ports of TCP, and paths."""
    inodes = set()
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):
                inodes.add(str(link.readlink()).removeprefix("socket:[").removesuffix("]"))
    tcp = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    unix = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    heard = [row[1].rpartition(":") for row in tcp if row[3] == "0A" and row[9] in inodes]
    paths = {row[7] for row in unix if len(row) > 7 and row[3] == "00010000" and row[6] in inodes}
    return [(address, int(port, 16)) for address, _, port in heard], sorted(paths)


def main() -> None:
    told = json.load(sys.stdin)
    if told["uid"] != os.geteuid():
        os.setgroups([])
        os.setgid(told["uid"])
        os.setuid(told["uid"])
    json.dump(list(gains(told["ports"], told["sockets"], told["files"])), sys.stdout)


if __name__ == "__main__":
    main()
