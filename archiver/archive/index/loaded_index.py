"""The index of segment facts in a reader's memory: a cache that saves one request per segment. The listing always wins over it (docs/format.md §9)."""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np

from archiver.archive.format.layout import SegmentKey
from archiver.archive.index.index_file import NOTHING_SEEN, Directory
from archiver.archive.index.index_member import cut_member, decode_member
from archiver.archive.segments.entries import Entries
from archiver.archive.segments.listing import ListedPartition, Partition
from archiver.archive.segments.segment_facts import SegmentFacts
from archiver.errors import ArchiverError, NotWholeError
from archiver.process.values.columns import Numbers, Places, as_slice

log = logging.getLogger(__name__)


class KnownDirectory:
    """The entries of a topic directory, by partition."""

    def __init__(self, entries: Entries) -> None:
        self.entries = entries
        numbers = entries.numbers("partition")
        order = np.argsort(numbers, kind="stable").astype(np.int32)
        found, starts = np.unique(numbers[order], return_index=True)
        self._rows = dict(zip(found.tolist(), np.split(order, starts[1:]), strict=False))
        self._false: set[int] = set()

    @property
    def partitions(self) -> Collection[int]:
        return self._rows.keys()

    def extend(self, more: list[Entries]) -> int:
        """Append entries that no file of the index has; return the row where they begin. Methods about partitions ignore them."""
        before = len(self.entries)
        self.entries = Entries.join([self.entries, *more])
        return before

    def rows(self, partition: int) -> Places:
        """Return the rows of a partition in the order of writing."""
        found = self._rows.get(partition)
        return slice(0, 0) if found is None else as_slice(found)

    def ends(self) -> dict[int, int]:
        """Return the end offset of each partition according to all its entries, whether their objects still exist or not."""
        return {partition: int(self.entries.numbers("next")[rows].max()) for partition, rows in self._rows.items()}

    def disbelieve(self, row: int) -> None:
        """Mark an entry as false: its object has other facts."""
        self._false.add(row)

    def end(self, partition: int) -> int:
        """Return the end offset of one partition according to the valid entries: neither replaced by a later one nor contradicted by an object."""
        rows = self.latest(partition)
        rows = rows[~np.isin(rows, list(self._false))] if self._false else rows
        return int(self.entries.numbers("next")[rows].max()) if len(rows) else 0

    def latest(self, partition: int) -> Numbers:
        """Return the rows of a partition without those that a later entry replaces."""
        rows = np.arange(len(self.entries), dtype=np.int32)[self.rows(partition)]
        names = [column.astype(np.int64) for column in self._names(rows)]
        order = _order_of(names)
        is_last = np.ones(len(rows), bool)
        is_last[:-1] = np.logical_or.reduce([np.diff(column[order]) != 0 for column in names])
        return rows[order[is_last]]

    def _names(self, rows: Places) -> tuple[Numbers, Numbers, Numbers]:
        """Return the parts of these objects' names: base, next (0: none), and rewrite."""
        return self.entries.numbers("base")[rows], self.entries.named_next(rows), self.entries.numbers("rewrite")[rows]

    def of_names(self, partition: int, *asked_names: Numbers) -> Numbers:
        """Return the latest row for each of these objects, by base, next and rewrite of their names; -1 without an entry."""
        rows = np.arange(len(self.entries), dtype=np.int32)[self.rows(partition)]
        names = [
            np.concatenate([told.astype(np.int64), asked])
            for told, asked in zip(self._names(rows), asked_names, strict=True)
        ]
        order = _order_of(names)  # stable: for each name, first the entries, then the requested object
        is_asked = order >= len(rows)
        latest = np.maximum.accumulate(np.where(is_asked, -1, np.arange(len(order))))[is_asked]
        asked, told = order[is_asked], order[latest]
        is_told = np.logical_and.reduce([latest >= 0, *(column[told] == column[asked] for column in names)])
        found = np.full(len(asked), -1, np.int32)
        found[asked[is_told] - len(rows)] = rows[told[is_told]]
        return found

    def is_listed(self, listed: ListedPartition, row: Numbers) -> bool:
        """Return whether the object of one row is listed."""
        names = zip((listed.base, listed.named_next, listed.rewrite), self._names(row), strict=True)
        return bool(np.logical_and.reduce([column == told for column, told in names]).any())

    def find(self, listed: ListedPartition) -> Numbers:
        """Return for each listed object the row with its name, size, ETag and facts; -1 without one."""
        found = self.of_names(listed.partition[-1], listed.base, listed.named_next, listed.rewrite)
        places = np.flatnonzero(found >= 0)
        rows, objects, entries = found[places], listed.only(as_slice(places)), self.entries
        is_same = (entries.numbers("size")[rows] == objects.size) & entries.texts("etag").only(rows).are(objects.etag)
        is_good = is_same & entries.has_facts(rows) & ~objects.etag.are_empty()
        found[places[~is_good]] = -1
        return found


