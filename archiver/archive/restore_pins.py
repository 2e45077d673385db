"""What unfinished restores read, copies and objects: these stay as long as the restores are young enough."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from archiver.archive.control import RESTORES, Fact, read_fact
from archiver.archive.handle import Archive
from archiver.archive.layout import CopyKey, is_restore_id, is_topic_name
from archiver.archive.noted_parts import planned_objects
from archiver.archive.planned_copies import planned_copies
from archiver.archive.store_clock import epoch_ms
from archiver.errors import NotWholeError
from archiver.process.json_values import as_text

_PLAN: Final = "plan"  # the streams of a target: docs/format.md §8
_FINISHED: Final = "finished"
_OF_TARGET: Final = ("target_cluster_id", "target_topic_id")
# What a fact that is none makes of it.
_NO_PLAN: Final = (AttributeError, KeyError, OverflowError, TypeError, ValueError)
_Newest = tuple[int, datetime]  # number of a fact, and when it was put


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedCopies:
    """The copies that unfinished restores read. `unreadable`: why it is not known which copies other restores read."""

    restores: Mapping[CopyKey, tuple[str, ...]]  # which restores read a copy
    unreadable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedObjects:
    """The objects under `topics/` that unfinished restores read, by topic and partition.

    `restores`: all that are not finished, or may not be. `of_unread`: topics of which it is not known which objects a restore
    reads, each with that restore. `unreadable`: restores of which not even the topic is known.
    """

    restores: frozenset[str]
    objects: Mapping[str, Mapping[int, frozenset[str]]]
    of_unread: Mapping[str, str]
    unreadable: tuple[str, ...] = ()


@dataclass(slots=True)
class RestorePins:
    """Reads what is pinned. A plan never changes, and what it names is read once.

    Of a restore whose notes a sweep took, a later one may have the id: its plan has the same number, and was put later.
    """

    archive: Archive
    _objects: dict[tuple[str, _Newest], Mapping[tuple[str, int], frozenset[str]]] = field(default_factory=dict)
    _named: dict[tuple[str, _Newest], frozenset[CopyKey]] = field(default_factory=dict)
    _finished: set[tuple[str, _Newest, _Newest | None]] = field(default_factory=set)

    def read(self, since_ms: int) -> PinnedCopies:
        """Read the copies that are named by plans of restores that are not finished, and whose plan was put at a moment or later."""
        pins: dict[CopyKey, tuple[str, ...]] = {}
        unreadable: list[str] = []
        for stream, newest, finished in self._plans():
            if epoch_ms(newest[1]) < since_ms:
                continue
            try:
                copies = self._copies_of(stream, newest, finished)
            except NotWholeError as error:
                unreadable.append(str(error))
                continue
            restore_id = stream.split("/")[1]
            pins |= {copy: (*pins.get(copy, ()), restore_id) for copy in sorted(copies, key=str)}
        return PinnedCopies(restores=pins, unreadable=tuple(unreadable))

    def read_objects(self, since_ms: int) -> PinnedObjects:
        """Read the objects under `topics/` that such plans name."""
        pinned: dict[str, dict[int, frozenset[str]]] = {}
        of_unread: dict[str, str] = {}
        unreadable: list[str] = []
        restores: set[str] = set()
        for stream, newest, finished in self._plans():
            if epoch_ms(newest[1]) < since_ms or (stream, newest, finished) in self._finished:
                continue
            source = ""
            try:
                if finished is not None or (stream, newest) not in self._objects:
                    plan = read_fact(self.archive, stream, newest[0])
                    source = as_text(plan.get("source"))
                    if finished is not None and self._is_of(plan, stream, finished):
                        self._finished.add((stream, newest, finished))
                        continue
                    self._objects[stream, newest] = self._by_partition(planned_objects(self.archive, stream, plan))
            except (NotWholeError, *_NO_PLAN) as error:
                restores.add(stream.split("/")[1])
                told = f"{stream.split('/')[1]} (control/{stream} does not tell what of it: {error!r:.300})"
                if source:
                    of_unread[source] = told
                else:
                    unreadable.append(told)
                continue
            restores.add(stream.split("/")[1])
            for (topic, partition), keys in self._objects[stream, newest].items():
                of_topic = pinned.setdefault(topic, {})
                of_topic[partition] = of_topic.get(partition, frozenset()) | keys
        return PinnedObjects(
            restores=frozenset(restores), objects=pinned, of_unread=of_unread, unreadable=tuple(unreadable)
        )

    def _by_partition(self, keys: Iterable[str]) -> Mapping[tuple[str, int], frozenset[str]]:
        """Sort keys by topic and partition. What a plan names of copies is no object of a topic's directory."""
        found: dict[tuple[str, int], set[str]] = {}
        for key in keys:
            if (segment := self.archive.layout.parse_segment(key)) is not None:
                found.setdefault((segment.topic, segment.partition), set()).add(key)
        return {place: frozenset(some) for place, some in found.items()}

    def _is_of(self, plan: Fact, stream: str, finished: _Newest) -> bool:
        """Tell whether it is this plan's target that is finished."""
        end = read_fact(self.archive, f"{stream.removesuffix(_PLAN)}{_FINISHED}", finished[0])
        return all(end.get(name, plan.get(name)) == plan.get(name) for name in _OF_TARGET)

    def _plans(self) -> Iterator[tuple[str, _Newest, _Newest | None]]:
        """List the newest plan of each target of each restore, and the newest fact that says that the target is finished."""
        newest: dict[str, _Newest] = {}
        for item in self.archive.store.list(self.archive.layout.control_prefix(RESTORES)):
            stream, number = self.archive.layout.split_fact(item.key) or ("", 0)
            match stream.split("/"):
                case [_, restore_id, target, name] if (
                    name in {_PLAN, _FINISHED} and is_restore_id(restore_id) and is_topic_name(target)
                ):
                    found = number, item.last_modified
                    newest[stream] = max(newest.get(stream, found), found)
        for stream, plan in newest.items():
            if stream.endswith(f"/{_PLAN}"):
                yield stream, plan, newest.get(f"{stream.removesuffix(_PLAN)}{_FINISHED}")

    def _copies_of(self, stream: str, newest: _Newest, finished: _Newest | None) -> frozenset[CopyKey]:
        plan = None
        if (stream, newest) not in self._named:
            plan = read_fact(self.archive, stream, newest[0])
            self._named[stream, newest] = _named_copies(stream, plan)
        named = self._named[stream, newest]
        if not named or finished is None:
            return named
        plan = plan or read_fact(self.archive, stream, newest[0])
        return frozenset() if self._is_of(plan, stream, finished) else named


def _named_copies(stream: str, plan: Fact) -> frozenset[CopyKey]:
    """Return the copies that a plan reads. Raises NotWholeError."""
    try:
        return planned_copies(plan)
    except (KeyError, TypeError, ValueError) as error:
        raise NotWholeError(
            f"control/{stream}: does not tell which objects a restore reads ({error!r:.300})"
        ) from error
