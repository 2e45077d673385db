"""Which of an object's records a restore takes, as it is written down beside its plan (docs/format.md §8)."""

import hashlib

import numpy as np
import zstandard

from archiver.codec.compression import BlockCodec, decompress_block
from archiver.errors import CorruptSegmentError
from archiver.frame import Longs
from archiver.layout import chosen_name
from archiver.store import ObjectStore

CHOSEN_DIGEST = "archiver-sha256"
CHOSEN_DIGITS = 24  # of the name: of the digest of the content
_MOST_BYTES = 1 << 31  # uncompressed: 268 million records, more than an object can have


def encode_chosen(offsets: Longs) -> bytes:
    """Write rising offsets: the distance of each from the one before it, from 0 on, as 8 bytes, little-endian; zstd."""
    steps = np.diff(offsets.astype("<i8"), prepend=np.int64(0))
    return zstandard.ZstdCompressor(level=1).compress(steps.tobytes())


def decode_chosen(content: bytes, digest: str | None, key: str) -> Longs:
    """Read them back. Raises CorruptSegmentError."""
    actual = hashlib.sha256(content).hexdigest()
    if digest != actual or key.rpartition("/")[2] != chosen_name(
        actual[:CHOSEN_DIGITS]
    ):  # whoever writes it, writes both
        raise CorruptSegmentError(f"{key}: is not as it was written; take another --id and an empty target")
    try:
        steps = decompress_block(BlockCodec.ZSTANDARD, memoryview(content), _MOST_BYTES).view("<i8")
    except ValueError as error:
        raise CorruptSegmentError(
            f"{key}: no list of offsets: {error}; take another --id and an empty target"
        ) from error
    found: Longs = np.cumsum(steps, dtype=np.int64)
    if len(steps) == 0 or steps[0] < 0 or (steps[1:] < 1).any() or (found < 0).any():
        raise CorruptSegmentError(f"{key}: its offsets do not rise; take another --id and an empty target")
    return found


def put_chosen(store: ObjectStore, key: str, content: bytes) -> None:
    """Write down what was chosen, unless that was done before; the key names the content."""
    store.put_if_absent(key, content, {CHOSEN_DIGEST: hashlib.sha256(content).hexdigest()})


def read_chosen(store: ObjectStore, key: str) -> Longs:
    """Read what was chosen of an object."""
    found = store.get(key)
    if found is None:
        raise CorruptSegmentError(
            f"{key}: is gone: which records the restore takes; take another --id and an empty target"
        )
    return decode_chosen(found[0], found[1].get(CHOSEN_DIGEST), key)
