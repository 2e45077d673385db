"""Stores in memory in which somebody else is faster, or the answer to a put is lost."""

from collections.abc import Callable, Mapping

from archiver.errors import StoreTemporaryError
from archiver.store.port import Body, ObjectKind
from tests.support.memory_store import MemoryStore


class RacingStore(MemoryStore):
    """Before each of its first puts, somebody does something."""

    def __init__(self, *before: Callable[[], object]) -> None:
        super().__init__()
        self.before = list(before)

    def put_if_absent(self, key: str, body: Body, metadata: Mapping[str, str], *, kind: ObjectKind) -> str | None:
        if self.before:
            self.before.pop(0)()
        return super().put_if_absent(key, body, metadata, kind=kind)


class LossyStore(MemoryStore):
    """Puts, and loses the answer: it raises, or (the client's own repeat) says that something is there."""

    def __init__(self, *, raises: bool) -> None:
        super().__init__()
        self.raises = raises

    def put_if_absent(self, key: str, body: Body, metadata: Mapping[str, str], *, kind: ObjectKind) -> str | None:
        super().put_if_absent(key, body, metadata, kind=kind)
        if self.raises:
            raise StoreTemporaryError("lost")
        return None
