"""The ends of an instance's copies, committed to its group for lag monitoring. Nothing is decided by them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from archiver.kafka.cluster import TopicPartition
from archiver.kafka.group import Hint


class HeldPosition(NamedTuple):
    """The generation that holds and is filled here, and up to where it is in storage."""

    generation: int
    position: int


class GroupHints:
    """Returns changed ends. Partitions of other instances are left unchanged."""

    def __init__(self, held: Callable[[], Mapping[TopicPartition, HeldPosition | None]], archive: str) -> None:
        self._held = held
        self._archive = archive  # the mark of the archive
        self._told: dict[TopicPartition, HeldPosition] = {}

    def take(self, wanted: Iterable[TopicPartition] | None = None) -> Sequence[Hint]:
        """Return the hints of changed partitions, of the wanted ones if given; they count as committed."""
        held = self._held()
        keys = held.keys() if wanted is None else held.keys() & set(wanted)
        moved = {key: now for key in sorted(keys) if (now := held[key]) is not None and now != self._told.get(key)}
        self._told |= moved
        return [
            Hint(
                topic=topic,
                partition=partition,
                offset=now.position,
                base=None,
                generation=now.generation,
                archive=self._archive,
            )
            for (topic, partition), now in moved.items()
        ]
