"""Mutates batches, containers and frames. The codec must raise an error of ours, or read what an independent reader reads.

In this process, or as `python -m tests.support.codec_fuzz KIND SEED COUNT` with kernels uncompiled or bounds-checked.
"""

import io
import json
import logging
import os
import random
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import fastavro
import numba
import numpy as np
from fastavro.read import HEADER_SCHEMA

from archiver.codec import arrow_scan, avro, batch, batch_encoder, compression, rows, schemas
from archiver.codec.arrow_scan import Scanner
from archiver.codec.avro import BlockEncoder, decode_blocks, decode_header
from archiver.codec.batch import decode_batches
from archiver.codec.batch_encoder import BatchEncoder
from archiver.codec.compression import BatchCodec, BlockCodec, compress_block
from archiver.codec.frame import NULL_LENGTH, Column, Frame
from archiver.codec.kernels import avro_encode, digest, headers
from archiver.codec.kernels.varint import encode_long
from archiver.codec.selection import ALL_RECORDS, Selection
from archiver.errors import ArchiverError
from tests.support import reference_batch as rb
from tests.support.frames import avro_of, digest_of, frame_of, of_avro, records_of
from tests.support.mutations import NUMBERS, mutate
from tests.support.records import Rec, generate
from tests.support.scans import is_selected, rows_of, scan_row

Outcomes = Counter[str]
TOPIC, PARTITION = "t", 1
SYNC = bytes(range(16))
MOST_BYTES = 1 << 20
_NUMBA: Any = numba.config
UNCOMPILED = bool(_NUMBA.DISABLE_JIT)

# --- record batches ------------------------------------------------------------------------------------------------


def fuzz_batches(rng: random.Random) -> str:
    content, position = mutated_fetch(rng)
    try:
        decoded = decode_batches(content, position, most_bytes=MOST_BYTES)
    except ArchiverError as error:
        return type(error).__name__
    found = records_of(decoded.frame)
    expected = [record for record in oracle_records(content[: decoded.source_bytes]) if record.offset >= position]
    if found != expected:
        raise AssertionError(f"{position} {content.hex()}: {found} is not {expected}")
    assert (decoded.frame.table[[Column.KEY_LENGTH, Column.VALUE_LENGTH]] >= NULL_LENGTH).all()
    use(decoded.frame, found)
    return "read" if found else "read nothing"


def mutated_fetch(rng: random.Random) -> tuple[bytes, int]:
    records = generate(rng.randrange(2**32), rng.randint(1, 8), big_bytes=60, first_offset=rng.choice((0, 9, 2**40)))
    cut = rng.randint(1, len(records))
    batches = [_batch(rng, part) for part in (records[:cut], records[cut:]) if part]
    contents = [
        rb.encode(one, rb.Oddities(padding=rng.choice((0, 0, 1, 5)), raw_snappy=rng.random() < 0.5)) for one in batches
    ]
    victim = rng.randrange(len(contents))
    contents[victim] = _mutate_batch(rng, contents[victim])
    return b"".join(contents), records[rng.choice((0, 0, -1))].offset


def _batch(rng: random.Random, records: Sequence[Rec]) -> rb.Batch:
    return rb.batch_of(
        records,
        codec=rng.choice(("none", *rb.CODECS)),
        timestamp_type=rng.choice((0, 0, 1)),
        transactional=rng.random() < 0.2,
        control=rng.random() < 0.05,
    )


def _mutate_batch(rng: random.Random, content: bytes) -> bytes:
    kind = rng.random()
    if kind < 0.15:
        return mutate(rng, content)  # most of these end at the CRC
    head, payload = content[: rb.HEADER.size], content[rb.HEADER.size :]
    if kind < 0.35:
        after_crc = mutate(rng, head[rb.CRC_END :])[: rb.HEADER.size - rb.CRC_END]
        head = head[: rb.CRC_END] + after_crc.ljust(rb.HEADER.size - rb.CRC_END, b"\xff")
    elif kind < 0.5:
        payload = mutate(rng, payload)
    else:
        codec = rb.CODECS[head[22] & 7]
        plain = mutate(rng, rb.decompress(codec, payload))
        payload = rb.compress(codec, plain, raw_snappy=rng.random() < 0.5)
    return with_crc(head + payload)


