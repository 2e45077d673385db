"""What all unit tests share: this machine's clock is that of a store in memory."""

import pytest

from tests.support.memory_store import FIRST_MOMENT


@pytest.fixture(autouse=True)
def _clock_of_stores_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep refuses where both differ."""
    now_ms = int(FIRST_MOMENT.timestamp() * 1000)
    monkeypatch.setattr("archiver.archive.format.store_clock.machine_now_ms", lambda: now_ms)
