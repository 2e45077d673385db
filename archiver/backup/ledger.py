"""What a backup tells of itself while it works."""

from typing import Final, Protocol


class Ledger(Protocol):
    """What a backup tells while it works, from any thread; archiver.backup.metrics keeps it, beyond the life of a writer.

    Causes are words of a small set (of an error class, a code), never free text: each makes a time series for good.
    """

    def put(self, topic: str, *, records: int, payload_bytes: int, stored_bytes: int, seconds: float) -> None:
        """A segment became durable by us."""

    def hole(self, topic: str, partition: int, *, cause: str, offsets: int) -> None:
        """Offsets could not be had."""

    def fetched(self, topic: str, fetched_bytes: int) -> None:
        """Bytes came from a broker."""

    def retried(self, effect: str, cause: str) -> None:
        """An effect (put, fetch, open, ...) did not work, and is tried again."""

    def failed(self, topic: str, cause: str) -> None:
        """A partition stopped on something that another try may not heal."""

    def branched(self, topic: str) -> None:
        """A log was cut back: an alarm."""


class _NoLedger:
    def put(self, topic: str, *, records: int, payload_bytes: int, stored_bytes: int, seconds: float) -> None: ...
    def hole(self, topic: str, partition: int, *, cause: str, offsets: int) -> None: ...
    def fetched(self, topic: str, fetched_bytes: int) -> None: ...
    def retried(self, effect: str, cause: str) -> None: ...
    def failed(self, topic: str, cause: str) -> None: ...
    def branched(self, topic: str) -> None: ...


NO_LEDGER: Final[Ledger] = _NoLedger()