def with_crc(content: bytes) -> bytes:
    """Make length and CRC right, so that what follows reaches the kernels."""
    changed = bytearray(content)
    struct.pack_into(">i", changed, 8, len(content) - rb.LENGTH_END)
    struct.pack_into(">I", changed, rb.CRC_END - 4, rb.crc32c(bytes(changed[rb.CRC_END :])))
    return bytes(changed)


class _LenientReader(rb._Reader):
    """As Java reads: any negative length is null, and bits beyond the 64th are lost."""

    def number(self) -> int:
        raw = super().number()
        # Undo the zigzag of the wide number, and do it again with 64 bits.
        wide = raw << 1 if raw >= 0 else (-raw << 1) - 1
        narrow = wide & 2**64 - 1
        return (narrow >> 1) ^ -(narrow & 1)

    def blob(self) -> bytes | None:
        length = self.number()
        return None if length < 0 else self.take(length)


def oracle_records(content: bytes) -> list[Rec]:
    """The records of batches that are not control batches, by the reference reader."""
    found: list[Rec] = []
    for one in _split(content):
        fields = rb.HEADER.unpack_from(one)
        base, _, _, _, _, attributes, _, base_timestamp, max_timestamp = fields[:9]
        if attributes & 0x20 or len(one) == rb.HEADER.size:
            continue
        reader = _LenientReader(rb.decompress(rb.CODECS[attributes & 7], one[rb.HEADER.size :]))
        append_time = max_timestamp if attributes & 8 else None
        found += [rb._read_record(reader, base, base_timestamp, append_time) for _ in range(fields[12])]
        assert not reader.rest()
    return found


def holds_control_batch(content: bytes) -> bool:
    return any(one[22] & 0x20 for one in _split(content))


def _split(content: bytes) -> Iterator[bytes]:
    while content:
        size = rb.LENGTH_END + int.from_bytes(content[8:12], "big")
        yield content[:size]
        content = content[size:]


# --- containers ----------------------------------------------------------------------------------------------------

_SCHEMAS = (schemas.RECORD, schemas.RECORD, schemas.RECORD_V1, schemas.RECORD_V1_NULLABLE)


def fuzz_containers(rng: random.Random) -> str:
    content = _mutated_container(rng)
    try:
        header = decode_header(content, "key")
    except ArchiverError as error:
        return type(error).__name__
    try:
        frames = list(decode_blocks(memoryview(content), header, topic=TOPIC, partition=PARTITION, key="key"))
    except ArchiverError as error:
        _check_scan(rng, content, header, None)
        return type(error).__name__
    found = records_of(*frames)
    _check_scan(rng, content, header, found)
    rows = fastavro.reader(io.BytesIO(content), handle_unicode_errors="surrogateescape")
    expected = [of_avro(cast("dict[str, Any]", row)) for row in rows]
    if _without_repeats(found) != _without_repeats(expected):
        raise AssertionError(f"{content.hex()}: {found} is not {expected}")
    for frame in frames:
        use(frame, records_of(frame))
    return "read" if found else "read nothing"


def _check_scan(
    rng: random.Random, content: bytes, header: avro.ContainerHeader, expected: Sequence[Rec] | None
) -> None:
    """Some columns and rows straight to Arrow: what the frames hold, or the same refusal; offsets that fall are one more."""
    columns = rng.sample(sorted(arrow_scan.COLUMN_TYPES), rng.randint(1, len(arrow_scan.COLUMN_TYPES)))
    selection = rng.choice((ALL_RECORDS, Selection(first_offset=1, last_offset=2), Selection(from_ms=1)))
    scanner = Scanner(topic=TOPIC, partition=PARTITION, columns=columns, batch_bytes=rng.choice((1, 1 << 20)))
    try:
        scanned = list(scanner.scan(memoryview(content), header, "key", selection))
    except ArchiverError as error:
        if expected is not None and "offsets do not rise" not in str(error):
            raise
        return
    if expected is None:
        raise AssertionError(f"{content.hex()}: scanned what is broken")
    chosen = [record for record in expected if is_selected(record, selection)]
    rows = [row for one in scanned for row in rows_of(one.batch)]
    if rows != [scan_row(record, columns, TOPIC, PARTITION) for record in chosen]:
        raise AssertionError(f"{content.hex()}: scanned {rows}")


def _without_repeats(records: Sequence[Rec]) -> list[tuple[object, ...]]:
    """A map that repeats a key is one header to fastavro, and two to us."""
    return [
        (r.offset, r.timestamp, r.timestamp_type, r.key, r.value, sorted(dict(r.headers).items(), key=str))
        for r in records
    ]


