"""Copies an archive into a second one: missing objects alone, each compared after its put. Nothing is deleted or changed.

A copy that is cut off half way must not look whole, so the order matters:

1. The cluster, then the index, which remembers where partitions end, then all other notes: whatever is missing is then missed.
2. Segments, in the order of their puts: what is there is the archive as it was at an earlier time, and a reader that compares
   the put times of two objects finds the same order.
3. The notes of swept offsets last, listed after the segments: they excuse what is missing.

Writers go on meanwhile. So all is listed again until nothing is missing, a few times.
"""

import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from archiver.archive.format.control import CLUSTER, MOMENTS, RESTORES
from archiver.archive.format.handle import Archive
from archiver.archive.notes.topics import another_cluster, read_cluster
from archiver.archive.segments.probe import probe_store
from archiver.archive.segments.segment import open_segment
from archiver.errors import CorruptSegmentError, NotWholeError, UsageError
from archiver.process.output.text import spell_count, spell_size
from archiver.process.running.failpoints import reach
from archiver.process.running.workers import side_by_side
from archiver.store.port import ListedObject, ObjectKind
from archiver.upkeep.control_check import control_problem
from archiver.upkeep.object_check import Level, check_object

# Notes on runs: they speak of keys, targets and processes of the first archive alone.
_OF_RUNS: Final = (RESTORES, MOMENTS, "drills", "runs", "probe", "sweeps/plans", "sweeps/reports")
_SWEPT: Final = "swept"
_MOST_PASSES: Final = 3
_NOTES_AT_ONCE: Final = 16
_SEGMENTS_AT_ONCE: Final = 4
_LARGE_BYTES: Final = 64 << 20  # larger objects are copied one at a time: each is in memory twice
_BATCH: Final = 1_000
_MOST_STRANGERS: Final = 100
Report = Callable[[str], None]


@dataclass(slots=True)
class CopyResult:
    """The copied objects; problems make the copy not whole. `gone`: listed objects that a sweep deleted meanwhile."""

    objects: int = 0
    bytes: int = 0
    gone: int = 0
    strangers: dict[str, None] = field(default_factory=dict)  # the first ones; they are not copied
    problems: dict[str, None] = field(default_factory=dict)

    @property
    def notes(self) -> list[str]:
        return [f"{key}: is not one of ours, and was not copied" for key in self.strangers]


def copy_archive(source: Archive, target: Archive, notice: Report = lambda _: None) -> CopyResult:
    """Copy what the target lacks. Raises UsageError for a target that is no copy of this archive, or overlaps it."""
    cluster_id = read_cluster(source)
    if cluster_id is None:
        raise UsageError(f"{source.layout.root}: nothing is archived there; check storage.url")
    owner = read_cluster(target)
    if owner not in {None, cluster_id}:
        raise another_cluster(f"--to {target.layout.root}", owner, cluster_id)
    probe_store(target)
    copying = _Copying(source, target, notice)
    for _ in range(_MOST_PASSES):
        before = copying.result.objects
        copying.run()
        if copying.result.objects == before:
            break
    return copying.result


