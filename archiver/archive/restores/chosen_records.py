"""Reads and writes lists of the records that a restore takes from an object, if not all. Stored beside its plan (docs/format.md §8)."""

import hashlib
from collections.abc import Iterator
from typing import Final

import numpy as np
import zstandard

from archiver.archive.format.layout import chosen_name
from archiver.codec.frame import Longs
from archiver.errors import CorruptSegmentError
from archiver.store.port import ObjectKind, ObjectStore

CHOSEN_DIGEST = "archiver-sha256"
# Most records of an object: 4 GiB of Avro, at 16 bytes for the smallest record.
MOST_OFFSETS: Final = 1 << 28
MOST_CHOSEN_BYTES: Final = 1 << 31  # of an uncompressed list
_PIECE_BYTES: Final = 1 << 20
_OFFSET_BYTES: Final = 8
_MOST_WINDOW_BYTES: Final = 8 << 20  # our own lists are compressed with a window of half a megabyte
CHOSEN_DIGITS: Final = 24  # of the content's digest, in the name of a list


def encode_chosen(offsets: Longs) -> bytes:
    """Encode rising offsets: the distance of each from the previous one (of the first from 0), 8 bytes little-endian, in zstd."""
    steps = np.diff(offsets.astype("<i8"), prepend=np.int64(0))
    return zstandard.ZstdCompressor(level=1).compress(steps.tobytes())


def decode_chosen(content: bytes, digest: str | None, key: str, most: int = MOST_OFFSETS) -> Longs:
    """Decode a list of offsets, of at most `most`. Raises CorruptSegmentError."""
    return np.concatenate(list(_read_pieces(content, digest, key, most)))


def check_chosen(content: bytes, digest: str | None, key: str) -> None:
    """Check a whole list of chosen records piece by piece, because a few bytes may expand to millions of offsets. Raises CorruptSegmentError."""
    for _ in _read_pieces(content, digest, key, MOST_OFFSETS):
        pass


def _read_pieces(content: bytes, digest: str | None, key: str, most: int) -> Iterator[Longs]:
    actual = hashlib.sha256(content).hexdigest()
    # A writer who can change the metadata can change the name too; but the plan has noted the digest in the name.
    if digest != actual or key.rpartition("/")[2] != chosen_name(actual[:CHOSEN_DIGITS]):
        raise CorruptSegmentError(f"{key}: is not as it was written; take another --id and an empty target")
    last = -1
    try:
        for steps in _steps(content):
            offsets = last + np.cumsum(steps, dtype=np.int64)
            most -= len(offsets)
            # A sum of two numbers of 64 bits that overflows is negative.
            if (steps < 1).any() or (offsets < 0).any() or most < 0:
                raise ValueError("they do not rise, or are more than there are records")  # noqa: TRY301
            last = int(offsets[-1])
            yield offsets
        if last < 0:
            raise ValueError("there are none")  # noqa: TRY301
    except (zstandard.ZstdError, ValueError) as error:
        raise CorruptSegmentError(
            f"{key}: no list of offsets: {error}; take another --id and an empty target"
        ) from error


def _steps(content: bytes) -> Iterator[Longs]:
    """Yield the distances between offsets; the first distance is from -1."""
    reader = zstandard.ZstdDecompressor(max_window_size=_MOST_WINDOW_BYTES).stream_reader(content)
    left, to_first = b"", 1
    while piece := reader.read(_PIECE_BYTES):
        left += piece
        steps = np.frombuffer(left, "<i8", len(left) // _OFFSET_BYTES).astype(np.int64)
        left = left[len(steps) * _OFFSET_BYTES :]
        steps[:1] += to_first
        if len(steps):
            to_first = 0
            yield steps
    if left:
        raise ValueError("cut")


def put_chosen(store: ObjectStore, key: str, content: bytes) -> None:
    """Put a list of chosen records, unless its key exists: the key names the content, so the existing object is the same."""
    store.put_if_absent(key, content, {CHOSEN_DIGEST: hashlib.sha256(content).hexdigest()}, kind=ObjectKind.FACT)


def read_chosen(store: ObjectStore, key: str, most: int) -> Longs:
    """Read the chosen offsets of an object, which covers at most `most` offsets."""
    found = store.get(key, MOST_CHOSEN_BYTES)
    if found is None:
        raise CorruptSegmentError(
            f"{key}: is gone: which records the restore takes; take another --id and an empty target"
        )
    return decode_chosen(found[0], found[1].get(CHOSEN_DIGEST), key, most)
