"""Decides by role logs which partitions a backup leaves to the instances that keep copies of compacted topics."""

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from archiver.archive.copies.role_logs import list_copied_topics
from archiver.archive.copies.roles import ROLES, CompleteCopy, RoleEntry, RolePlace, read_entry
from archiver.archive.format.control import newest_numbers
from archiver.archive.format.handle import Archive
from archiver.archive.notes.topics import PartitionSource, TopicFact, is_compacted
from archiver.backup.opening.history_return import ReturnOutcome, take_back
from archiver.errors import ArchiverError, NotWholeError, StoreError, StoreTemporaryError
from archiver.kafka.groups.group_positions import OFFSETS_TOPIC
from archiver.process.output.defects import as_ours
from archiver.process.output.text import spell_count
from archiver.process.running.workers import Workers, side_by_side

log = logging.getLogger(__name__)

_READS_AT_ONCE: Final = 8

NewestEntry = RoleEntry | ArchiverError | None


class RoleWatch:
    """Reads role logs for a backup, and reports consequences once each. If it is not enabled, nothing is left to instances."""

    def __init__(self, archive: Archive, pool: Workers, *, is_enabled: bool) -> None:
        self._is_enabled = is_enabled
        self._archive = archive
        self._pool = pool
        self._entries: dict[
            str, tuple[int, RoleEntry]
        ] = {}  # stream -> the newest entry, as it was read: it never changes
        self._returning: dict[RolePlace, int] = {}  # and the least end that `topics/` must reach
        self._blocked: set[RolePlace] = set()  # `topics/` is not whole: a retry would find the same
        self._told: set[str] = set()

    async def list_topics(self) -> frozenset[str] | None:
        """List the topics with a role log. None: the store refuses, so each topic is read."""
        if not self._is_enabled:
            return frozenset()
        try:
            return await self._pool.call(list_copied_topics, self._archive)
        except (StoreError, StoreTemporaryError) as error:
            log.debug("role logs could not be listed: %s", error)
            return None

    async def find_left(self, fact: TopicFact, topic_id: str, partitions: Iterable[int]) -> frozenset[int]:
        """Return the partitions that are left to the instances: those with a current copy, as long as the topic may be compacted.

        Without an entry, or with an unreadable one, this backup archives a partition. Raises StoreTemporaryError if that is
        unknown for now.
        """
        if fact.topic == OFFSETS_TOPIC or not self._is_enabled:
            return frozenset()
        places = _places_of(fact, topic_id, partitions)
        told = await self._read(fact.topic, list(places.values()))
        copies: dict[int, CompleteCopy] = {}
        for number, place in places.items():
            self._returning.pop(place, None)
            entry = told.get(place)
            if isinstance(entry, RoleEntry) and isinstance(entry.holder, CompleteCopy):
                copies[number] = entry.holder
        if is_compacted(fact) is False:
            self._returning |= {places[number]: copy.position for number, copy in copies.items()}
            return frozenset()
        left = frozenset(copies)
        self._tell_left(fact.topic, left, len(places))
        return left

    async def take_back(self, durable: Mapping[RolePlace, int]) -> None:
        """Make `topics/` current again if it has caught up with the copy. `durable`: its ends, as far as this backup knows."""
        waiting = self._returning.keys() - self._blocked
        for place in [place for place, end in durable.items() if place in waiting and end >= self._returning[place]]:
            try:
                outcome = await self._pool.call(take_back, self._archive, place, durable[place])
            except Exception as error:  # noqa: BLE001 - the copy is read meanwhile, and nothing else depends on it
                log.warning("%s; a copy of %s is read meanwhile", as_ours(error, place.stream), _named(place))
                continue
            if outcome is ReturnOutcome.GAP:
                self._blocked.add(place)
            if outcome is ReturnOutcome.DONE:
                self._returning.pop(place, None)

    # --- reading

    async def _read(self, topic: str, places: Collection[RolePlace]) -> dict[RolePlace, NewestEntry]:
        try:
            told = await self._pool.call(self._read_newest, topic, places)
        except StoreError as error:  # permanent: an unknown role is no reason to archive nothing
            told = dict.fromkeys(places, error)
        for place, found in told.items():
            if isinstance(found, ArchiverError):
                consequence = "it is archived under topics/, whoever else may archive it"
                self._tell(f"{place.stream} {found}", logging.WARNING, f"{found}; {_named(place)}: {consequence}")
        return told

    def _read_newest(self, topic: str, places: Collection[RolePlace]) -> dict[RolePlace, NewestEntry]:
        numbers = newest_numbers(self._archive, f"{ROLES}/{topic}")
        logged = [place for place in places if place.stream in numbers]

        def read(place: RolePlace) -> NewestEntry:
            number = numbers[place.stream]
            known = self._entries.get(place.stream)
            if known is not None and known[0] == number:
                return known[1]
            try:
                entry = read_entry(self._archive, place, number)
            except NotWholeError as error:
                return error
            self._entries[place.stream] = number, entry
            self._blocked.discard(place)
            return entry

        return dict(zip(logged, side_by_side(_READS_AT_ONCE, read, logged, "role"), strict=True))

    # --- reports

    def _tell(self, what: str, level: int, text: str) -> None:
        if what not in self._told:
            self._told.add(what)
            log.log(level, "%s", text)

    def _tell_left(self, topic: str, left: Collection[int], asked: int) -> None:
        if not left:
            self._told.discard(f"left {topic}")
            return
        which = f"partition {min(left)}" if len(left) == 1 else f"{len(left)} of {spell_count(asked, 'partition')}"
        self._tell(
            f"left {topic}",
            logging.INFO,
            f"topic {topic}: a complete copy of {which} is read now, so this is left to the instances that keep copies"
            " (compacted.instances), and not archived under topics/ any more; so will others be",
        )


def place_of(source: PartitionSource) -> RolePlace:
    """Return the place of a partition's role log."""
    return RolePlace(topic=source.topic, life=source.life, partition=source.partition)


def _named(place: RolePlace) -> str:
    return f"{place.topic}-{place.partition}"


def _places_of(fact: TopicFact, topic_id: str, partitions: Iterable[int]) -> dict[int, RolePlace]:
    """Return the places of the role logs, in the lives of the partitions; none for an unrecorded topic id."""
    if topic_id not in {life.topic_id for life in fact.lives}:
        return {}
    return {
        number: RolePlace(topic=fact.topic, life=fact.life_of_partition(topic_id, number).life, partition=number)
        for number in partitions
    }
