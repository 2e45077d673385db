"""A store wrapper that retries failed requests: a task that reads ten thousand objects must not restart for one of them."""

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Final, TypeVar

from archiver.errors import ArchiverError, StoreTemporaryError
from archiver.process.running.backoff import Backoff
from archiver.store.port import (
    MOST_PUT_BYTES,
    Body,
    ListedObject,
    ObjectInfo,
    ObjectKind,
    ObjectStore,
    ReadBuffer,
)

log = logging.getLogger(__name__)

Value = TypeVar("Value")

REQUEST_PATIENCE_S: Final = 120.0  # from the first failure of a request on
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 10.0


class PatientStore:
    """Wraps a store. Retries temporary failures for a while, then raises the error."""

    def __init__(
        self,
        store: ObjectStore,
        *,
        patience_s: float = REQUEST_PATIENCE_S,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] | None = None,
    ) -> None:
        self._store = store
        self._patience_s = patience_s
        self._clock = clock
        self._wait = wait or threading.Event().wait

    def now(self) -> datetime:
        return self._repeat(self._store.now)

    def put_if_absent(self, key: str, body: Body, metadata: Mapping[str, str], *, kind: ObjectKind) -> str | None:
        return self._repeat(lambda: self._store.put_if_absent(key, body, metadata, kind=kind))

    def get(self, key: str, most_bytes: int = MOST_PUT_BYTES) -> tuple[bytes, Mapping[str, str]] | None:
        return self._repeat(lambda: self._store.get(key, most_bytes))

    def get_into(self, buffer: ReadBuffer, key: str) -> tuple[memoryview, Mapping[str, str]] | None:
        return self._repeat(lambda: self._store.get_into(buffer, key))

    def get_range(self, key: str, start: int, stop: int) -> bytes | None:
        return self._repeat(lambda: self._store.get_range(key, start, stop))

    def head(self, key: str) -> ObjectInfo | None:
        return self._repeat(lambda: self._store.head(key))

    def list(self, prefix: str, start_after: str = "") -> Iterator[ListedObject]:
        seen = start_after
        rows = self._store.list(prefix, seen)

        def next_row() -> ListedObject | None:
            nonlocal rows
            try:
                return next(rows, None)
            except StoreTemporaryError:
                rows = self._store.list(prefix, seen)
                raise

        while (row := self._repeat(next_row)) is not None:
            seen = row.key
            yield row

    def list_directories(self, prefix: str) -> Iterator[str]:
        return iter(self._repeat(lambda: list(self._store.list_directories(prefix))))

    def delete(self, keys: Iterable[str]) -> None:
        self._store.delete(keys)

    def delete_each(self, keys: Iterable[str], *, send_by_s: float = math.inf) -> Mapping[str, ArchiverError]:
        """Delete objects without a retry: the caller must first check again whether they may be deleted."""
        return self._store.delete_each(keys, send_by_s=send_by_s)

    def _repeat(self, ask: Callable[[], Value]) -> Value:
        backoff, failed_since_s = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S), None
        while True:
            try:
                return ask()
            except StoreTemporaryError as error:
                pause_s = backoff.next_s()
                now_s = self._clock()
                failed_since_s = now_s if failed_since_s is None else failed_since_s
                if now_s + pause_s - failed_since_s > self._patience_s:
                    raise
                log.warning("%s; trying again in %.1f s", error, pause_s)
            self._wait(pause_s)