class _Copying:
    """One run: its two archives, and what it has copied so far."""

    def __init__(self, source: Archive, target: Archive, notice: Report) -> None:
        self._source, self._target, self._notice = source, target, notice
        self._counting = threading.Lock()
        self._large = threading.Lock()
        self.result = CopyResult()

    def run(self) -> None:
        """Copy what is missing now."""
        layout = self._source.layout
        notes = list(self._missing(layout.control_root))
        is_first = {name: layout.control_prefix(name) for name in (CLUSTER, "index")}
        for prefix in is_first.values():
            self._copy_notes(item for item in notes if item.key.startswith(prefix))
        others = (
            item for item in notes if not item.key.startswith((*is_first.values(), layout.control_prefix(_SWEPT)))
        )
        self._copy_notes(others)
        # Listed behind the notes: an entry of a role log is put after the objects that it names.
        segments = [*self._missing(layout.topics_prefix), *self._missing(layout.copies_root)]
        self._copy_all(sorted(segments, key=lambda item: (item.last_modified, item.key)), _SEGMENTS_AT_ONCE)
        self._copy_notes(self._missing(layout.control_prefix(_SWEPT)))

    def _missing(self, prefix: str) -> Iterator[ListedObject]:
        """Yield the objects below a prefix of the source that the target lacks; both listings have the same order."""
        layout = self._source.layout
        left_out = tuple(map(layout.control_prefix, _OF_RUNS))
        root = prefix.removeprefix(layout.root)
        there = self._target.store.list(f"{self._target.layout.root}{root}")
        other = next(there, None)
        for item in self._source.store.list(prefix):
            if item.key.startswith(left_out):
                continue
            key = self._key_there(item.key)
            while other is not None and other.key < key:
                other = next(there, None)
            if other is None or other.key != key:
                yield item
            elif other.size != item.size:
                self._report(
                    f"{key}: has {other.size:,} bytes, and {item.key} has {item.size:,}: who else writes there?"
                )

    def _key_there(self, key: str) -> str:
        return f"{self._target.layout.root}{key.removeprefix(self._source.layout.root)}"

    def _copy_notes(self, items: Iterable[ListedObject]) -> None:
        self._copy_all(items, _NOTES_AT_ONCE)

    def _copy_all(self, items: Iterable[ListedObject], at_once: int) -> None:
        waiting = iter(items)
        while batch := list(islice(waiting, _BATCH)):
            for _ in side_by_side(at_once, self._copy, batch, "copy"):
                found = self.result
                self._notice(f"{spell_count(found.objects, 'object')} of {spell_size(found.bytes)} copied")

    def _copy(self, item: ListedObject) -> None:
        """Read an object, check it, put it, and read it back."""
        with self._turn(item.size):
            found = self._source.store.get(item.key)
            if found is None:
                with self._counting:
                    self.result.gone += 1
                return
            try:
                kind = self._check(item.key, *found)
                if kind is not None:
                    self._put(item.key, *found, kind)
            except NotWholeError as error:
                self._report(str(error))

    def _turn(self, size: int) -> AbstractContextManager[object]:
        return self._large if size > _LARGE_BYTES else nullcontext()

    def _check(self, key: str, content: bytes, metadata: Mapping[str, str]) -> ObjectKind | None:
        """Return the kind of an object; None: a stranger. Raises NotWholeError for a damaged one."""
        layout = self._source.layout
        if key.startswith(layout.control_root):
            if problem := control_problem(layout, key, content, metadata):
                raise CorruptSegmentError(problem)
            return ObjectKind.FACT
        place = layout.parse_stored(key)
        if place is None:
            with self._counting:
                if len(self.result.strangers) < _MOST_STRANGERS:
                    self.result.strangers[key] = None
            return None
        body = open_segment(content, metadata, key)
        body.check_bytes()
        check_object(body, place, Level.COUNTS)
        return ObjectKind.SEGMENT

    def _put(self, key: str, content: bytes, metadata: Mapping[str, str], kind: ObjectKind) -> None:
        store, key_there = self._target.store, self._key_there(key)
        is_put = store.put_if_absent(key_there, content, metadata, kind=kind) is not None
        reach("copy.put")
        back = store.get(key_there)
        is_same = back is not None and _digest(back[0]) == _digest(content) and _filled(back[1]) == _filled(metadata)
        if not is_same:
            raise CorruptSegmentError(
                f"{key_there}: is not what {key} is; find out who put it, delete it, and run this again"
            )
        with self._counting:
            self.result.objects += is_put
            self.result.bytes += len(content) if is_put else 0

    def _report(self, problem: str) -> None:
        with self._counting:
            self.result.problems[problem] = None


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def _filled(metadata: Mapping[str, str]) -> dict[str, str]:
    """Leave out empty values, which some stores drop."""
    return {name: text for name, text in metadata.items() if text}
