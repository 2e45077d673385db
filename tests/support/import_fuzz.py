"""Mutates what imports read. An import must raise an error of ours, or read what an independent reader reads.

In this process, or as `python -m tests.support.import_fuzz KIND SEED COUNT` with kernels uncompiled or bounds-checked. Another format
is one more entry of KINDS: a function that makes an input from a random generator, reads it, compares, and returns what came of it.
"""

import random
import struct
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from archiver.codec.batch import decode_batches
from archiver.errors import ArchiverError
from tests.support import message_sets as ms
from tests.support import reference_batch as rb
from tests.support.codec_fuzz import MOST_BYTES, Outcomes, main, oracle_records, run_cases, use, with_crc, without_logs
from tests.support.frames import records_of
from tests.support.imported_logs import import_logs, imported_records
from tests.support.mutations import NUMBERS, mutate
from tests.support.records import Rec, generate

_POISON = b"\x07" * 64  # around an input: what is read outside of it shows in a record
_OLD_CODECS = (0, 0, ms.GZIP, ms.SNAPPY, ms.LZ4)
Sets = list[bytes]  # each is one batch, or one outer message

# --- message sets and batches --------------------------------------------------------------------------------------


# A damaged gzip stream may copy bytes from before its start. zlib refuses that; cramjam takes zeros, and the stream's
# own CRC-32, which it checks, then proves that these were the bytes.
_BEFORE_THE_START = "invalid distance too far back"


def fuzz_sets(rng: random.Random) -> str:
    """Sets of all formats behind each other, as a broker or a file gives them."""
    sets = made_sets(rng, rng.choice((0, 9, 2**40)))
    content = b"".join(mutated_sets(rng, sets))
    if rng.random() < 0.2:
        content = mutate(rng, content)
    place = memoryview(_POISON + content + _POISON)[len(_POISON) : len(_POISON) + len(content)]
    position, found = 0, 0
    while len(place):
        try:
            decoded = decode_batches(place, position, most_bytes=MOST_BYTES)
        except ArchiverError as error:
            return f"read, then {type(error).__name__}" if found else type(error).__name__
        records = records_of(*decoded.frames())
        try:
            expected, wrong_inside, cut_sets = read_all(place[: decoded.source_bytes].tobytes(), position)
        except rb.BrokenBatchError as error:
            if _BEFORE_THE_START not in str(error):
                raise
            return "read, where zlib refuses a copy from before the start"
        if records != expected or (decoded.wrong_inside, decoded.cut_sets) != (wrong_inside, cut_sets):
            raise AssertionError(f"{position} {content.hex()}: {records} is not {expected}")
        found += len(records)
        if rng.random() < 0.1:
            use(decoded.frame, records)
        position, place = decoded.next_offset, place[decoded.source_bytes :]
    return "read" if found else "read nothing"


def made_sets(rng: random.Random, first: int) -> Sets:
    records = generate(rng.randrange(2**32), rng.randint(1, 8), big_bytes=60, first_offset=first)
    sets: Sets = []
    while records:
        count = rng.randint(1, len(records))
        sets += _made(rng, records[:count])
        records = records[count:]
    return sets


def _made(rng: random.Random, records: Sequence[Rec]) -> Sets:
    magic, codec = rng.randint(0, 2), rng.choice(_OLD_CODECS)
    if magic == 2:
        kind = rng.choice((0, 0, 1))
        odd = rb.Oddities(padding=rng.choice((0, 0, 1)), raw_snappy=rng.random() < 0.5)
        return [rb.encode(rb.batch_of(records, codec=rng.choice(rb.CODECS), timestamp_type=kind), odd)]
    attributes = ms.APPEND_TIME if magic and rng.random() < 0.3 else 0
    if not codec:
        return [_message(one, one.offset, magic, attributes) for one in records]
    base, last = records[0].offset if magic else 0, records[-1].offset
    inner = b"".join(_message(one, one.offset - base, magic, attributes * rng.randint(0, 1)) for one in records)
    return [ms.wrapper(last, inner, magic=magic, attributes=attributes | codec, xerial=rng.random() < 0.5)]


def _message(one: Rec, offset: int, magic: int, attributes: int) -> bytes:
    return ms.message(offset, one.value, one.key, magic=magic, attributes=attributes, time=one.timestamp)


def mutated_sets(rng: random.Random, sets: Sets) -> Sets:
    changed, kind = list(sets), rng.random()
    victim = rng.randrange(len(sets))
    if kind < 0.85:
        changed[victim] = _mutated(rng, changed[victim])
    elif kind < 0.9:
        changed.insert(rng.randrange(len(changed) + 1), changed[victim])
    elif kind < 0.95:
        changed.append(changed.pop(victim))
    else:
        changed[victim] = _nested(rng, changed[victim])
    return changed


