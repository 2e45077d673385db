"""A store that fails for a while, and one that fails for good."""

from collections.abc import Callable, Iterator, Mapping

import pytest

from archiver.errors import StoreTemporaryError
from archiver.store.patient import REQUEST_PATIENCE_S, PatientStore
from archiver.store.port import MOST_PUT_BYTES, ListedObject, ObjectKind
from tests.support.memory_store import MemoryStore


class Moody(MemoryStore):
    """Each request fails so often before it is answered; a listing in its midst."""

    def __init__(self, failures: int) -> None:
        super().__init__()
        self.failures = failures
        self._met: dict[object, int] = {}

    def get(self, key: str, most_bytes: int = MOST_PUT_BYTES) -> tuple[bytes, Mapping[str, str]] | None:
        self._fail(key)
        return super().get(key, most_bytes)

    def list(self, prefix: str, start_after: str = "") -> Iterator[ListedObject]:
        for row in super().list(prefix, start_after):
            if row.key == "a/2":
                self._fail(row.key)
            yield row

    def _fail(self, what: object) -> None:
        self._met[what] = self._met.get(what, 0) + 1
        if self._met[what] <= self.failures:
            raise StoreTemporaryError(f"{what}: busy, time {self._met[what]}")


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def wait(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


def keys_of(store: MemoryStore) -> list[str]:
    for number in range(7):
        store.put_if_absent(f"a/{number}", b"%d" % number, {}, kind=ObjectKind.FACT)
    return [f"a/{number}" for number in range(7)]


def test_what_fails_for_a_while_is_asked_again_where_it_was(clock: Clock) -> None:
    moody = Moody(3)
    keys = keys_of(moody)
    store = PatientStore(moody, clock=clock, wait=clock.wait)
    assert [store.get(key) for key in keys] == [(b"%d" % number, {}) for number in range(7)]
    assert [row.key for row in store.list("a/")] == keys
    assert store.get("absent") is None


def told(ask: Callable[[], object]) -> str:
    with pytest.raises(StoreTemporaryError) as raised:
        ask()
    return str(raised.value)


def test_a_lasting_failure_raises_the_error_of_the_store(clock: Clock) -> None:
    moody = Moody(1_000_000)
    keys_of(moody)
    store = PatientStore(moody, clock=clock, wait=clock.wait)
    assert "a/3: busy, time" in told(lambda: store.get("a/3"))
    assert REQUEST_PATIENCE_S - 10 <= clock.now_s <= REQUEST_PATIENCE_S
    assert "a/2: busy, time" in told(lambda: list(store.list("a/")))
