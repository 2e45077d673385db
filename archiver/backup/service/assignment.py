"""State of one assigned partition, from assignment to revocation, with the reason if it is not being archived."""

import math
from dataclasses import dataclass, field

from archiver.errors import ArchiverError, TopicGoneError
from archiver.process.running.backoff import Backoff

FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 300.0


@dataclass(slots=True, eq=False)
class Assignment:
    """A partition gets a new one with each assignment: work for an earlier one is dropped."""

    since_s: float  # since when it has no feed
    archived_to: int = 0  # the known end of its archive while it has no feed; at first, the committed one
    is_left: bool = False  # it is left to the instances that keep copies
    is_gone: bool = False  # its topic was deleted, and the group has not heard of it yet
    unsaved_since_s: float | None = (
        None  # time since which Kafka may have unwritten records, as known when its feed ended
    )
    failing_since_s: float | None = (
        None  # the same for a failed partition, until nothing is left or a segment is durable
    )
    error: ArchiverError | None = None  # of the last failure
    open_again_at_s: float = math.inf
    _backoff: Backoff = field(default_factory=lambda: Backoff(FIRST_PAUSE_S, _LONGEST_PAUSE_S))

    @property
    def unknown_since_s(self) -> float:
        """Time since which Kafka may have unwritten records, while the partition has no feed."""
        known = [since_s for since_s in (self.unsaved_since_s, self.failing_since_s) if since_s is not None]
        return min(known, default=self.since_s)

    @property
    def lasting_error(self) -> ArchiverError | None:
        """The error that blocks the partition until an operator acts; None: no error, or a temporary one."""
        is_lasting = self.failing_since_s is not None and self.error is not None and not self.error.retriable
        return self.error if is_lasting else None

    def pause_s(self) -> float:
        """Return how long to wait after a failure: twice as long each time, until a segment is durable."""
        return self._backoff.next_s()

    def fail(self, error: ArchiverError, now_s: float, pending_since_s: float | None) -> float:
        """Note why the partition is not archived. Returns the pause until it is opened again."""
        pause_s = self.pause_s()
        self.open_again_at_s, self.error = now_s + pause_s, error
        self.is_gone, self.is_left = isinstance(error, TopicGoneError), False
        self.failing_since_s = None if self.is_gone else pending_since_s or self.failing_since_s or now_s
        return pause_s

    def leave(self) -> None:
        """Note that the partition is left to the instances that keep copies."""
        self.is_left, self.is_gone, self.failing_since_s = True, False, None

    def come_back(self, now_s: float) -> None:
        """Note that the partition must be opened again, because no instance has it any longer."""
        self.is_left, self.since_s = False, now_s

    def note_durable(self) -> None:
        """Note that a segment became durable: this ends the failure, and resets the pause of the next one."""
        self._backoff.reset()
        self.failing_since_s = None