def _mutated(rng: random.Random, content: bytes) -> bytes:
    """Most with length and checksum made right again, so that what is behind them is reached."""
    kind = rng.random()
    if kind < 0.15:
        return mutate(rng, content)
    magic = content[16]
    start = rb.HEADER.size if magic == 2 else _payload_start(content)
    if kind < 0.4:
        begin = rb.CRC_END if magic == 2 else 16
        head = mutate(rng, content[begin:start])
        if magic == 2:  # of fixed size
            head = head[: rb.HEADER.size - begin].ljust(rb.HEADER.size - begin, b"\xff")
        return _sealed(content[:begin] + head + content[start:])
    if kind < 0.5:
        return _sealed(struct.pack(">q", rng.choice(NUMBERS) % 2**63) + content[8:])
    if kind < 0.7 or not content[22 if magic == 2 else 17] & 7:
        return _sealed(content[:start] + mutate(rng, content[start:]))
    return _with_inner(rng, content, lambda plain: mutate(rng, plain))


def _with_inner(rng: random.Random, content: bytes, change: Callable[[bytes], bytes]) -> bytes:
    magic, codec = content[16], content[22 if content[16] == 2 else 17] & 7
    xerial = rng.random() < 0.5
    if magic == 2:
        plain = change(rb.decompress(rb.CODECS[codec], content[rb.HEADER.size :]))
        return with_crc(content[: rb.HEADER.size] + rb.compress(rb.CODECS[codec], plain, raw_snappy=not xerial))
    start = _payload_start(content)
    payload = ms.packed(change(ms.unpacked(content[start:], codec, magic)), codec, magic, xerial=xerial)
    return ms.fitted(content[: start - 4] + struct.pack(">i", len(payload)) + payload)


def _nested(rng: random.Random, content: bytes) -> bytes:
    """A set inside a set, or one of another format."""
    magic, offset = rng.randint(0, 1), int.from_bytes(content[:8], "big", signed=True)
    return ms.wrapper(abs(offset), content, magic=magic, attributes=rng.choice((ms.GZIP, ms.SNAPPY, ms.LZ4)))


def _payload_start(content: bytes) -> int:
    """Where the value of a message begins."""
    key_at = 26 if content[16] else 18
    return key_at + 8 + max(0, int.from_bytes(content[key_at : key_at + 4], "big", signed=True))


def _sealed(content: bytes) -> bytes:
    if len(content) <= 16:
        return content  # too little is left
    return with_crc(content) if content[16] == 2 else ms.fitted(content)


def read_all(content: bytes, position: int) -> tuple[list[Rec], int, int]:
    """What the independent readers read; raises BrokenBatchError for what they refuse."""
    records: list[Rec] = []
    wrong_inside = cut_sets = 0
    for one in split(content):
        if one[16] == 2:
            if rb.crc32c(one[rb.CRC_END :]) != int.from_bytes(one[17:21], "big"):
                raise rb.BrokenBatchError("CRC")
            records += _batch_records(one)
        else:
            found = ms.read_message(one)
            records += found.records
            wrong_inside, cut_sets = wrong_inside + found.wrong_inside, cut_sets + found.cut_sets
    offsets = [record.offset for record in records]
    if offsets != sorted(set(offsets)) or (offsets and offsets[0] < 0):
        raise rb.BrokenBatchError("offsets do not rise")
    return [record for record in records if record.offset >= position], wrong_inside, cut_sets


def _batch_records(content: bytes) -> list[Rec]:
    try:
        return oracle_records(content)
    except (AssertionError, struct.error, IndexError) as error:
        raise rb.BrokenBatchError(str(error)) from error


def split(content: bytes) -> Iterator[bytes]:
    while content:
        size = 12 + int.from_bytes(content[8:12], "big")
        yield content[:size]
        content = content[size:]


# --- log directories -----------------------------------------------------------------------------------------------

Found = set[Rec]  # with offset 0: no checksum covers offsets


@dataclass
class _Log:
    """A partition, and what must and what may be imported from it."""

    files: dict[int, bytes] = field(default_factory=dict)  # by base
    wanted: list[Rec] = field(default_factory=list)  # in files without damage, or in front of all damage
    known: Found = field(default_factory=set)  # in any set with the right checksum
    nested: Found = field(default_factory=set)  # the same, inside other sets
    are_lengths_right: bool = True  # each set begins where the one before ends


