"""Whether the copy that holds is whole: each process looks it over now and then, as a reader would, and asks each object once.

An object that is gone, or that tells nothing, is damage: the next copy is due at once. Both instances look, so either may notice
it. Nothing of that is written down: a process that starts again looks again.
"""

import hashlib
import logging
from collections.abc import Sequence
from typing import NamedTuple

from archiver.archive.handle import Archive
from archiver.archive.listing import ListedSegment
from archiver.archive.roles import CompleteCopy, Generation, RoleEntry, RolePlace, read_newest_entry
from archiver.backup.compacted.listed_copies import ask_spans, coverage, list_copy
from archiver.backup.compacted.sights import copy_key

log = logging.getLogger(__name__)


class _Whole(NamedTuple):
    """The first objects of a generation, which were found whole. One number for all of them: there may be many."""

    generation: Generation
    objects: int
    digest: bytes
    next: int


class HolderWatch:
    """Watches the holder of one partition. `first_s`: when it is looked over first; then every `every_s`."""

    def __init__(self, archive: Archive, place: RolePlace, *, first_s: float, every_s: float) -> None:
        self.problem = ""  # of the holder, as it was looked over last
        self.since_ms: int | None = None  # since when that is known here
        self._archive = archive
        self._place = place
        self._due_s = first_s
        self._every_s = every_s
        self._judged: Generation | None = None
        self._whole: _Whole | None = None

    def hasten(self, now_s: float) -> None:
        """Check the current copy at the next look: another instance says that its turn is over."""
        self._due_s = min(self._due_s, now_s)

    def note_holder(self, entry: RoleEntry | None) -> None:
        """Forget the findings about a former copy."""
        holder = entry.holder if entry is not None else None
        if not isinstance(holder, CompleteCopy) or holder.generation != self._judged:
            self.problem, self.since_ms = "", None

    def is_due(self, now_s: float) -> bool:
        return now_s >= self._due_s

    def look(self, copy: CompleteCopy, now_s: float, now_ms: int) -> None:
        """Look the holder over. Called in a worker's thread, one call at a time."""
        problem = self._damage(copy)
        if problem and not self._still_holds(copy.generation):  # it was cleared meanwhile
            return
        if problem and not self.problem:
            log.error(
                "%s: the copy that is read, generation %s, is damaged, and the next one is due: %s",
                self._place.stream, copy.generation, problem,
            )  # fmt: skip
        self._judged, self.problem = copy.generation, problem
        self.since_ms = None if not problem else now_ms if self.since_ms is None else self.since_ms
        self._due_s = now_s + self._every_s

    def _damage(self, copy: CompleteCopy) -> str:
        """Return the problem of a copy; empty if it has none."""
        objects = sorted(list_copy(self._archive, copy_key(self._place, copy.generation)), key=_by_key)
        known = self._whole if self._whole is not None and self._whole.generation == copy.generation else None
        promised = max(copy.next, known.next if known else 0)
        if known is None or _digest(objects[: known.objects]) != known.digest:
            known = _Whole(copy.generation, 0, b"", 0)
        spans, problems = ask_spans(self._archive.store, objects[known.objects :])
        state = coverage((span for _, _, span in spans), known.next)
        if problems:
            return problems[0]
        if not state.is_whole:
            return f"what began at offset {state.whole_to} is in no object"
        if state.has_expired and copy.is_sure:
            return "records expired in Kafka before it had them, and its role log does not say that it is unsure"
        if state.end < promised:
            return f"its objects end at offset {state.end}, and have reached {promised}"
        self._whole = _Whole(copy.generation, len(objects), _digest(objects), state.end)
        return ""

    def _still_holds(self, generation: Generation) -> bool:
        newest = read_newest_entry(self._archive, self._place)
        holder = newest.entry.holder if newest is not None else None
        return isinstance(holder, CompleteCopy) and holder.generation == generation


def _by_key(one: ListedSegment) -> str:
    return one.item.key


def _digest(objects: Sequence[ListedSegment]) -> bytes:
    told = hashlib.sha256()
    for one in objects:
        told.update(f"{one.item.key}\n{one.item.etag}\n".encode())
    return told.digest()
