"""The interface of an object store. `store.s3` implements it; tests have one in memory."""

import io
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import Final, Protocol

from archiver.errors import ArchiverError, TooLargeError

Body = bytes | io.RawIOBase
# The most that S3 takes in one put. Each object of an archive is put by one.
MOST_PUT_BYTES: Final = 5 << 30
# A delete that was sent within its time is carried out within this, or never, unless something on the way keeps requests.
DELETE_LIMIT_S: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedObject:
    """One row of a listing."""

    key: str
    size: int
    etag: str  # without quotes; see ObjectStore.put_if_absent
    last_modified: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """The metadata of an object."""

    size: int
    etag: str
    metadata: Mapping[str, str]
    last_modified: datetime
    is_locked: bool = False  # by a retention or a legal hold of the store, as far as the user may know


class ObjectKind(Enum):
    """The kind of an object. The key does not determine it: a segment may have any key."""

    SEGMENT = "segment"
    """Records, or a copy of them. It gets storage class and tags. The store does not repeat its put: the writer does."""

    FACT = "fact"
    """Everything else: control facts, files of the index, offset maps, notes of restores."""


class ReadBuffer:
    """Memory that one object after the other is read into. Memory of its own for each object would be new pages, which are dear (decision 12)."""

    def __init__(self) -> None:
        self._memory = memoryview(b"")

    def of(self, size: int) -> memoryview:
        """Return this many bytes of the buffer: the same memory each time."""
        if size > len(self._memory):
            self._memory = memoryview(b"")  # free the old memory first
            # Half as much again, so that it seldom grows: memory costs nothing before it is used. MAP_PRIVATE, because Python's
            # default would share the memory with forked processes.
            self._memory = memoryview(mmap(-1, size + size // 2, flags=MAP_PRIVATE | MAP_ANONYMOUS))
        return self._memory[:size]


class ObjectStore(Protocol):
    """An object store. Thread-safe.

    Every method raises StoreTemporaryError if a retry may help, StoreError if not. Keys are whole keys.
    """

    def now(self) -> datetime:
        """Return the time of the store's clock."""

    def put_if_absent(self, key: str, body: Body, metadata: Mapping[str, str], *, kind: ObjectKind) -> str | None:
        """Create an object whole, or not at all. Returns its ETag; None if an object exists, which is not changed.

        `head` and `list` return the same ETag while the object is this one. A stream must be seekable; it is read from
        its start and not closed. After StoreTemporaryError the outcome is unknown: repeat the call to find out; it returns
        None if the first one had worked. None may therefore mean our own object. The same happens at the first call when
        the client itself repeated a put whose answer was lost.
        """

    def get(self, key: str, most_bytes: int = MOST_PUT_BYTES) -> tuple[bytes, Mapping[str, str]] | None:
        """Return body and metadata; None if the object does not exist.

        Raises TooLargeError for an object of more than `most_bytes`, and reads none of it.
        """

    def get_into(self, buffer: ReadBuffer, key: str) -> tuple[memoryview, Mapping[str, str]] | None:
        """Do as `get`; the body stays in the buffer until its next use."""

    def get_range(self, key: str, start: int, stop: int) -> bytes | None:
        """Return the bytes from `start` up to `stop`, exclusive; None if the object does not exist."""

    def head(self, key: str) -> ObjectInfo | None:
        """Return the metadata of an object; None if the object (or the bucket) does not exist."""

    def list(self, prefix: str, start_after: str = "") -> Iterator[ListedObject]:
        """List keys that begin with the prefix and sort after `start_after`, in order."""

    def list_directories(self, prefix: str) -> Iterator[str]:
        """List the names directly below a prefix that ends with a slash and that have keys below them."""

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects as `delete_each` does; keys without an object are no error. Raises the first refusal."""

    def delete_each(self, keys: Iterable[str], *, send_by_s: float = math.inf) -> Mapping[str, ArchiverError]:
        """Delete objects, and return the store's refusals by key; the others are deleted.

        No request is repeated after an unknown outcome, nor sent after `send_by_s` (a moment of `steady_s`): the caller must
        first check again which objects may be deleted. Raises StoreTemporaryError then.
        """


def refuse_larger(key: str, size: int, most_bytes: int) -> None:
    """Raise TooLargeError for an object that is larger than anything this program writes there."""
    if size > most_bytes:
        raise TooLargeError(
            f"{key}: has {size:,} bytes, and what is written there never has more than {most_bytes:,}; it was not read. Find"
            " out who put it, and bring its older version back"
        )
