"""Finds the copies and objects that recent, unfinished restores read; sweeps and clearings do not delete them."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from archiver.archive.format.control import Fact, read_fact
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import CopyKey, is_topic_name
from archiver.archive.notes.restore_streams import ListedNote, list_restore_notes
from archiver.archive.restores.finished_restores import FINISHED, MALFORMED, PLAN, is_finished
from archiver.archive.restores.noted_parts import planned_objects
from archiver.archive.restores.planned_copies import planned_copies
from archiver.errors import NotWholeError
from archiver.process.values.json_values import as_text


class _Target(NamedTuple):
    """The listed notes of one target: its plans, the newest end, and the number of claims.

    A later plan names all objects of the earlier ones, and more. Objects that any plan names stay.
    """

    plans: tuple[ListedNote, ...]
    finished: ListedNote | None
    claims: int

    @property
    def put_ms(self) -> int:
        return self.plans[-1].listed.put_ms

    @property
    def stream(self) -> str:
        return self.plans[-1].stream

    @property
    def restore_id(self) -> str:
        return self.plans[-1].restore_id


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedCopies:
    """The copies that unfinished restores read. `unreadable`: why the copies of other restores are unknown."""

    restores: Mapping[CopyKey, tuple[str, ...]]  # the restores that read each copy
    unreadable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedObjects:
    """The objects under `topics/` that unfinished restores read, by topic and partition.

    `restores`: all restores that are or may be unfinished. `of_unread`: topics with a restore that reads unknown objects, and
    that restore. `unreadable`: restores of unknown topics.
    """

    restores: frozenset[str]
    objects: Mapping[str, Mapping[int, frozenset[str]]]
    of_unread: Mapping[str, str]
    unreadable: tuple[str, ...] = ()


@dataclass(slots=True)
class RestorePins:
    """Reads the pins of unfinished restores. Plans never change, so each is read once.

    A later restore may reuse the id of one whose notes a sweep deleted: its plan has the same number, but a later put time.
    """

    archive: Archive
    _objects: dict[tuple[ListedNote, ...], Mapping[tuple[str, int], frozenset[str]]] = field(default_factory=dict)
    _named: dict[tuple[ListedNote, ...], frozenset[CopyKey]] = field(default_factory=dict)
    _ends: dict[_Target, bool] = field(default_factory=dict)  # whether it is finished

    def read(self, since_ms: int) -> PinnedCopies:
        """Read the copies in plans of unfinished restores, from plans put at a moment or later."""
        pins: dict[CopyKey, tuple[str, ...]] = {}
        unreadable: list[str] = []
        for target in self._targets():
            if target.put_ms < since_ms:
                continue
            try:
                copies = self._copies_of(target)
            except NotWholeError as error:
                unreadable.append(str(error))
                continue
            pins |= {copy: (*pins.get(copy, ()), target.restore_id) for copy in sorted(copies, key=str)}
        return PinnedCopies(restores=pins, unreadable=tuple(unreadable))

    def read_objects(self, since_ms: int) -> PinnedObjects:
        """Read the objects under `topics/` in the same plans."""
        pinned: dict[str, dict[int, frozenset[str]]] = {}
        of_unread: dict[str, str] = {}
        unreadable: list[str] = []
        restores: set[str] = set()
        for target in self._targets():
            if target.put_ms < since_ms or self._ends.get(target):
                continue
            source = ""
            try:
                if target not in self._ends or target.plans not in self._objects:
                    plans = self._read_plans(target)
                    source = as_text(plans[-1].get("source"))
                    if self._is_finished(target, plans):
                        continue
                    named = (key for plan in plans for key in planned_objects(self.archive, target.stream, plan))
                    self._objects[target.plans] = self._by_partition(named)
            except (NotWholeError, *MALFORMED) as error:
                restores.add(target.restore_id)
                told = f"{target.restore_id} (control/{target.stream} does not tell what of it: {error!r:.300})"
                if source:
                    of_unread[source] = told
                else:
                    unreadable.append(told)
                continue
            restores.add(target.restore_id)
            for (topic, partition), keys in self._objects[target.plans].items():
                of_topic = pinned.setdefault(topic, {})
                of_topic[partition] = of_topic.get(partition, frozenset()) | keys
        return PinnedObjects(
            restores=frozenset(restores), objects=pinned, of_unread=of_unread, unreadable=tuple(unreadable)
        )

    def _by_partition(self, keys: Iterable[str]) -> Mapping[tuple[str, int], frozenset[str]]:
        """Sort keys of objects under `topics/` by topic and partition. Keys of copies are left out."""
        found: dict[tuple[str, int], set[str]] = {}
        for key in keys:
            if (segment := self.archive.layout.parse_segment(key)) is not None:
                found.setdefault((segment.topic, segment.partition), set()).add(key)
        return {place: frozenset(some) for place, some in found.items()}

    def _read_plans(self, target: _Target) -> list[Fact]:
        return [read_fact(self.archive, target.stream, plan.listed) for plan in target.plans]

    def _is_finished(self, target: _Target, plans: Sequence[Fact]) -> bool:
        """Return whether a target is finished. The claims are read again when they change, since one may no longer be verified."""
        if target not in self._ends:
            self._ends[target] = target.finished is not None and is_finished(self.archive, plans, target.finished)
        return self._ends[target]

    def _targets(self) -> Iterator[_Target]:
        """List the targets of all restores that have a plan."""
        plans: dict[tuple[str, str], list[ListedNote]] = {}  # by restore and target
        ends: dict[tuple[str, str], ListedNote] = {}
        claims: Counter[tuple[str, str]] = Counter()
        for note in list_restore_notes(self.archive):
            place = note.restore_id, note.target
            if not is_topic_name(note.target) or "/" in note.name:
                continue
            if note.name == PLAN:
                plans.setdefault(place, []).append(note)
            elif note.name == FINISHED:
                ends[place] = note
            else:
                claims[place] += 1
        for place, some in plans.items():
            yield _Target(tuple(some), ends.get(place), claims[place] if place in ends else 0)

    def _copies_of(self, target: _Target) -> frozenset[CopyKey]:
        if (named := self._named.get(target.plans)) is None:
            found = (_named_copies(target.stream, plan) for plan in self._read_plans(target))
            named = self._named[target.plans] = frozenset[CopyKey]().union(*found)
        if not named or target.finished is None:
            return named
        if target not in self._ends:
            self._is_finished(target, self._read_plans(target))
        return frozenset() if self._ends[target] else named


def _named_copies(stream: str, plan: Fact) -> frozenset[CopyKey]:
    """Return the copies that a plan reads. Raises NotWholeError."""
    try:
        return planned_copies(plan)
    except (KeyError, TypeError, ValueError) as error:
        raise NotWholeError(
            f"control/{stream}: does not tell which objects a restore reads ({error!r:.300})"
        ) from error
