"""Kafka's own Java as a second opinion: `java/Oracle.java`, compiled at first use, one process, asked over a pipe."""

import os
import struct
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from archiver.demo.sandbox import JAVA_OPTIONS
from archiver.process.running.children import start_child
from tests.support.compiled import compile_java
from tests.support.records import Headers, Rec


class JavaError(Exception):
    """What Java threw."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaBatch:
    """A record batch as Java reads it."""

    magic: int
    codec: str
    timestamp_type: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    transactional: bool
    control: bool
    leader_epoch: int
    size: int
    records: tuple[Rec, ...]


@dataclass(frozen=True, slots=True)
class Consumed:
    """A topic as Kafka's consumer sees it: records, and the [begin, end) it was read over, per partition."""

    records: Mapping[int, list[Rec]]
    ranges: Mapping[int, tuple[int, int]]


class JavaOracle:
    """Start it with the jars of one Kafka version and a folder for the compiled class. Not for several threads."""

    def __init__(self, jars: Path, cache: Path) -> None:
        self._classes = compile_java("Oracle", jars, cache)
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # closed by close()
        command = ["java", *JAVA_OPTIONS, "-Xmx1g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        command += ["-cp", f"{self._classes}:{jars}/*", "Oracle"]
        self._process = start_child(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log)

    @property
    def pid(self) -> int:
        return self._process.pid

    def consume(
        self, bootstrap: str, topic: str, *, isolation: str = "read_committed", timeout: float = 60.0
    ) -> Consumed:
        """Everything from the beginning to the end offsets as of now (read_committed: the last stable offsets)."""
        request = _text(bootstrap) + _text(topic) + _text(isolation) + struct.pack(">i", int(timeout * 1000))
        answer = self._ask(1, request)
        records: dict[int, list[Rec]] = {}
        for _ in range(answer.integer()):
            records.setdefault(answer.integer(), []).append(answer.record())
        ranges = {answer.integer(): (answer.long(), answer.long()) for _ in range(answer.integer())}
        return Consumed({partition: records.get(partition, []) for partition in ranges}, ranges)

    def build(
        self,
        records: Sequence[Rec],
        *,
        codec: str = "none",
        magic: int = 2,
        timestamp_type: int = 0,
        base_offset: int | None = None,
        last_offset: int | None = None,
        log_append_time: int = -1,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
        leader_epoch: int = 0,
    ) -> bytes:
        """One batch (magic 2) or message set (0, 1). Header keys must be UTF-8: Java holds them as strings.

        Several batches in one buffer are these, one after the other.
        """
        _refuse_broken_keys(records)
        first = records[0].offset if records else 0
        request = struct.pack(">b", magic) + _text(codec)
        request += struct.pack(">bqq", timestamp_type, first if base_offset is None else base_offset, log_append_time)
        request += struct.pack(">qhi?i", producer_id, producer_epoch, base_sequence, transactional, leader_epoch)
        request += struct.pack(">qi", -1 if last_offset is None else last_offset, len(records))
        return self._ask(2, request + b"".join(map(_record, records))).some_bytes()

    def marker(
        self, offset: int, *, commit: bool, producer_id: int, producer_epoch: int = 0, timestamp: int = 0
    ) -> bytes:
        """A control batch: the end of a transaction."""
        request = struct.pack(">qqiqh?i", offset, timestamp, 0, producer_id, producer_epoch, commit, 0)
        return self._ask(3, request).some_bytes()

    def empty(
        self,
        base_offset: int,
        last_offset: int,
        *,
        producer_id: int = 1,
        producer_epoch: int = 0,
        base_sequence: int = 0,
        timestamp: int = 0,
        transactional: bool = False,
    ) -> bytes:
        """A batch of which compaction has taken every record."""
        numbers = (base_offset, last_offset, producer_id, producer_epoch, base_sequence, 0, timestamp, transactional)
        return self._ask(4, struct.pack(">qqqhiiq?", *numbers)).some_bytes()

    def read(self, batches: bytes) -> list[JavaBatch] | JavaError:
        """Every whole batch, each checked; the first thing wrong in any of them comes back as an error value."""
        try:
            answer = self._ask(5, _blob(batches))
        except JavaError as error:
            return error
        answer.integer()  # bytes read
        return [answer.batch() for _ in range(answer.integer())]

    def produce(
        self, bootstrap: str, topic: str, records: Mapping[int, Sequence[Rec]], **properties: str
    ) -> dict[int, list[int]]:
        """Send records per partition; the offsets that the broker gave, per partition. Timestamps must not be negative.

        For partition -1 the client chooses, by the key.

        Properties are the producer's, `_` for `.` (compression_type="lz4"). With transactional_id the records join
        that id's open transaction, or begin one; `end_transaction` ends it.
        """
        _refuse_broken_keys([record for some in records.values() for record in some])
        settings = {"bootstrap.servers": bootstrap, "max.request.size": str(32 * 1024 * 1024)}
        # KAFKA-15591: a partition that was created just now may refuse a batch, as nobody leads it yet, and take the next one,
        # which was sent behind it. The first is then out of order each time it is sent again, until it expires.
        settings |= {"max.in.flight.requests.per.connection": "1"}
        settings |= {name.replace("_", "."): value for name, value in properties.items()}
        request = struct.pack(">i", len(settings)) + b"".join(_text(k) + _text(v) for k, v in settings.items())
        request += _text(topic) + struct.pack(">i", sum(map(len, records.values())))
        for partition, some in records.items():
            request += b"".join(struct.pack(">i", partition) + _record(record) for record in some)
        answer = self._ask(6, request)
        answer.integer()
        return {partition: [answer.long() for _ in some] for partition, some in records.items()}

    def end_transaction(self, transactional_id: str, *, commit: bool) -> None:
        self._ask(7, _text(transactional_id) + struct.pack(">?", commit))

    def close(self) -> None:
        """Open transactions stay open, as after a crash of their producer."""
        self._process.communicate(timeout=20)
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, operation: int, arguments: bytes) -> "_Answer":
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        logged = os.fstat(self._log.fileno()).st_size
        try:
            stdin.write(struct.pack(">ib", len(arguments) + 1, operation) + arguments)
            stdin.flush()
            (length,) = struct.unpack(">i", _read_exactly(stdout, 4))
            answer = _Answer(_read_exactly(stdout, length))
        except (EOFError, BrokenPipeError) as error:
            raise AssertionError(f"the Java oracle ended: {self._said_since(0)}") from error
        if answer.byte():
            refused = JavaError(answer.text(), answer.text())
            refused.add_note(self._said_since(logged))
            raise refused
        return answer

    def _said_since(self, start: int) -> str:
        """The last of its log behind a position: warnings of Kafka's clients, such as what a broker answered each time."""
        log = self._log.fileno()  # never moved: Java writes at the same position
        return os.pread(log, 3000, max(start, os.fstat(log).st_size - 3000)).decode(errors="replace")


def _refuse_broken_keys(records: Sequence[Rec]) -> None:
    for record in records:
        for key, _ in record.headers:
            key.decode()  # raises: Java would write something else


def _read_exactly(pipe: IO[bytes], count: int) -> bytes:
    content = pipe.read(count)
    if len(content) < count:
        raise EOFError
    return content


def _blob(content: bytes | None) -> bytes:
    return struct.pack(">i", -1) if content is None else struct.pack(">i", len(content)) + content


def _text(text: str) -> bytes:
    return _blob(text.encode())


def _record(record: Rec) -> bytes:
    parts = [struct.pack(">qqb", record.offset, record.timestamp, record.timestamp_type)]
    parts += [_blob(record.key), _blob(record.value), struct.pack(">i", len(record.headers))]
    for key, value in record.headers:
        parts += [_blob(key), _blob(value)]
    return b"".join(parts)


class _Answer:
    def __init__(self, content: bytes) -> None:
        self._pipe = BytesIO(content)

    def _number(self, form: str, size: int) -> int:
        (number,) = struct.unpack(form, self._pipe.read(size))
        return int(number)

    def byte(self) -> int:
        return self._number(">b", 1)

    def short(self) -> int:
        return self._number(">h", 2)

    def integer(self) -> int:
        return self._number(">i", 4)

    def long(self) -> int:
        return self._number(">q", 8)

    def blob(self) -> bytes | None:
        length = self.integer()
        return None if length < 0 else self._pipe.read(length)

    def some_bytes(self) -> bytes:
        content = self.blob()
        assert content is not None
        return content

    def text(self) -> str:
        return self.some_bytes().decode()

    def headers(self) -> Headers:
        return tuple((self.some_bytes(), self.blob()) for _ in range(self.integer()))

    def record(self) -> Rec:
        return Rec(self.long(), self.long(), self.byte(), self.blob(), self.blob(), self.headers())

    def batch(self) -> JavaBatch:
        return JavaBatch(
            magic=self.byte(),
            codec=self.text(),
            timestamp_type=self.byte(),
            base_offset=self.long(),
            last_offset=self.long(),
            max_timestamp=self.long(),
            producer_id=self.long(),
            producer_epoch=self.short(),
            base_sequence=self.integer(),
            transactional=bool(self.byte()),
            control=bool(self.byte()),
            leader_epoch=self.integer(),
            size=self.integer(),
            records=tuple(self.record() for _ in range(self.integer())),
        )