def _mutated_container(rng: random.Random) -> bytes:
    schema = rng.choice(_SCHEMAS)
    codec = rng.choice((BlockCodec.NULL, *BlockCodec))
    records = generate(rng.randrange(2**32), rng.randint(1, 4), big_bytes=60)
    head, body = _head(schema, codec), b"".join(_avro_bytes(record, schema) for record in records)
    kind = rng.random()
    if kind < 0.75:
        body = mutate(rng, body)
    count = len(records) if rng.random() < 0.95 else rng.choice((0, len(records) + 1, 2**40))
    payload = compress_block(codec, np.frombuffer(body, np.uint8), 1)
    if 0.75 < kind < 0.85:
        payload = mutate(rng, payload)
    content = head + encode_long(count) + encode_long(len(payload)) + payload + SYNC
    return mutate(rng, content) if kind > 0.85 else content


@cache
def _parsed(schema: str) -> Any:  # noqa: ANN401
    return fastavro.parse_schema(json.loads(schemas.load_schema(schema)))


@cache
def _head(schema: str, codec: BlockCodec) -> bytes:
    """Entry by entry: fastavro.writer has them in another order in every second process, and then no seed replays."""
    meta = {
        "avro.codec": codec.value.encode(),
        "avro.schema": json.dumps(json.loads(schemas.load_schema(schema))).encode(),
    }
    target = io.BytesIO()
    fastavro.schemaless_writer(target, HEADER_SCHEMA, {"magic": b"Obj\x01", "meta": meta, "sync": SYNC})
    return target.getvalue()


def _avro_bytes(record: Rec, schema: str) -> bytes:
    value = avro_of(record, TOPIC, PARTITION)
    if schema == schemas.RECORD_V1:
        value["value"] = value["value"] or b""
    target = io.BytesIO()
    fastavro.schemaless_writer(target, _parsed(schema), value)
    return target.getvalue()


# --- frames --------------------------------------------------------------------------------------------------------


def fuzz_frames(rng: random.Random) -> str:
    """Tables that point anywhere: a ValueError, or what the slow reader of frames sees."""
    frame = frame_of(generate(rng.randrange(2**32), rng.randint(1, 4), big_bytes=60))
    for _ in range(rng.choice((1, 1, 2))):
        numbers = (*NUMBERS, len(frame.body), len(frame.body) - 1, len(frame.header_body), rng.randrange(100))
        frame.table[rng.randrange(2, len(Column)), rng.randrange(len(frame))] = rng.choice(numbers)
    if UNCOMPILED:
        body, header_body, table = (part.view(_StrictArray) for part in (frame.body, frame.header_body, frame.table))
        frame = Frame(body=body, header_body=header_body, table=table)
    try:
        records = records_of(frame)
    except (AssertionError, IndexError):
        return f"refused by {sum(map(_refuses(frame), (_encode_avro, _encode_batch, _survey, _rows)))}"
    if not all(-1 <= record.timestamp_type <= 1 for record in records):
        assert _refuses(frame)(_survey)
        return "refused for its type"
    use(frame, records)
    return "read"


def _refuses(frame: Frame) -> Callable[[Callable[[Frame], object]], bool]:
    def try_it(attempt: Callable[[Frame], object]) -> bool:
        try:
            attempt(frame)
        except ValueError:
            return True
        return False

    return try_it


def _encode_avro(frame: Frame) -> bytes:
    encoder = BlockEncoder(topic=TOPIC, partition=PARTITION, codec=BlockCodec.NULL, level=1, sync=SYNC)
    row = 0
    while row < len(frame):
        row = encoder.append(frame, row, len(frame))
    return _head(schemas.RECORD, BlockCodec.NULL) + b"".join(encoder.flush())


def _encode_batch(frame: Frame) -> bytes:
    encoder = BatchEncoder(
        codec=BatchCodec.NONE, batch_bytes=1 << 16, most_bytes=1 << 20, producer_id=1, producer_epoch=0
    )
    encoder.append(frame, 0)
    return encoder.flush().content.tobytes()


def _survey(frame: Frame) -> int:
    found = np.zeros(digest.SURVEY_SIZE, np.int64)
    if not digest.add_rows(frame.body, frame.header_body, frame.table, 0, len(frame), found):
        raise ValueError("refused")
    return int(found[digest.DIGEST])


