"""Limits for one case of a fuzzer: CPU, memory, and bytes that are read from a store."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from archiver.store.port import MOST_PUT_BYTES, ListedObject, refuse_larger
from tests.support.memory_store import MemoryStore

MOST_CPU_S = 4.0  # a hundred times what the slowest case takes alone, because the machine may have other work
MOST_GROWTH = 96 << 20  # bytes, with what the allocator keeps
MOST_READ = 64 << 20  # bytes: more than a case puts


@dataclass(frozen=True, slots=True)
class Weight:
    """The false size of an object: in listings, and in the answer to a get."""

    listed: int
    real: int


class WatchedStore(MemoryStore):
    """Counts the bytes that are read. Objects with a weight claim to be larger than memory, and are not."""

    def __init__(self, like: MemoryStore | None = None) -> None:
        super().__init__()
        self.objects = dict(like.objects) if like is not None else {}
        self.weights: dict[str, Weight] = {}
        self.read_bytes = 0

    def list(self, prefix: str, start_after: str = "") -> Iterator[ListedObject]:
        for item in super().list(prefix, start_after):
            weight = self.weights.get(item.key)
            yield item if weight is None else replace(item, size=weight.listed)

    def get(self, key: str, most_bytes: int = MOST_PUT_BYTES) -> tuple[bytes, Mapping[str, str]] | None:
        weight = self.weights.get(key)
        if weight is not None:
            refuse_larger(key, weight.real, most_bytes)
            self.read_bytes += weight.real
        found = super().get(key, most_bytes)
        self.read_bytes += 0 if found is None else len(found[0])
        return found


@dataclass(slots=True)
class Peaks:
    """The most that any case took, so far."""

    cpu_s: float = 0.0
    grown: int = 0
    read: int = 0
    _status: Path = field(default=Path("/proc/self/status"))

    @contextmanager
    def watch(self, what: object, store: WatchedStore) -> Iterator[None]:
        """Fail where a case takes too much; `what` tells how to run it again."""
        _forget_peak()
        before, begun_s = self._most_resident(), time.process_time()
        yield
        cpu_s, grown = time.process_time() - begun_s, self._most_resident() - before
        self.cpu_s, self.grown, self.read = (
            max(self.cpu_s, cpu_s),
            max(self.grown, grown),
            max(self.read, store.read_bytes),
        )
        assert cpu_s < MOST_CPU_S, f"{what}: {cpu_s:.1f} s"
        assert grown < MOST_GROWTH, f"{what}: {grown >> 20} MiB more memory"
        assert store.read_bytes < MOST_READ, f"{what}: {store.read_bytes:,} bytes read"

    def _most_resident(self) -> int:
        with self._status.open() as lines:
            return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))

    def __str__(self) -> str:
        return f"at most {self.cpu_s:.2f} s, {self.grown >> 20} MiB more memory, {self.read:,} bytes read"


def _forget_peak() -> None:
    """Reset the process's peak of memory; where the kernel does not allow this, only a larger peak is noticed."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
