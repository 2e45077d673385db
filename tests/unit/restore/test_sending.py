"""How a restore is held back to its rate: by time that is driven, not slept."""

import asyncio

import pytest

from archiver.restore.fill.sending import RateLimit

RATE = 1000  # bytes a second


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the loop's clock shows, and where a sleep takes it."""
    shown = [50.0]

    async def sleep(delay_s: float) -> None:
        shown[0] += max(0.0, delay_s)

    monkeypatch.setattr(asyncio.BaseEventLoop, "time", lambda _: shown[0])
    monkeypatch.setattr(asyncio, "sleep", sleep)
    return shown


def sent_at(clock: list[float], takes_s: list[float], rate_bytes: int = RATE) -> list[float]:
    """Send 500 bytes again and again, each of which takes a time. Returns when each was let go, from the beginning on."""
    begun_s, found = clock[0], []

    async def send() -> None:
        rate_limit = RateLimit(rate_bytes)
        for one_s in takes_s:
            await rate_limit.wait_for(500)
            found.append(clock[0] - begun_s)
            clock[0] += one_s

    asyncio.run(send())
    return found


def test_what_sending_takes_is_not_waited_once_more(clock: list[float]) -> None:
    assert sent_at(clock, [0.0, 0.4, 0.1, 0.0]) == pytest.approx([0.5, 1.0, 1.5, 2.0])


def test_a_short_delay_is_made_up_for(clock: list[float]) -> None:
    assert sent_at(clock, [0.8, 0.0, 0.0]) == pytest.approx([0.5, 1.3, 1.5])


def test_the_rate_holds_after_an_outage(clock: list[float]) -> None:
    assert sent_at(clock, [60.0, 0.0, 0.0, 0.0]) == pytest.approx([0.5, 60.5, 60.5, 61.0])


def test_without_a_rate_sends_do_not_wait(clock: list[float]) -> None:
    assert sent_at(clock, [0.0, 0.0], rate_bytes=0) == [0.0, 0.0]
