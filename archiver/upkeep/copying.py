"""Copies an archive into a second one: missing objects alone, each compared after its put. Nothing is deleted or changed.

A copy that is cut off half way must not look whole, so the order matters:

1. The cluster, then the index, which has the ends of partitions, then all other notes: readers report missing segments.
2. Segments, in the order of their puts: the copied ones are the archive of an earlier time, and put times keep their order.
3. The notes of swept offsets last, listed after the segments: they explain what is missing.

Objects that writers put meanwhile are copied by the next run.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from archiver.archive.format.control import CLUSTER, MOMENTS, RESTORES
from archiver.archive.format.handle import Archive
from archiver.archive.notes.drills import DRILLS
from archiver.archive.notes.run_notes import RUNS
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

# Notes of runs: they name keys, targets and processes of the first archive.
_OF_RUNS: Final = (RESTORES, MOMENTS, DRILLS, RUNS, "probe", "sweeps/plans", "sweeps/reports")
_SWEPT: Final = "swept"
_NOTES_AT_ONCE: Final = 16
_SEGMENTS_AT_ONCE: Final = 4  # each is in memory twice
_BATCH: Final = 1_000
Report = Callable[[str], None]


@dataclass(slots=True)
class CopyResult:
    """The copied objects; problems make the copy not whole."""

    objects: int = 0
    bytes: int = 0
    problems: list[str] = field(default_factory=list)

    def add(self, other: "CopyResult") -> None:
        self.objects += other.objects
        self.bytes += other.bytes
        self.problems += other.problems


def copy_archive(source: Archive, target: Archive, notice: Report = lambda _: None) -> CopyResult:
    """Copy what the target lacks. Raises UsageError for a source without an archive, StrangerError for a target of another cluster."""
    cluster_id = read_cluster(source)
    if cluster_id is None:
        raise UsageError(f"{source.layout.root}: nothing is archived there; check storage.url")
    owner = read_cluster(target)
    if owner not in {None, cluster_id}:
        raise another_cluster(f"--to {target.layout.root}", owner, cluster_id)
    probe_store(target)
    copying, layout = _Copying(source, target, notice), source.layout
    cluster, index, swept = map(layout.control_prefix, (CLUSTER, "index", "swept"))
    notes = list(copying.missing(layout.control_root))
    copying.copy(item for item in notes if item.key.startswith(cluster))
    copying.copy(item for item in notes if item.key.startswith(index))
    copying.copy(item for item in notes if not item.key.startswith((cluster, index, swept)))
    # Listed behind the notes: an entry of a role log is put after the objects that it names.
    segments = [*copying.missing(layout.topics_prefix), *copying.missing(layout.copies_root)]
    copying.copy(sorted(segments, key=lambda item: (item.last_modified, item.key)), _SEGMENTS_AT_ONCE)
    copying.copy(copying.missing(swept))
    return copying.result


class _Copying:
    """One run: its two archives, and the objects that it has copied."""

    def __init__(self, source: Archive, target: Archive, notice: Report) -> None:
        self._source, self._target, self._notice = source, target, notice
        self.result = CopyResult()

    def missing(self, prefix: str) -> Iterator[ListedObject]:
        """Yield the objects below a prefix that the target lacks, or has in another size. Both listings have the same order."""
        layout = self._source.layout
        left_out = tuple(map(layout.control_prefix, _OF_RUNS))
        there = self._target.store.list(self._key_there(prefix))
        other = next(there, None)
        for item in self._source.store.list(prefix):
            key = self._key_there(item.key)
            while other is not None and other.key < key:
                other = next(there, None)
            is_there = other is not None and (other.key, other.size) == (key, item.size)
            if not is_there and not item.key.startswith(left_out):
                yield item

    def copy(self, items: Iterable[ListedObject], at_once: int = _NOTES_AT_ONCE) -> None:
        """Copy objects, several at a time."""
        waiting = iter(items)
        while batch := list(islice(waiting, _BATCH)):
            for one in side_by_side(at_once, self._copy, batch, "copy"):
                self.result.add(one)
                found = self.result
                self._notice(f"{spell_count(found.objects, 'object')} of {spell_size(found.bytes)} copied")

    def _key_there(self, key: str) -> str:
        return f"{self._target.layout.root}{key.removeprefix(self._source.layout.root)}"

    def _copy(self, item: ListedObject) -> CopyResult:
        """Read an object, check it, put it, and read it back."""
        found = self._source.store.get(item.key)
        if found is None:  # a sweep has deleted it
            return CopyResult()
        try:
            kind = self._check(item.key, *found)
            is_put = kind is not None and self._put(item.key, *found, kind)
        except NotWholeError as error:
            return CopyResult(problems=[str(error)])
        return CopyResult(objects=1, bytes=item.size) if is_put else CopyResult()

    def _check(self, key: str, content: bytes, metadata: Mapping[str, str]) -> ObjectKind | None:
        """Return the kind of an object; None: a stranger. Raises NotWholeError for a damaged one."""
        layout = self._source.layout
        if key.startswith(layout.control_root):
            if problem := control_problem(layout, key, content, metadata):
                raise CorruptSegmentError(problem)
            return ObjectKind.FACT
        place = layout.parse_stored(key)
        if place is None:
            return None
        body = open_segment(content, metadata, key)
        body.check_bytes()
        check_object(body, place, Level.COUNTS)
        return ObjectKind.SEGMENT

    def _put(self, key: str, content: bytes, metadata: Mapping[str, str], kind: ObjectKind) -> bool:
        """Put an object unless it exists, and compare it with the source. Returns whether it was put."""
        store, key_there = self._target.store, self._key_there(key)
        is_put = store.put_if_absent(key_there, content, metadata, kind=kind) is not None
        reach("copy.put")
        back = store.get(key_there)
        if back is None or back[0] != content or _filled(back[1]) != _filled(metadata):
            raise CorruptSegmentError(
                f"{key_there}: differs from {key}; find out who put it, delete it, and run this command again"
            )
        return is_put


def _filled(metadata: Mapping[str, str]) -> dict[str, str]:
    """Leave out empty values, which some stores drop."""
    return {name: text for name, text in metadata.items() if text}
