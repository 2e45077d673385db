"""Which of an object's records a restore takes, as it is written down beside its plan (docs/format.md §8)."""

import hashlib
from collections.abc import Iterator
from typing import Final

import numpy as np
import zstandard

from archiver.archive.layout import chosen_name
from archiver.codec.frame import Longs
from archiver.errors import CorruptSegmentError
from archiver.store.port import ObjectKind, ObjectStore

CHOSEN_DIGEST = "archiver-sha256"
# Records of an object: 4 GiB of Avro, of which one takes 16 bytes.
MOST_OFFSETS: Final = 1 << 28
MOST_CHOSEN_BYTES: Final = 1 << 31  # of such a list, were it not compressed
_PIECE_BYTES: Final = 1 << 20
_OFFSET_BYTES: Final = 8
_MOST_WINDOW_BYTES: Final = 8 << 20  # of ours half a megabyte
CHOSEN_DIGITS: Final = 24  # of the name: of the digest of the content


def encode_chosen(offsets: Longs) -> bytes:
    """Write rising offsets: the distance of each from the one before it, from 0 on, as 8 bytes, little-endian; zstd."""
    steps = np.diff(offsets.astype("<i8"), prepend=np.int64(0))
    return zstandard.ZstdCompressor(level=1).compress(steps.tobytes())


def decode_chosen(content: bytes, digest: str | None, key: str, most: int = MOST_OFFSETS) -> Longs:
    """Read them back, no more than so many. Raises CorruptSegmentError."""
    return np.concatenate(list(_read_pieces(content, digest, key, most)))


def check_chosen(content: bytes, digest: str | None, key: str) -> None:
    """Read all of a list, a piece at a time: a few bytes may tell of millions of offsets. Raises CorruptSegmentError."""
    for _ in _read_pieces(content, digest, key, MOST_OFFSETS):
        pass


def _read_pieces(content: bytes, digest: str | None, key: str, most: int) -> Iterator[Longs]:
    actual = hashlib.sha256(content).hexdigest()
    # Whoever writes the metadata, may write the name too: but that is what a plan has of it.
    if digest != actual or key.rpartition("/")[2] != chosen_name(actual[:CHOSEN_DIGITS]):
        raise CorruptSegmentError(f"{key}: is not as it was written; take another --id and an empty target")
    last = -1
    try:
        for steps in _steps(content):
            offsets = last + np.cumsum(steps, dtype=np.int64)
            most -= len(offsets)
            # The sum of two that fit into 64 bits is negative where it does not.
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
    """Yield the distances, of the first one from -1."""
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
    """Write down what was chosen, unless that was done before; the key names the content."""
    store.put_if_absent(key, content, {CHOSEN_DIGEST: hashlib.sha256(content).hexdigest()}, kind=ObjectKind.FACT)


def read_chosen(store: ObjectStore, key: str, most: int) -> Longs:
    """Read what was chosen of an object, that covers so many offsets."""
    found = store.get(key, MOST_CHOSEN_BYTES)
    if found is None:
        raise CorruptSegmentError(
            f"{key}: is gone: which records the restore takes; take another --id and an empty target"
        )
    return decode_chosen(found[0], found[1].get(CHOSEN_DIGEST), key, most)
