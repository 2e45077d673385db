"""Finds the copies and objects that recent, unfinished restores read; sweeps and clearings do not delete them."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple

from archiver.archive.format.control import RESTORES, Fact, read_fact
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import CopyKey, is_restore_id, is_topic_name
from archiver.archive.format.store_clock import epoch_ms
from archiver.archive.restores.finished_restores import FINISHED, MALFORMED, PLAN, is_finished
from archiver.archive.restores.noted_parts import planned_objects
from archiver.archive.restores.planned_copies import planned_copies
from archiver.errors import NotWholeError
from archiver.process.values.json_values import as_text

_PARTS: Final = 4  # restores/<id>/<target>/<name>
_Listed = tuple[int, datetime]  # number and put time of a fact


class _Target(NamedTuple):
    """The listed notes of one target: its plans, the newest end, and the number of claims.

    A later plan names all objects of the earlier ones, and more. Objects that any plan names stay.
    """

    parent: str
    plans: tuple[_Listed, ...]
    finished: _Listed | None
    claims: int

    @property
    def put_ms(self) -> int:
        return epoch_ms(self.plans[-1][1])

    @property
    def stream(self) -> str:
        return f"{self.parent}/{PLAN}"

    @property
    def restore_id(self) -> str:
        return self.parent.split("/")[1]


_Plans = tuple[str, tuple[_Listed, ...]]  # the target's stream, and its plans


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
    _objects: dict[_Plans, Mapping[tuple[str, int], frozenset[str]]] = field(default_factory=dict)
    _named: dict[_Plans, frozenset[CopyKey]] = field(default_factory=dict)
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
            source, key = "", (target.stream, target.plans)
            try:
                if target not in self._ends or key not in self._objects:
                    plans = self._read_plans(target)
                    source = as_text(plans[-1].get("source"))
                    if self._is_finished(target, plans):
                        continue
                    named = (key for plan in plans for key in planned_objects(self.archive, target.stream, plan))
                    self._objects[key] = self._by_partition(named)
            except (NotWholeError, *MALFORMED) as error:
                restores.add(target.restore_id)
                told = f"{target.restore_id} (control/{target.stream} does not tell what of it: {error!r:.300})"
                if source:
                    of_unread[source] = told
                else:
                    unreadable.append(told)
                continue
            restores.add(target.restore_id)
            for (topic, partition), keys in self._objects[key].items():
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
        return [read_fact(self.archive, target.stream, number) for number, _ in target.plans]

    def _is_finished(self, target: _Target, plans: Sequence[Fact]) -> bool:
        """Return whether a target is finished. The claims are read again when they change, since one may no longer be verified."""
        if target not in self._ends:
            self._ends[target] = target.finished is not None and is_finished(
                self.archive, target.parent, plans, target.finished[0]
            )
        return self._ends[target]

    def _targets(self) -> Iterator[_Target]:
        """List the targets of all restores that have a plan."""
        facts: dict[str, list[_Listed]] = {}  # of plans and ends, by stream
        claims: Counter[str] = Counter()
        for item in self.archive.store.list(self.archive.layout.control_prefix(RESTORES)):
            stream, number = self.archive.layout.split_fact(item.key) or ("", 0)
            parts = stream.split("/")
            if len(parts) != _PARTS or not is_restore_id(parts[1]) or not is_topic_name(parts[2]):
                continue
            if parts[3] in {PLAN, FINISHED}:
                facts.setdefault(stream, []).append((number, item.last_modified))
            else:
                claims[stream.rpartition("/")[0]] += 1
        for stream, plans in facts.items():
            parent, _, name = stream.rpartition("/")
            if name == PLAN:
                finished = max(facts.get(f"{parent}/{FINISHED}", ()), default=None)
                yield _Target(parent, tuple(sorted(plans)), finished, claims[parent] if finished else 0)

    def _copies_of(self, target: _Target) -> frozenset[CopyKey]:
        key = target.stream, target.plans
        if key not in self._named:
            plans = self._read_plans(target)
            self._named[key] = frozenset[CopyKey]().union(*(_named_copies(target.stream, plan) for plan in plans))
        named = self._named[key]
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
