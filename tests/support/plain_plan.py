"""The read rule and a plan without columns, object by object: the columns are compared with it."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, replace

from archiver.archive.segments.partition_segments import Segment, SegmentSlice
from archiver.archive.segments.parts import ObjectPart
from archiver.archive.segments.segment_facts import Bounds, PartFacts, SegmentFacts
from archiver.codec.selection import ALL_RECORDS, FIRST_LONG, LAST_LONG, NO_TIMESTAMP, Selection


@dataclass(frozen=True)
class Plain:
    """What the walk found. A gap is (first, last, is certain), an overlap (first, last, read, left out)."""

    readable: tuple[SegmentSlice, ...] = ()
    shadowed: tuple[Segment, ...] = ()
    gaps: tuple[tuple[int, int, bool], ...] = ()
    overlaps: tuple[tuple[int, int, str, str], ...] = ()


def walk(segments: Iterable[Segment]) -> Plain:
    kept, aside, contradictions = without_covers(list(segments))
    plain, overlaps = walk_some(one for one in kept if one.key.next is None)
    merged, more = walk_some(one for one in kept if one.key.next is not None)
    shared = [one for whole in merged for one in shared_with(whole.segment, plain)]
    readable = sorted(
        [*plain, *(part for whole in merged for part in without(whole, plain))], key=lambda one: one.from_offset
    )
    gaps = list[tuple[int, int, bool]]()
    for before, one in zip([None, *readable], readable, strict=False):
        end = 0 if before is None else before.next
        beside = [one] if before is None else [before, one]
        is_certain = all(isinstance(reading.segment.facts, SegmentFacts) for reading in beside)
        if one.from_offset > end and (before is not None or is_certain):
            gaps.append((end, one.from_offset - 1, is_certain))
    read = {one.segment.object_key for one in readable}
    shadowed = sorted(
        [one for one in [*kept, *aside] if one.object_key not in read],
        key=lambda one: (one.facts.base, -one.facts.next, -one.key.rewrite),
    )
    return Plain(tuple(readable), tuple(shadowed), tuple(gaps), (*overlaps, *more, *shared, *contradictions))


def walk_some(segments: Iterable[Segment]) -> tuple[list[SegmentSlice], list[tuple[int, int, str, str]]]:
    """The read rule over objects of one kind. Returns also what is left out without a proof."""
    readable: list[SegmentSlice] = []
    overlaps: list[tuple[int, int, str, str]] = []
    position = 0
    for segment in sorted(segments, key=lambda one: (one.facts.base, -one.facts.next, -one.key.rewrite)):
        facts, before = segment.facts, readable[-1].segment if readable else None
        if before is not None and facts.base < position:
            are_known = isinstance(facts, SegmentFacts) and isinstance(before.facts, SegmentFacts)
            if not (are_known and have_same(before, segment)):
                overlaps.append((facts.base, min(position, facts.next) - 1, before.object_key, segment.object_key))
        if facts.next > position:
            readable.append(SegmentSlice(segment=segment, from_offset=max(position, facts.base)))
            position = facts.next
    return readable, overlaps


def without(whole: SegmentSlice, plain: list[SegmentSlice]) -> list[SegmentSlice]:
    """What is left of a merged object where plain ones are read: range by range."""
    left = [whole]
    for one in plain:
        pieces = [(part, part.from_offset, min(part.next, one.from_offset)) for part in left]
        pieces += [(part, max(part.from_offset, one.next), part.next) for part in left]
        left = [
            replace(part, from_offset=start, until_offset=None if stop == part.segment.facts.next else stop)
            for part, start, stop in pieces
            if start < stop
        ]
    return left


def shared_with(whole: Segment, plain: list[SegmentSlice]) -> list[tuple[int, int, str, str]]:
    """Which offsets of a merged object are read of plain ones."""
    pairs = [(max(whole.facts.base, one.from_offset), min(whole.facts.next, one.next) - 1, one) for one in plain]
    return [(first, last, one.segment.object_key, whole.object_key) for first, last, one in pairs if first <= last]


def have_same(one: Segment, other: Segment) -> bool:
    """Whether the facts of two objects say that they have the same records."""
    assert isinstance(one.facts, SegmentFacts)
    assert isinstance(other.facts, SegmentFacts)
    names = ("base", "next", "records", "digest", "min_timestamp", "max_timestamp")
    return [getattr(one.facts, name) for name in names] == [getattr(other.facts, name) for name in names]


def without_covers(
    pile: list[Segment],
) -> tuple[list[Segment], list[Segment], list[tuple[int, int, str, str]]]:
    """Take away the merged objects whose offsets others have, the smallest first. Also tells which of them have other records."""
    with_facts = [one for one in pile if isinstance(one.facts, SegmentFacts)]
    plain = [one for one in with_facts if one.key.next is None]
    smaller, aside, contradictions = list(plain), list[Segment](), list[tuple[int, int, str, str]]()
    for merged in sorted(
        (one for one in with_facts if one.key.next is not None),
        key=lambda one: (one.facts.next - one.facts.base, one.key.rewrite),
    ):
        base, following = merged.facts.base, merged.facts.next
        chain = chain_in(merged, smaller)
        have_all = {offset for one in plain for offset in range(one.facts.base, one.facts.next)}
        if not chain and not have_all.issuperset(range(base, following)):
            smaller.append(merged)
            continue
        aside.append(merged)
        if not chain or total_of(chain) != total_of([merged]):
            first = (
                chain[0]
                if chain
                else max((one for one in plain if one.facts.base <= base), key=lambda one: one.facts.base)
            )
            contradictions.append((base, following - 1, first.object_key, merged.object_key))
    contradicted = {one[3] for one in contradictions}
    order = [
        one.object_key for one in sorted(aside, key=lambda one: (one.facts.next - one.facts.base, one.key.rewrite))
    ]
    return (
        [one for one in pile if one not in aside],
        aside,
        sorted(contradictions, key=lambda one: order.index(one[3])) if contradicted else [],
    )


def chain_in(merged: Segment, smaller: list[Segment]) -> list[Segment]:
    chain, position = list[Segment](), merged.facts.base
    while position < merged.facts.next:
        joining = [
            one
            for one in smaller
            if one.facts.base == position
            and one.facts.next <= merged.facts.next
            and (one.key.next is None or (one.key.base, one.key.next) != (merged.key.base, merged.key.next))
        ]
        if not joining:
            return []
        chain.append(max(joining, key=lambda one: (one.key.next is None, one.facts.next)))
        position = chain[-1].facts.next
    return chain


def total_of(chain: list[Segment]) -> tuple[int, int]:
    """Count and digest of records one behind the other (docs/format.md §5)."""
    count, digest, modulus = 0, 0, 2**61 - 1
    for one in chain:
        assert isinstance(one.facts, SegmentFacts)
        power = pow(0x1D8E4E27C47D124F, one.facts.records, modulus)
        count, digest = count + one.facts.records, (digest * power + one.facts.digest) % modulus
    return count, digest


def above(readable: Iterable[SegmentSlice], offset: int) -> list[SegmentSlice]:
    return [
        reading if reading.from_offset >= offset else replace(reading, from_offset=offset)
        for reading in readable
        if reading.next > offset
    ]


def below(readable: Iterable[SegmentSlice], offset: int) -> list[SegmentSlice]:
    kept = [reading for reading in readable if reading.from_offset < offset]
    return [replace(reading, until_offset=offset) if reading.next > offset else reading for reading in kept]


def wanted(readable: Iterable[SegmentSlice], selection: Selection) -> list[SegmentSlice]:
    return [reading for reading in readable if _may_hold(reading, selection)]


def _may_hold(reading: SegmentSlice, selection: Selection) -> bool:
    facts = reading.segment.facts
    if reading.next <= selection.first_offset or reading.from_offset > selection.last_offset:
        return False
    if not selection.has_times or not isinstance(facts, SegmentFacts):
        return True
    only_without = facts.min_timestamp == facts.max_timestamp == NO_TIMESTAMP
    return not only_without and facts.min_timestamp <= selection.until_ms and facts.max_timestamp >= selection.from_ms


def part_of(reading: SegmentSlice, selection: Selection) -> ObjectPart:
    part = ObjectPart.of(reading)
    wanted_end = None if selection.last_offset == LAST_LONG else selection.last_offset + 1
    ends = [end for end in (part.until_offset, wanted_end) if end is not None]
    return replace(
        part, from_offset=max(part.from_offset, selection.first_offset), until_offset=min(ends, default=None)
    )


def facts_of(part: ObjectPart, reading: SegmentSlice) -> PartFacts:
    facts = reading.segment.facts
    if isinstance(facts, Bounds):
        size, records = reading.segment.size, facts.last - facts.first + 1
        return PartFacts(False, records, FIRST_LONG, LAST_LONG, size, size, 0)
    return PartFacts(
        is_exact=part.from_offset <= facts.first and (part.until_offset is None or part.until_offset > facts.last),
        records=facts.records,
        min_timestamp=facts.min_timestamp,
        max_timestamp=facts.max_timestamp,
        bytes=facts.bytes,
        source_bytes=facts.source_bytes,
        largest_record=facts.largest_record,
    )


def digest_of(readings: Iterable[SegmentSlice], selection: Selection) -> str:
    lines = [
        f"{one.segment.object_key} {one.from_offset} {_content_id(one.segment)}"
        + ("" if one.until_offset is None else f" {one.until_offset}")
        for one in readings
    ]
    if selection != ALL_RECORDS:
        lines.append(" ".join(map(str, astuple(selection))))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _content_id(segment: Segment) -> str:
    return segment.facts.sha256 if isinstance(segment.facts, SegmentFacts) else segment.etag


def groups_of(readings: Sequence[SegmentSlice], limit_bytes: int) -> list[list[SegmentSlice]]:
    stored = sum(reading.segment.size for reading in readings)
    count = max(1, -(-stored // limit_bytes))
    groups: list[list[SegmentSlice]] = [[] for _ in range(count)]
    before = 0
    for reading in readings:
        middle = before + reading.segment.size / 2
        groups[min(count - 1, int(middle * count / max(1, stored)))].append(reading)
        before += reading.segment.size
    return [group for group in groups if group]


def times_within(facts: PartFacts, selection: Selection, first_ms: int, last_ms: int) -> tuple[int, int]:
    """How many of an object's records have a time within, at least and at most."""
    lowest = max(facts.min_timestamp, selection.from_ms, first_ms)
    if lowest > min(facts.max_timestamp, selection.until_ms, last_ms):
        return 0, 0
    ends = {facts.min_timestamp, facts.max_timestamp}
    if not facts.is_exact or not all(map(selection.has, ends)):
        return 0, facts.records
    inside = {end for end in ends if first_ms <= end <= last_ms}
    return facts.records if inside == ends else len(inside), facts.records - len(ends - inside)
