"""Knows which objects of copies hold the records that their facts tell: those that this process has put, and those that it has read.

Clearing asks, before it deletes the copy that they replace: facts lie in metadata, and prove nothing without the body.
"""

import hashlib
from collections.abc import Callable, Container, Iterable

from archiver.archive.layout import CopyKey
from archiver.archive.listing import ListedSegment
from archiver.archive.roles import RolePlace
from archiver.archive.segment_facts import named_facts
from archiver.errors import CorruptSegmentError
from archiver.store.port import ObjectStore, ReadBuffer


class WholeObjects:
    """By key and ETag: an object with the ETag of our own put cannot be another one."""

    def __init__(self) -> None:
        self._known: dict[CopyKey, set[bytes]] = {}
        self._buffer = ReadBuffer()

    def note(self, copy: CopyKey, key: str, etag: str) -> None:
        """Note that this process has put an object. Safe for many threads."""
        self._known.setdefault(copy, set()).add(_digest(key, etag))

    def forget_others(self, places: Container[RolePlace], standing: Container[CopyKey]) -> None:
        """Forget deleted copies of these partitions."""
        for copy in list(self._known):
            place = RolePlace(topic=copy.topic, life=copy.life, partition=copy.partition)
            if place in places and copy not in standing:
                del self._known[copy]

    def read(
        self, store: ObjectStore, copy: CopyKey, objects: Iterable[ListedSegment], goes_on: Callable[[], bool]
    ) -> bool:
        """Read the objects of a copy that are not known yet, all of each. Returns False if it was stopped. Raises NotWholeError.

        One thread at a time. It takes as much memory as the largest object has bytes.
        """
        for one in objects:
            if not goes_on():
                return False
            told = _digest(one.item.key, one.item.etag)
            if told not in self._known.get(copy, ()):
                self._read_whole(store, copy, one)
                self._known.setdefault(copy, set()).add(told)
        return True

    def _read_whole(self, store: ObjectStore, copy: CopyKey, one: ListedSegment) -> None:
        from archiver.archive.segment import open_segment  # noqa: PLC0415 - its kernels load slowly, and `status` needs none

        key = one.item.key
        found = store.get_into(self._buffer, key)
        if found is None:
            raise CorruptSegmentError(f"{key}: was listed, and is gone")
        named_facts(found[1], one.key.base, one.key.next, key)
        for _ in open_segment(*found, key).frames(copy.topic, copy.partition):
            pass


def _digest(key: str, etag: str) -> bytes:
    return hashlib.blake2b(f"{key}\n{etag}".encode(), digest_size=16).digest()