def fuzz_logs(rng: random.Random) -> str:
    """One or several files of a partition. Each record that is imported must have been in a set with the right checksum."""
    log = _made_log(rng)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        path = Path(folder)
        (path / "log" / "t-0").mkdir(parents=True)
        (path / "spool").mkdir()
        for base, content in log.files.items():
            (path / "log" / "t-0" / f"{base:020}.log").write_bytes(content)
        try:
            result, store = import_logs([path / "log"], path / "spool", cluster_id="c")
        except ArchiverError as error:
            return type(error).__name__
    (done,) = result.partitions
    found = [record for records in imported_records(store).values() for record in records]
    offsets = [record.offset for record in found]
    told = {base: content.hex() for base, content in log.files.items()}
    assert offsets == sorted(set(offsets)), told
    strange = {replace(one, offset=0) for one in found} - log.known
    if strange and (log.are_lengths_right or strange - log.nested):
        raise AssertionError(f"{told}: {strange} was in no good set")
    if missing := [one for one in log.wanted if one not in set(found)]:
        raise AssertionError(f"{told}: {missing} are outside of all damage, and not imported: {done}")
    if done.error:
        return "refused"
    return ("read" if found else "read nothing") + (" with holes" if done.holes else "")


def _made_log(rng: random.Random) -> _Log:
    log, is_whole = _Log(), True
    base = rng.choice((0, 9, 2**40))
    for _ in range(rng.randint(1, 3)):
        sets, hidden = made_sets(rng, base), []
        if rng.random() < 0.5:
            hidden = made_sets(rng, _end(sets) + 1)
            sets += _with_hidden(rng, _end(sets), hidden)
        changed = mutated_sets(rng, sets) if rng.random() < 0.3 else sets
        for one in (*sets, *changed):
            log.known |= _contents(one)
        for one in (*hidden, *(inner for outer in (*sets, *hidden) for inner in _inner(outer))):
            log.nested |= _contents(one)
        whole, content = b"".join(sets), _damaged(rng, b"".join(changed), hidden)
        is_good = content.startswith(whole) and not any(content[len(whole) :])
        is_whole = is_whole and content.startswith(whole)
        if is_good or is_whole:
            log.wanted += read_all(whole, 0)[0]
        log.are_lengths_right &= len(changed) == len(sets) and _sizes(content) == _sizes(whole)
        log.files[base] = content
        base = _end(sets) + rng.choice((0, 0, 0, 5))
    return log


def _inner(content: bytes) -> Sets:
    """The messages of a compressed set: often they are there as they are, behind one that could not be compressed."""
    codec = content[17] & 7
    return (
        ms.split(ms.unpacked(content[_payload_start(content) :], codec, content[16]))[0]
        if content[16] < 2 and codec
        else []
    )


def _sizes(content: bytes) -> Sequence[int]:
    return [len(one) for one in split(content.rstrip(b"\0"))]


def _with_hidden(rng: random.Random, first: int, hidden: Sets) -> Sets:
    """A batch whose value holds whole sets with offsets that would follow, and one more batch behind it."""
    value = rng.randbytes(rng.randrange(40)) + b"".join(hidden) + rng.randbytes(rng.randrange(1, 40))
    codec = "none" if rng.random() < 0.8 else "lz4"
    outer = rb.batch_of([Rec(first, ms.TIME, 0, None, value)], codec=codec)
    return [rb.encode(outer), rb.encode(rb.batch_of([Rec(first + 20, ms.TIME, 0, None, b"more")]))]


def _end(sets: Sets) -> int:
    """The offset behind the last set of all."""
    records = read_all(b"".join(sets), 0)[0]
    return records[-1].offset + 1


def _contents(content: bytes) -> Found:
    """The records of all sets that have the right checksum."""
    found = Found()
    with suppress(rb.BrokenBatchError, struct.error, IndexError):
        for one in split(content):
            found |= {replace(record, offset=0) for record in read_all(one, -(2**63))[0]}
    return found


def _damaged(rng: random.Random, content: bytes, hidden: Sequence[bytes]) -> bytes:
    kind = rng.random()
    if kind < 0.4:
        return content + bytes(rng.choice((0, 0, 0, 0, 0, 16, 100, 5000)))
    if kind < 0.5:
        return content[: rng.randrange(len(content) + 1)]
    if kind < 0.6:
        start = rng.randrange(len(content))
        return content[:start] + bytes(rng.randrange(1, 80)) + content[start:]
    if kind < 0.75:
        changed = bytearray(content)
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        return bytes(changed)
    if kind < 0.8:
        return _ending_inside(rng, content, hidden)
    return mutate(rng, content)


def _ending_inside(rng: random.Random, content: bytes, hidden: Sequence[bytes]) -> bytes:
    """With the length of a set that ends where a set in its value begins."""
    start = 0
    for one in split(content):
        within = [place for place in map(one.find, hidden) if place > 0]
        if within:
            return content[: start + 8] + struct.pack(">i", rng.choice(within) - 12) + content[start + 12 :]
        start += len(one)
        if len(one) < 17:
            break
    return content


# --- runs ----------------------------------------------------------------------------------------------------------

KINDS: dict[str, Callable[[random.Random], str]] = {
    "sets": fuzz_sets,
    "logs": fuzz_logs,
}


def run(kind: str, seed: int, count: int) -> Outcomes:
    with without_logs():
        return run_cases(KINDS[kind], kind, seed, count)


if __name__ == "__main__":
    main(run)
