"""Tracks included topics that a running backup cannot archive: no permission to describe them, or no topic id."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from archiver.backup.partition.feed import LASTING_FAILURE_S
from archiver.backup.reports.ledger import Ledger
from archiver.errors import NoTopicIdError
from archiver.kafka.brokers.cluster import Refusal

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RefusedTopic:
    """A topic that is not archived. Its known partitions are not assigned to any instance."""

    error: Refusal
    since_s: float
    partitions: tuple[int, ...]

    def is_lasting(self, now_s: float) -> bool:
        """Whether the topic counts as failing: with a temporary error, only when that lasts."""
        return not self.error.retriable or now_s - self.since_s >= LASTING_FAILURE_S


class RefusedTopics:
    """Call `note` after each listing of the cluster. `topics` may be read from any thread."""

    def __init__(self, ledger: Ledger, clock: Callable[[], float]) -> None:
        self._ledger = ledger
        self._clock = clock
        self._reported: Mapping[str, str] = {}
        self.topics: Mapping[str, RefusedTopic] = {}

    def note(self, refused: Mapping[str, Refusal], partitions: Callable[[str], tuple[int, ...]]) -> None:
        """Report each refusal once, until it changes. `partitions` returns the known ones of a topic."""
        before, now_s = self.topics, self._clock()
        self.topics = {
            name: RefusedTopic(error, before[name].since_s if name in before else now_s, partitions(name))
            for name, error in refused.items()
        }
        lasting = {name: str(one.error) for name, one in self.topics.items() if one.is_lasting(now_s)}
        for name in [name for name, text in lasting.items() if self._reported.get(name) != text]:
            error = refused[name]
            is_warning = error.retriable or isinstance(error, NoTopicIdError)
            log.log(logging.WARNING if is_warning else logging.ERROR, "%s; it is included, and not archived", error)
            self._ledger.failed(name, type(error).__name__)
        self._reported = lasting
