"""The listed generations, and the coverage of their objects: each object is asked for its facts once."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final, NamedTuple

from archiver.archive.copy_proof import settled_ends
from archiver.archive.handle import Archive
from archiver.archive.layout import LAST_FACT_NUMBER, CopyKey, is_instance
from archiver.archive.listing import ListedSegment
from archiver.archive.lookup import ask_facts
from archiver.archive.roles import Generation, RolePlace
from archiver.archive.segment_facts import HoleCause, SegmentFacts
from archiver.archive.segments import Segment
from archiver.archive.store_clock import epoch_ms
from archiver.store.port import ObjectStore

ListedCopies = Mapping[RolePlace, Mapping[Generation, Sequence[ListedSegment]]]


def list_copies(archive: Archive, topic: str, life: int) -> ListedCopies:
    """List the objects of all generations of a topic in one life, of whatever instance. Other keys are left alone."""
    found: dict[RolePlace, dict[Generation, list[ListedSegment]]] = {}
    for instance in filter(is_instance, archive.store.list_directories(archive.layout.copies_root)):
        for item in archive.store.list(archive.layout.copied_topic_prefix(instance, topic, life)):
            copy = archive.layout.parse_copy(item.key)
            key = archive.layout.parse_copied_segment(copy, item.key) if copy else None
            if copy is not None and key is not None:
                generation = Generation(instance=instance, number=copy.generation)
                place = RolePlace(topic=topic, life=life, partition=copy.partition)
                found.setdefault(place, {}).setdefault(generation, []).append(ListedSegment(key, item))
    return found


def highest_generation(archive: Archive, place: RolePlace) -> int:
    """Return the highest number of a generation with an object, of any instance; -1: none."""
    highest = -1
    for instance in filter(is_instance, archive.store.list_directories(archive.layout.copies_root)):
        some = CopyKey(instance=instance, topic=place.topic, life=place.life, partition=place.partition, generation=0)
        parent = archive.layout.copy_prefix(some).removesuffix("/").rpartition("/")[0] + "/"
        copies = (archive.layout.parse_copy(f"{parent}{name}/") for name in archive.store.list_directories(parent))
        numbers = (copy.generation for copy in copies if copy is not None)
        highest = max(
            [highest, *(number for number in numbers if number < LAST_FACT_NUMBER)]
        )  # others nobody has begun
    return highest


def list_copy(archive: Archive, copy: CopyKey) -> Sequence[ListedSegment]:
    """List the objects of one generation. Other keys are left alone."""
    parsed = (
        (archive.layout.parse_copied_segment(copy, item.key), item)
        for item in archive.store.list(archive.layout.copy_prefix(copy))
    )
    return [ListedSegment(key, item) for key, item in parsed if key is not None]


class CopyState(NamedTuple):
    """What the objects of a generation cover."""

    whole_to: int  # from offset 0 on, without a gap
    end: int  # the highest `next`, behind a gap, too
    begins: int  # the log start when it was read
    problem: str = ""  # an unreadable object: then `end` is unknown
    has_expired: bool = False  # records expired in Kafka behind some that were read, before they were read themselves
    # Offsets up to which it proves to be complete, and by objects put until when (ms).
    proven: tuple[tuple[int, int], ...] = ()

    @property
    def is_whole(self) -> bool:
        return not self.problem and self.whole_to == self.end

    @property
    def complete_to(self) -> int:
        """Up to where its objects prove that it has each record of the log, or a later one that replaced it."""
        return self.proven[-1][0] if self.proven else 0

    def proven_since_ms(self, offset: int) -> int | None:
        """Return when the last object was put that this is proved by; None: it is not complete up to the offset."""
        return next((put_ms for end, put_ms in self.proven if end >= offset), None)


class _Span(NamedTuple):
    base: int
    next: int
    begins: int
    has_expired: bool = False
    lacks_until: int = 0
    put_ms: int = 0


NOTHING: Final = CopyState(0, 0, 0)


@dataclass(slots=True)
class CopyFacts:
    """Asks the objects of copies for their facts, and remembers the answers: objects never change."""

    store: ObjectStore
    _known: dict[tuple[RolePlace, Generation], dict[str, tuple[str, _Span]]] = field(default_factory=dict)

    def state_of(self, place: RolePlace, generation: Generation, objects: Sequence[ListedSegment]) -> CopyState:
        """Say what a generation's objects cover."""
        before = self._known.get((place, generation), {})
        known = {one.item.key: before[one.item.key] for one in objects if _is_known(one, before)}
        spans, problems = ask_spans(self.store, [one for one in objects if one.item.key not in known])
        known |= {key: (etag, span) for key, etag, span in spans}
        self._known[place, generation] = known
        put_ms = {one.item.key: epoch_ms(one.item.last_modified) for one in objects}
        state = coverage(span._replace(put_ms=put_ms[key]) for key, (_, span) in known.items())
        return state._replace(problem=problems[0]) if problems else state

    def forget_others(self, places: Collection[RolePlace], copies: ListedCopies) -> None:
        """Forget the generations of these partitions that are listed no longer."""
        for place, generation in list(self._known):
            if place in places and generation not in copies.get(place, {}):
                del self._known[place, generation]


def ask_spans(store: ObjectStore, objects: Sequence[ListedSegment]) -> tuple[list[tuple[str, str, "_Span"]], list[str]]:
    """Ask objects for their coverage: key, ETag and span of each; and the problems of unreadable ones."""
    spans: list[tuple[str, str, _Span]] = []
    problems: list[str] = []
    for seen in ask_facts(store, objects):
        if isinstance(seen, Segment) and isinstance(seen.facts, SegmentFacts):
            spans.append((seen.object_key, seen.etag, _span_of(seen.facts)))
        else:
            problems.append(f"{seen.object_key}: has no facts" if isinstance(seen, Segment) else seen.message)
    return spans, problems


def _is_known(one: ListedSegment, known: Mapping[str, tuple[str, _Span]]) -> bool:
    return one.item.key in known and known[one.item.key][0] == one.item.etag


def _span_of(facts: SegmentFacts) -> _Span:
    begins = facts.base
    for hole in sorted(facts.holes, key=lambda hole: hole.first_offset):
        if hole.cause is HoleCause.EXPIRED and hole.first_offset <= begins:
            begins = max(begins, hole.last_offset + 1)
    above = facts.first if facts.base == 0 else -1  # a hole before the first record of a copy is where the log began
    lacks_until = facts.lacks_until(0 if facts.base else begins)
    return _Span(facts.base, facts.next, begins, facts.expired_above(above) is not None, lacks_until)


def coverage(spans: Iterable[_Span], start: int = 0) -> CopyState:
    """Walk through objects by the read rule, from offset 0 on, or from where objects that were walked through before end."""
    position, begins = start, 0
    in_order, read = sorted(spans, key=lambda span: (span.base, -span.next)), list[_Span]()
    for span in in_order:
        if span.base > position:
            break
        if span.next <= position:  # shadowed
            continue
        begins = span.begins if position == 0 else begins
        position = span.next
        read.append(span)
    ends = settled_ends(((span.next, span.lacks_until) for span in read), start)
    puts = accumulate((span.put_ms for span in read), max)
    proven = tuple((offset, put_ms) for (offset, is_settled), put_ms in zip(ends, puts, strict=True) if is_settled)
    end = max([start, *(span.next for span in in_order)])
    has_expired = any(span.has_expired for span in in_order)
    return CopyState(position, end, begins, has_expired=has_expired, proven=proven)
