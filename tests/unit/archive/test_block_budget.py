"""The memory that threads decode in: no more than there is at once, and what is larger is alone."""

import random
import threading

import numpy as np
import pytest

from archiver.archive.segments.block_budget import DecodingBudget

MEGABYTE = 1024 * 1024
LARGEST = 256 * MEGABYTE
PATIENCE_S = 20.0


@pytest.mark.parametrize("most", [MEGABYTE, 10 * MEGABYTE, 160 * MEGABYTE, 2**36])
def test_sizes_rise_to_the_largest(most: int) -> None:
    sizes = DecodingBudget(most).sizes(LARGEST)
    assert sizes[-1] == 256 * MEGABYTE
    assert list(sizes) == sorted(set(sizes))
    assert sizes[0] <= max(MEGABYTE, most // 16)


def test_a_room_is_never_overdrawn(seed: int) -> None:
    """Unless somebody is alone in it."""
    room = DecodingBudget(100 * MEGABYTE)
    held: list[int] = []
    wrong: list[list[int]] = []
    guard = threading.Lock()

    def work(rng: random.Random) -> None:
        for _ in range(200):
            size = rng.choice(room.sizes(LARGEST))
            with room.lend(size):
                with guard:
                    held.append(size)
                    if len(held) > 1 and sum(held) > 100 * MEGABYTE:
                        wrong.append(list(held))
                with guard:
                    held.remove(size)

    threads = [threading.Thread(target=work, args=(random.Random(seed + number),)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert wrong == []


def test_a_request_above_the_budget_waits_for_all_others() -> None:
    room = DecodingBudget(100 * MEGABYTE)
    entered, leave = threading.Event(), threading.Event()

    def large() -> None:
        with room.lend(room.sizes(LARGEST)[-1]):
            entered.set()
            leave.wait(PATIENCE_S)

    with room.lend(room.sizes(LARGEST)[0]):
        thread = threading.Thread(target=large)
        thread.start()
        assert not entered.wait(0.1)
    assert entered.wait(PATIENCE_S)
    got_in = threading.Event()

    def small() -> None:
        with room.lend(room.sizes(LARGEST)[0]):
            got_in.set()

    other = threading.Thread(target=small)
    other.start()
    assert not got_in.wait(0.1)
    leave.set()
    assert got_in.wait(PATIENCE_S)
    thread.join(PATIENCE_S)
    other.join(PATIENCE_S)


def test_buffers_are_used_again_and_large_ones_are_not_kept() -> None:
    room = DecodingBudget(160 * MEGABYTE)
    with room.lend(room.sizes(LARGEST)[0]) as scratch:
        scratch.body = np.empty(room.sizes(LARGEST)[0], np.uint8)
    with room.lend(room.sizes(LARGEST)[0]) as again:
        assert again is scratch
        assert again.body is not None
    with room.lend(room.sizes(LARGEST)[-1]) as large:
        assert large is not scratch
        large.body = np.empty(room.sizes(LARGEST)[-1], np.uint8)
    assert large.body is None


def test_an_error_gives_the_memory_back() -> None:
    room = DecodingBudget(MEGABYTE)
    for _ in range(3):
        with pytest.raises(ValueError, match="broken"), room.lend(room.sizes(LARGEST)[-1]):
            raise ValueError("broken")
