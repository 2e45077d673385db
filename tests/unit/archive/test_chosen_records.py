"""Lists of chosen records are named after what they hold: whoever may write there cannot put another one in the place of one."""

import hashlib

import numpy as np
import pytest

from archiver.archive.format.layout import Layout
from archiver.archive.restores.chosen_records import CHOSEN_DIGEST, encode_chosen, put_chosen, read_chosen
from archiver.errors import CorruptSegmentError
from tests.support.memory_store import MemoryStore, StoredObject


def key_of(content: bytes) -> str:
    return Layout("archive").chosen_key("mine", "orders", 0, hashlib.sha256(content).hexdigest()[:24])


def test_what_was_chosen_is_read_back() -> None:
    store, offsets = MemoryStore(), np.array([0, 5, 6, 2**60], np.int64)
    content = encode_chosen(offsets)
    put_chosen(store, key_of(content), content)
    assert read_chosen(store, key_of(content), 2**61).tolist() == offsets.tolist()


def test_another_list_in_its_place_is_refused() -> None:
    """With the digest in its metadata, which whoever writes it writes, too."""
    store = MemoryStore()
    key, other = key_of(encode_chosen(np.arange(10))), encode_chosen(np.arange(5))
    put_chosen(store, key, encode_chosen(np.arange(10)))
    found = store.objects[key]
    store.objects[key] = StoredObject(other, {CHOSEN_DIGEST: hashlib.sha256(other).hexdigest()}, found.last_modified)
    with pytest.raises(CorruptSegmentError, match="is not as it was written"):
        read_chosen(store, key, 100)


@pytest.mark.parametrize("offsets", [[], [-1, 4], [4, 4], [5, 4], [2**62, -(2**63)]])
def test_offsets_that_do_not_rise_are_refused(offsets: list[int]) -> None:
    store, content = MemoryStore(), encode_chosen(np.array(offsets, np.int64))
    put_chosen(store, key_of(content), content)
    with pytest.raises(CorruptSegmentError, match="no list of offsets"):
        read_chosen(store, key_of(content), 2**61)
