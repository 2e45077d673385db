"""What the archiver asks of an object store. `store/s3` answers it; tests answer it from memory."""

import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import Final, Protocol

from archiver.errors import (
    CorruptSegmentError,
)

Body = bytes | io.RawIOBase
# What S3 takes in one put, and every object of an archive is put by one.
MOST_PUT_BYTES: Final = 5 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedObject:
    """One row of a listing."""

    key: str
    size: int
    etag: str  # without quotes; see ObjectStore.put_if_absent
    last_modified: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """What is known of an object without its body."""

    size: int
    etag: str
    metadata: Mapping[str, str]
    last_modified: datetime


class ObjectKind(Enum):
    """What is put. Its key does not say so: segments may lie under any."""

    SEGMENT = "segment"
    """Records, or a copy of them. It gets storage class and tags; the store does not repeat its put, its writer does."""

    FACT = "fact"
    """All else: control facts, files of the index, maps of offsets, notes."""


class ReadBuffer:
    """Memory that one object after the other is read into: that of new ones would be new pages, which are dear (decision 12)."""

    def __init__(self) -> None:
        self._memory = memoryview(b"")

    def of(self, size: int) -> memoryview:
        """Return so many bytes of it. What was read into it before is written over."""
        if size > len(self._memory):
            self._memory = memoryview(b"")  # the old one first
            # More than is asked for: it costs nothing before it is used, and a new one is beside the old one for a while.
            # This process's own: Python's default would share it with those that are forked.
            self._memory = memoryview(mmap(-1, size + size // 2, flags=MAP_PRIVATE | MAP_ANONYMOUS))
        return self._memory[:size]


class ObjectStore(Protocol):
    """What the archiver needs of a store. Safe for many threads.

    Every method raises StoreTemporaryError when a retry may help, StoreError when it will not. Keys are whole keys.
    """

    def put_if_absent(self, key: str, body: Body, metadata: Mapping[str, str], *, kind: ObjectKind) -> str | None:
        """Create an object whole, or not at all. Returns its ETag; None: something is there, and was left as it is.

        The ETag is the one that `head` and `list` tell for as long as the object is this one. A stream must be
        seekable; it is read from its start and not closed. After StoreTemporaryError the outcome is unknown: the same
        call again tells (None, if it had worked). None may therefore mean our own object, also at the first call, when
        the client itself repeated a put whose answer was lost.
        """

    def get(self, key: str, most_bytes: int = MOST_PUT_BYTES) -> tuple[bytes, Mapping[str, str]] | None:
        """Return body and metadata; None when there is no such object.

        Of an object with more bytes none is read. Raises CorruptSegmentError.
        """

    def get_into(self, buffer: ReadBuffer, key: str) -> tuple[memoryview, Mapping[str, str]] | None:
        """Do as `get`; the body lies in the buffer until the buffer is used again."""

    def get_range(self, key: str, start: int, stop: int) -> bytes | None:
        """Return the bytes from `start` on and before `stop`, which lie in the object; None when there is no such object."""

    def head(self, key: str) -> ObjectInfo | None:
        """Return what is known of an object; None when there is no such object (or bucket: S3 does not tell)."""

    def list(self, prefix: str, start_after: str = "") -> Iterator[ListedObject]:
        """List keys that begin with the prefix and sort after `start_after`, in order."""

    def list_directories(self, prefix: str) -> Iterator[str]:
        """List the names directly below a prefix that ends with a slash and that have keys below them."""

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; those that are not there are no error."""


def refuse_larger(key: str, size: int, most_bytes: int) -> None:
    """Raise CorruptSegmentError for an object, listed or answered with this size, that nobody of ours can have written."""
    if size > most_bytes:
        raise CorruptSegmentError(
            f"{key}: has {size:,} bytes, and what is written there never has more than {most_bytes:,}; it was not read. Find"
            " out who put it, and bring its older version back"
        )