class Index:
    """The entries of some topic directories. A directory stays packed until its first access."""

    def __init__(self, *, is_strict: bool = False) -> None:
        self.seen_control = NOTHING_SEEN  # the control objects that any writer ever saw
        self.files = 0  # in the newest generation
        self.lost_files = 0  # missing before the last file
        self.unread_files = 0  # beyond the number of files that readers take
        self._is_strict = is_strict  # an error of the store is raised, and leaves nothing out
        self._problems: dict[str, str] = {}
        self._packed: dict[Directory, list[tuple[str, bytes]]] = {}
        self._known: dict[Directory, KnownDirectory] = {}

    def add(self, directory: Directory, key: str, member: bytes) -> None:
        """Add a topic directory of a file, given by its key. Later entries win."""
        self._packed.setdefault(directory, []).append((key, member))

    def note_problem(self, key: str, problem: str) -> None:
        """Note a problem of a file, or of the whole index, given by its prefix."""
        self._problems.setdefault(key, problem)

    def leave_out(self, key: str, error: ArchiverError) -> None:
        """Note and log why a file, a part of it, or the whole index is not used."""
        if self._is_strict and not isinstance(error, NotWholeError):
            raise error
        log.info("a part of the index of facts is not used: %s", error)
        self.note_problem(key, str(error))

    @property
    def unreadable(self) -> Mapping[str, str]:
        """Read all packed members, and return the problems: of a file by its key, of the whole index by its prefix."""
        for directory in tuple(self._packed):
            self.of(directory)
        return self._problems

    @property
    def directories(self) -> Collection[Directory]:
        return self._packed.keys() | self._known.keys()

    def of(self, directory: Directory) -> KnownDirectory:
        """Return the entries of a topic directory. Unreadable members are left out."""
        if directory not in self._known:
            found = Entries.join([Entries.of(()), *self._unpack(self._packed.pop(directory, []))])
            self._known[directory] = KnownDirectory(found)
        return self._known[directory]

    def _unpack(self, members: list[tuple[str, bytes]]) -> Iterator[Entries]:
        """Decode members, and consume them: together with their entries they would take too much memory."""
        members.reverse()
        while members:
            key, member = members.pop()
            pieces = cut_member(member)
            del member
            try:
                yield decode_member(pieces, key)
            except NotWholeError as error:
                self.leave_out(key, error)

    def forget(self, directory: Directory) -> None:
        """Forget a topic directory."""
        for some in (self._packed, self._known):
            some.pop(directory, None)

    def reach_beyond(self, there: Callable[[Partition], int]) -> dict[Partition, int]:
        """Return the noted end offset of each partition that now ends earlier (`there`)."""
        found: dict[Partition, int] = {}
        for directory in self.directories:
            known = self.of(directory)
            for number, most in known.ends().items():
                place = (*directory, number)
                end = known.end(number) if most > there(place) else 0
                if end > there(place):
                    found[place] = end
        return found

    def not_whole(self, directory: Directory, ends: Mapping[int, int]) -> list[int]:
        """Return the partitions whose entries leave a gap below their end. Offsets before the first entry do not count: they may be swept."""
        known = self.of(directory)
        return [number for number, end in ends.items() if _reach_from_first(known, number, end) < end]

    def gone(self, directory: Directory, listed: Mapping[int, ListedPartition]) -> Numbers:
        """Return for each partition the row that reaches furthest, if its object is no longer listed."""
        known, lost = self.of(directory), list[int]()
        for number in known.partitions:
            rows = np.arange(len(known.entries))[known.rows(number)]
            furthest = rows[np.argmax(known.entries.numbers("next")[rows])][np.newaxis]
            there = listed.get(number)
            is_there = there is not None and known.is_listed(there, furthest)
            if not is_there:
                lost += furthest.tolist()
        return np.array(lost, np.int64)

    def remembered(self, key: SegmentKey) -> SegmentFacts | None:
        """Return the facts of the object that was last put under this key."""
        known = self.of((key.topic, key.life))
        names = (np.array([number]) for number in (key.base, key.next or 0, key.rewrite))
        (row,) = known.of_names(key.partition, *names).tolist()
        return known.entries.known_facts(row) if row >= 0 else None


def _order_of(names: Sequence[Numbers]) -> Numbers:
    """Sort by base, next and rewrite; rewrite is nearly always 0, and costs nothing then."""
    *others, rewrite = names
    return np.lexsort((*([rewrite] if rewrite.any() else []), *reversed(others)))


def _reach_from_first(known: KnownDirectory, partition: int, end: int) -> int:
    """Return how far the entries that begin below an end reach without a gap, from the first entry on."""
    rows = known.rows(partition)
    base, following = (known.entries.numbers(name)[rows].astype(np.int64) for name in ("base", "next"))
    order = np.argsort(base, kind="stable")
    order = order[base[order] < end]
    if not len(order):
        return 0
    reach = np.maximum.accumulate(following[order])
    gaps = np.flatnonzero(base[order][1:] > reach[:-1])
    return int(reach[gaps[0]] if len(gaps) else reach[-1])
