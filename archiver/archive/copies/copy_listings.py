"""Lists copies of compacted topics: their objects below a prefix, and each directory only once for readers of a topic."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import CopyKey, is_instance
from archiver.archive.segments.listing import ListedPartition, ListedRow, ListedSegment
from archiver.process.running.workers import side_by_side

_LISTINGS_AT_ONCE: Final = 8
_INSTANCES: Final = 2

_Place = tuple[int, int]  # life, partition
_Copies = Mapping[CopyKey, ListedPartition]


def list_copy_objects(archive: Archive, prefix: str) -> Iterator[tuple[CopyKey, ListedSegment]]:
    """List the objects of copies below a prefix. Other keys are left out."""
    for item in archive.store.list(prefix):
        copy = archive.layout.parse_copy(item.key)
        key = archive.layout.parse_copied_segment(copy, item.key) if copy else None
        if copy is not None and key is not None:
            yield copy, ListedSegment(key, item)


class CopyInstances:
    """The instances with copies in the archive, listed on demand, once for all topics of a command."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._names: frozenset[str] | None = None

    def names(self) -> frozenset[str]:
        if self._names is None:
            found = self._archive.store.list_directories(self._archive.layout.copies_root)
            self._names = frozenset(filter(is_instance, found))
        return self._names


class CopyListings:
    """The listed copies of a topic. The generations of a partition that one instance has made are listed together."""

    def __init__(self, archive: Archive, topic: str, instances: CopyInstances) -> None:
        self._archive = archive
        self._topic = topic
        self._instances = instances
        self._listed: dict[_Place, dict[str, _Copies]] = {}  # by partition and instance
        self._lives: dict[tuple[str, int], Mapping[_Place, _Copies]] = {}  # by instance and life

    def load(self, copies: Iterable[CopyKey]) -> None:
        """List the partitions of these copies, each with all generations of the same instance."""
        wanted = {(copy.instance, (copy.life, copy.partition)): None for copy in copies}
        missing = [(name, place) for name, place in wanted if name not in self._listed.get(place, {})]
        found = side_by_side(_LISTINGS_AT_ONCE, self._list_partition, missing, "copy")
        for (name, place), listed in zip(missing, found, strict=True):
            self._listed.setdefault(place, {})[name] = listed

    def load_others(self, places: Iterable[_Place]) -> None:
        """Also list the copies of all other instances: for each instance the whole life of the topic at once.

        An archive has two instances. Where the objects of both are already listed, nothing is requested.
        """
        wanted = {
            (name, place[0]): None
            for place in places
            if sum(map(bool, self._listed.get(place, {}).values())) < _INSTANCES
            for name in self._instances.names() - self._listed.get(place, {}).keys()
            if (name, place[0]) not in self._lives
        }
        found = side_by_side(_LISTINGS_AT_ONCE, self._list_life, wanted, "copy")
        self._lives |= dict(zip(wanted, found, strict=True))

    def of(self, copy: CopyKey) -> ListedPartition | None:
        """Return the objects of a copy whose partition was loaded; None: it has none."""
        return self._listed[copy.life, copy.partition][copy.instance].get(copy)

    def known(self, place: _Place) -> Iterator[tuple[CopyKey, ListedPartition]]:
        """Yield the copies of a partition that were listed so far."""
        listed = self._listed.get(place, {})
        for copies in listed.values():
            yield from copies.items()
        for (name, life), lists in self._lives.items():
            if life == place[0] and name not in listed:
                yield from lists.get(place, {}).items()

    def _list_partition(self, where: tuple[str, _Place]) -> _Copies:
        instance, (life, partition) = where
        some = CopyKey(instance=instance, topic=self._topic, life=life, partition=partition, generation=0)
        directory = self._archive.layout.copy_prefix(some).removesuffix("/").rpartition("/")[0]
        return self._list(f"{directory}/").get((life, partition), {})

    def _list_life(self, where: tuple[str, int]) -> Mapping[_Place, _Copies]:
        return self._list(self._archive.layout.copied_topic_prefix(where[0], self._topic, where[1]))

    def _list(self, prefix: str) -> dict[_Place, dict[CopyKey, ListedPartition]]:
        rows = dict[CopyKey, list[ListedRow]]()
        for copy, (key, item) in list_copy_objects(self._archive, prefix):
            rows.setdefault(copy, []).append((key.base, key.next or 0, key.rewrite, item))
        found: dict[_Place, dict[CopyKey, ListedPartition]] = {}
        for copy, some in rows.items():
            place = (copy.life, copy.partition)
            found.setdefault(place, {})[copy] = ListedPartition.of((copy.topic, *place), some)
        return found
