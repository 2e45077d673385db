"""Interface for events of a backup that metrics count: puts, holes, fetches, retries, failures."""

from typing import Final


class Ledger:
    """Takes reports of a running backup, from any thread, and counts nothing; archiver.backup.reports.metrics counts them.

    A cause is a word of a small set (an error class, a code), never free text: each cause makes a time series for good.
    """

    def put(self, topic: str, *, records: int, payload_bytes: int, stored_bytes: int, seconds: float) -> None:
        """Report that a segment, put by this instance, became durable."""

    def hole(self, topic: str, partition: int, *, cause: str, offsets: int) -> None:
        """Report a hole: offsets that Kafka no longer has, or with an unreadable batch."""

    def fetched(self, topic: str, fetched_bytes: int) -> None:
        """Report bytes that came from a broker."""

    def retried(self, effect: str, cause: str) -> None:
        """Report that an effect (put, fetch, open, ...) has failed, and is retried."""

    def failed(self, topic: str, cause: str) -> None:
        """Report that a partition has stopped with an error that a retry may not heal."""

    def branched(self, topic: str) -> None:
        """Report a log that was cut back, which is an alarm."""


NO_LEDGER: Final = Ledger()