def _rows(frame: Frame) -> list[rows.PlainRecord]:
    return list(rows.plain_records_of(frame))


def use(frame: Frame, records: Sequence[Rec]) -> None:
    """Give the result of one codec to all others."""
    if not records:
        return
    values = [avro_of(record, TOPIC, PARTITION) for record in records]
    assert list(fastavro.reader(io.BytesIO(_encode_avro(frame)))) == values
    assert _survey(frame) == digest_of(records)
    assert [row.value for row in _rows(frame)] == [record.value for record in records]
    encoded = oracle_records(_encode_batch(frame))
    wanted = [
        Rec(row, record.timestamp, 0, record.key, record.value, record.headers) for row, record in enumerate(records)
    ]
    assert encoded == wanted


# --- runs ----------------------------------------------------------------------------------------------------------


class _StrictArray(np.ndarray[Any, Any]):
    """Refuses negative indices, with which numpy counts from the end."""

    def __getitem__(self, key: Any) -> Any:  # noqa: ANN401
        _refuse_negative(key)
        return super().__getitem__(key)

    def __setitem__(self, key: Any, value: Any) -> None:  # noqa: ANN401
        _refuse_negative(key)
        super().__setitem__(key, value)


def _refuse_negative(key: object) -> None:
    for part in key if isinstance(key, tuple) else (key,):
        if isinstance(part, int | np.integer) and part < 0:
            raise IndexError(f"index {part}")


class _StrictNumpy:
    """numpy, but for the arrays it makes: they refuse negative indices."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(np, name)

    def empty(self, shape: Any, dtype: Any = float) -> Any:  # noqa: ANN401
        return np.empty(shape, dtype).view(_StrictArray)

    def full(self, shape: Any, value: Any, dtype: Any) -> Any:  # noqa: ANN401
        return np.full(shape, value, dtype).view(_StrictArray)

    def frombuffer(self, *arguments: Any) -> Any:  # noqa: ANN401
        return np.frombuffer(*arguments).view(_StrictArray)


@contextmanager
def strict_numpy() -> Iterator[None]:
    """Where kernels are not compiled, numpy itself refuses what lies behind an array, and this what lies before it."""
    with ExitStack() as patched:
        for module in (rows, arrow_scan, avro, batch, batch_encoder, compression, avro_encode, headers):
            if UNCOMPILED:
                patched.enter_context(patch.object(module, "np", _StrictNumpy()))
        yield


@contextmanager
def small_blocks() -> Iterator[None]:
    with patch.object(avro, "MOST_BLOCK_BYTES", MOST_BYTES), patch.object(arrow_scan, "MOST_BLOCK_BYTES", MOST_BYTES):
        yield


KINDS: dict[str, Callable[[random.Random], str]] = {
    "batches": fuzz_batches,
    "containers": fuzz_containers,
    "frames": fuzz_frames,
}


@contextmanager
def without_logs() -> Iterator[None]:
    """Log nothing: most cases log something, and pytest keeps it."""
    before = logging.root.manager.disable
    logging.disable()
    try:
        yield
    finally:
        logging.disable(before)


def run(kind: str, seed: int, count: int) -> Outcomes:
    with small_blocks():
        return run_cases(KINDS[kind], kind, seed, count)


def run_cases(fuzz: Callable[[random.Random], str], kind: str, seed: int, count: int) -> Outcomes:
    """Each case has a seed of its own, which an error names."""
    outcomes: Outcomes = Counter()
    with strict_numpy():
        for case in range(count):
            try:
                outcomes[fuzz(random.Random(f"{seed}-{case}"))] += 1
            except Exception as error:
                error.add_note(f"{kind}, seed {seed}, case {case}")
                raise
    return outcomes


REPOSITORY = Path(__file__).parents[2]


def run_apart(module: str, kind: str, switch: str, seed: int, count: int) -> dict[str, int]:
    """Run a fuzz module's cases in a process of its own, with kernels as `switch` of numba has them."""
    command = [sys.executable, "-m", module, kind, str(seed), str(count)]
    environment = {**os.environ, switch: "1"}
    done = subprocess.run(command, env=environment, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    outcomes: dict[str, int] = json.loads(done.stdout)
    return outcomes


def main(run: Callable[[str, int, int], Outcomes]) -> None:
    """What such a process does."""
    np.seterr(all="ignore")  # kernels wrap on purpose
    print(json.dumps(run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))


if __name__ == "__main__":
    main(run)
