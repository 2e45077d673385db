"""An ObjectStore in memory. It keeps the contract, and one flag breaks it."""

import hashlib
import math
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from archiver.errors import ArchiverError, StoreTemporaryError
from archiver.process.running.silence import steady_s
from archiver.store.port import (
    MOST_PUT_BYTES,
    Body,
    ListedObject,
    ObjectInfo,
    ObjectKind,
    ReadBuffer,
    refuse_larger,
)

FIRST_MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class StoredObject:
    body: bytes
    metadata: Mapping[str, str]
    last_modified: datetime

    @property
    def etag(self) -> str:
        """Of the bytes alone, as S3's is without KMS."""
        return hashlib.md5(self.body, usedforsecurity=False).hexdigest()


class MemoryStore:
    """`overwrites=True`: a store that ignores If-None-Match, as some S3 look-alikes do. Each put is a second later."""

    def __init__(self, *, overwrites: bool = False) -> None:
        self.objects: dict[str, StoredObject] = {}
        self._overwrites = overwrites
        self._lock = threading.Lock()
        self._puts = 0
        self.ahead = timedelta()  # of the store's clock in its answers

    def now(self) -> datetime:
        with self._lock:
            return FIRST_MOMENT + timedelta(seconds=self._puts) + self.ahead

    def put_if_absent(
        self,
        key: str,
        body: Body,
        metadata: Mapping[str, str],
        *,
        kind: ObjectKind,  # noqa: ARG002 - of no consequence here
    ) -> str | None:
        content = body if isinstance(body, bytes) else _read_from_start(body)
        with self._lock:
            if key in self.objects and not self._overwrites:
                return None
            self._puts += 1
            moment = FIRST_MOMENT + timedelta(seconds=self._puts)
            self.objects[key] = created = StoredObject(content, dict(metadata), moment)
            return created.etag

    def get(self, key: str, most_bytes: int = MOST_PUT_BYTES) -> tuple[bytes, Mapping[str, str]] | None:
        found = self.objects.get(key)
        if found is None:
            return None
        refuse_larger(key, len(found.body), most_bytes)
        return found.body, found.metadata

    def get_into(self, buffer: ReadBuffer, key: str) -> tuple[memoryview, Mapping[str, str]] | None:
        found = self.get(key)
        if found is None:
            return None
        target = buffer.of(len(found[0]))
        target[:] = found[0]
        return target.toreadonly(), found[1]

    def get_range(self, key: str, start: int, stop: int) -> bytes | None:
        found = self.objects.get(key)
        return None if found is None else found.body[start:stop]

    def head(self, key: str) -> ObjectInfo | None:
        found = self.objects.get(key)
        if found is None:
            return None
        return ObjectInfo(
            size=len(found.body), etag=found.etag, metadata=found.metadata, last_modified=found.last_modified
        )

    def list(self, prefix: str, start_after: str = "") -> Iterator[ListedObject]:
        with self._lock:
            objects = dict(self.objects)
        for key in sorted(objects, key=str.encode):
            if key.startswith(prefix) and key.encode() > start_after.encode():
                found = objects[key]
                yield ListedObject(key=key, size=len(found.body), etag=found.etag, last_modified=found.last_modified)

    def list_directories(self, prefix: str) -> Iterator[str]:
        below = [item.key[len(prefix) :] for item in self.list(prefix)]
        yield from sorted({name.partition("/")[0] for name in below if "/" in name})

    def delete_each(self, keys: Iterable[str], *, send_by_s: float = math.inf) -> Mapping[str, ArchiverError]:
        if steady_s() > send_by_s:
            raise StoreTemporaryError("was not sent")
        self.delete(keys)
        return {}

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            with self._lock:
                self.objects.pop(key, None)


class CountingStore(MemoryStore):
    """Counts what was asked about objects."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = 0

    def head(self, key: str) -> ObjectInfo | None:
        self.heads += 1
        return super().head(key)


def _read_from_start(body: Body) -> bytes:
    if isinstance(body, bytes):
        return body
    body.seek(0)
    return body.read() or b""
