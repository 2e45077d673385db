"""Pauses between tries: each twice as long as the one before, up to the longest."""

import math


class Backoff:
    """Tells how long to pause before the next try of work that fails, and begins with the shortest pause again after a success."""

    def __init__(self, first_s: float, longest_s: float = math.inf) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._pause_s = first_s

    def next_s(self) -> float:
        """Return the pause before the next try."""
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, self._longest_s)
        return pause_s

    def reset(self) -> None:
        """Begin with the shortest pause again."""
        self._pause_s = self._first_s
