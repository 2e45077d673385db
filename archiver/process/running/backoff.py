"""Computes pauses between retries: each twice as long as the one before, up to the longest."""

import math


class Backoff:
    """Computes the pause before the next retry; a success resets it to the shortest pause."""

    def __init__(self, first_s: float, longest_s: float = math.inf) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._pause_s = first_s

    def next_s(self) -> float:
        """Return the pause before the next retry."""
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, self._longest_s)
        return pause_s

    def reset(self) -> None:
        """Begin with the shortest pause again."""
        self._pause_s = self._first_s
