"""A listing -> segments per partition: what is readable, shadowed, missing, strange (docs/format.md §7)."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial

from archiver.errors import CorruptSegmentError, NotWholeError
from archiver.facts import Bounds, SegmentFacts, facts_from_metadata
from archiver.index import Index, read_index, share
from archiver.index_file import IndexEntry
from archiver.layout import Layout, SegmentKey
from archiver.listing import ListedSegment, Newest, list_segments
from archiver.store import ListedObject, ObjectInfo, ObjectStore

HEADS_AT_ONCE = 16
_TOLD_EACH = 100  # objects that are asked for their facts
_BRING_BACK = "bring their objects back from the bucket's versions"
# Segments that an index should have known: whoever had to ask for them tells the others. A backup that runs does it itself,
# within a quarter of an hour.
_MANY = 200
_OVERDUE = timedelta(minutes=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One object: what its key says, and its facts; of a v1.0 object what its ends tell."""

    key: SegmentKey
    object_key: str
    size: int
    etag: str = ""  # of the object that the facts are of
    put_at: datetime | None = None  # by the store's clock
    facts: SegmentFacts | Bounds

    def __post_init__(self) -> None:
        named, facts = self.key.next, self.facts
        if facts.base != self.key.base or (named is not None and named != facts.next):
            raise CorruptSegmentError(
                f"{self.object_key}: its facts cover {facts.base}..{facts.next}, its name says otherwise"
            )

    @property
    def most_records(self) -> int:
        """How many records it has, or could have."""
        facts = self.facts
        return facts.records if isinstance(facts, SegmentFacts) else facts.last - facts.first + 1

    @property
    def content_id(self) -> str:
        """What another content would have otherwise."""
        return self.facts.sha256 if isinstance(self.facts, SegmentFacts) else self.etag


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The records of a segment at or above an offset, and below another if there is one."""

    segment: Segment
    from_offset: int
    until_offset: int | None = None

    @property
    def next(self) -> int:
        """Where the reading ends."""
        return self.segment.facts.next if self.until_offset is None else self.until_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Offsets, both inclusive, that no segment covers; beside a v1.0 object they need not have been records."""

    first_offset: int
    last_offset: int
    is_certain: bool = True

    def __str__(self) -> str:
        return f"{self.first_offset}-{self.last_offset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """Offsets, both inclusive, of two objects, one of v1.0: nothing tells whether their records are the same."""

    first_offset: int
    last_offset: int
    read: str
    left_out: str

    def __str__(self) -> str:
        return f"{self.first_offset}-{self.last_offset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionInventory:
    """One partition by the read rule. `position` is the end of the contiguous coverage, `end` of any."""

    readable: tuple[Reading, ...]
    shadowed: tuple[Segment, ...]
    gaps: tuple[Gap, ...]
    overlaps: tuple[Overlap, ...] = ()

    @property
    def segments(self) -> tuple[Segment, ...]:
        return tuple(reading.segment for reading in self.readable)

    @property
    def position(self) -> int:
        if self.gaps:
            return self.gaps[0].first_offset
        return self.readable[-1].segment.facts.next if self.readable else 0

    def from_offset(self, offset: int) -> "PartitionInventory":
        """Leave out what lies below an offset."""
        return PartitionInventory(
            readable=tuple(
                reading if reading.from_offset >= offset else replace(reading, from_offset=offset)
                for reading in self.readable
                if reading.next > offset
            ),
            shadowed=self.shadowed,
            gaps=tuple(
                replace(gap, first_offset=max(gap.first_offset, offset))
                for gap in self.gaps
                if gap.last_offset >= offset
            ),
            overlaps=tuple(overlap for overlap in self.overlaps if overlap.last_offset >= offset),
        )

    def until_offset(self, offset: int) -> "PartitionInventory":
        """Leave out what lies at or above an offset; what is missing up to there is a gap."""
        readable = tuple(_cut(reading, offset) for reading in self.readable if reading.from_offset < offset)
        end = readable[-1].next if readable else 0
        gaps = tuple(gap for gap in self.gaps if gap.last_offset < end)
        if end < offset:
            gaps += (Gap(first_offset=end, last_offset=offset - 1),)
        overlaps = tuple(overlap for overlap in self.overlaps if overlap.first_offset < offset)
        return PartitionInventory(readable=readable, shadowed=self.shadowed, gaps=gaps, overlaps=overlaps)

    def reaching(self, end: int) -> "PartitionInventory":
        """Add the gap that no listing shows, up to an offset that something else remembers as the end."""
        there = self.readable[-1].next if self.readable else 0
        return self if there >= end else replace(self, gaps=(*self.gaps, Gap(first_offset=there, last_offset=end - 1)))

    def then(self, later: "PartitionInventory") -> "PartitionInventory":
        """Go on with what another life holds from the end of this one."""
        return PartitionInventory(
            readable=self.readable + later.readable,
            shadowed=self.shadowed + later.shadowed,
            gaps=self.gaps + later.gaps,
            overlaps=self.overlaps + later.overlaps,
        )


def _cut(reading: Reading, offset: int) -> Reading:
    return replace(reading, until_offset=offset) if reading.next > offset else reading


EMPTY = PartitionInventory(readable=(), shadowed=(), gaps=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A segment by its key whose facts cannot be trusted; the message names it."""

    key: SegmentKey
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """Everything under `topics/`."""

    partitions: Mapping[tuple[str, int], Mapping[int, PartitionInventory]]  # (topic, life) -> partition -> inventory
    strangers: tuple[str, ...]
    damaged: tuple[Damage, ...]
    _damaged_in: dict[tuple[str, int], dict[int, list[Damage]]] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        for damage in self.damaged:
            key = damage.key
            self._damaged_in.setdefault((key.topic, key.life), {}).setdefault(key.partition, []).append(damage)

    def lives(self) -> dict[str, set[int]]:
        """Return the lives of each topic that have an object."""
        lives: dict[str, set[int]] = {}
        for topic, life in (*self.partitions, *self._damaged_in):
            lives.setdefault(topic, set()).add(life)
        return lives

    def damage_of(self, topic: str, life: int) -> dict[int, list[str]]:
        """Return what is wrong in each partition that has a damaged object."""
        damaged = self._damaged_in.get((topic, life), {})
        return {number: [damage.message for damage in found] for number, found in damaged.items()}

    def numbers_of(self, topic: str, lives: Iterable[int]) -> set[int]:
        """Return the partitions of which any of these lives has an object."""
        return {
            number
            for life in lives
            for found in (self.partitions, self._damaged_in)
            for number in found.get((topic, life), ())
        }

    def join(
        self, topic: str, partition: int, lineage: Iterable[tuple[int, int, int | None]]
    ) -> tuple[PartitionInventory, list[str]]:
        """Join what lives hold of a partition, each (life, from, until); and tell what is wrong with their objects."""
        joined, damaged = EMPTY, list[str]()
        for life, start, until in lineage:
            part = self.partitions.get((topic, life), {}).get(partition, EMPTY)
            part = part if until is None else part.until_offset(until)
            joined = joined.then(part.from_offset(start))
            damaged += [
                damage.message
                for damage in self._damaged_in.get((topic, life), {}).get(partition, ())
                if until is None or damage.key.base < until
            ]
        return joined, damaged


def arrange(segments: Iterable[Segment]) -> PartitionInventory:
    """Apply the read rule to the segments of one partition in one life."""
    readable: list[Reading] = []
    shadowed: list[Segment] = []
    gaps: list[Gap] = []
    overlaps: list[Overlap] = []
    position = 0
    for segment in sorted(segments, key=lambda one: (one.facts.base, -one.facts.next)):
        facts, before = segment.facts, readable[-1].segment if readable else None
        is_certain = isinstance(facts, SegmentFacts) and (before is None or isinstance(before.facts, SegmentFacts))
        if before is not None and facts.base < position and not is_certain:
            last = min(position, facts.next) - 1
            overlaps.append(
                Overlap(first_offset=facts.base, last_offset=last, read=before.object_key, left_out=segment.object_key)
            )
        if facts.next <= position:
            shadowed.append(segment)
            continue
        if facts.base > position:
            # A v1.0 archive begins where the log did, and does not tell what was below.
            if before is not None or is_certain:
                gaps.append(Gap(first_offset=position, last_offset=facts.base - 1, is_certain=is_certain))
            position = facts.base
        readable.append(Reading(segment=segment, from_offset=position))
        position = facts.next
    return PartitionInventory(
        readable=tuple(readable), shadowed=tuple(shadowed), gaps=tuple(gaps), overlaps=tuple(overlaps)
    )


def problems_of(topic: str, number: int, partition: PartitionInventory, damaged: Iterable[str]) -> list[str]:
    """Tell what of a partition cannot be read: its damaged objects, and the offsets that are missing."""
    problems = list(damaged)
    missing = ", ".join(str(gap) for gap in partition.gaps if gap.is_certain)
    unknown = ", ".join(str(gap) for gap in partition.gaps if not gap.is_certain)
    if missing:
        problems.append(f"{topic}-{number}: offsets {missing} are missing from the archive; {_BRING_BACK}")
    if unknown:
        problems.append(
            f"{topic}-{number}: offsets {unknown} are in no object, and v1.0 does not tell whether they ever were records"
        )
    problems += [
        f"{topic}-{number}: offsets {overlap} are in {overlap.read} and in {overlap.left_out}, and v1.0 does not tell"
        " whether they are the same records; the first are read"
        for overlap in partition.overlaps
    ]
    # One object that cannot be read is most often the whole reason why its offsets are missing.
    is_one = len(problems) == 2 and partition.gaps and not partition.overlaps
    return ["; ".join(problems)] if is_one else problems


def read_inventory(
    store: ObjectStore,
    layout: Layout,
    wanted: Callable[[str], bool] | None = None,
    *,
    asks_all: bool = False,
    tell: Callable[[int, int], None] = lambda _done, _total: None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Inventory:
    """List the archive and learn the facts of every segment; of the wanted topics only, if told which.

    `asks_all`: each object is asked for its facts, and the index is not looked at. `tell` is told now and then
    how many were asked, and of how many.
    """
    index = Index() if asks_all else read_index(store, layout, wanted)  # first: what is put meanwhile is not missing
    listing = list_segments(store, layout, wanted)
    known, unknown = _look_up(index, listing.segments)
    learned, damaged = learn(store, unknown, tell)
    entries = _entries_of(learned)
    if entries and not asks_all and (len(entries) >= _MANY or any(_is_overdue(one, now()) for one in learned)):
        share(store, layout, entries)
    partitions = arrange_all([*known, *learned])
    _add_lost_ends(partitions, index, damaged)
    return Inventory(partitions=partitions, strangers=tuple(sorted(listing.strangers)), damaged=damaged)


def _is_overdue(segment: Segment, now: datetime) -> bool:
    """Tell whether an object stands there for so long that no backup will add it to the index any more."""
    return segment.put_at is not None and now - segment.put_at > _OVERDUE


def learn_unknown(
    store: ObjectStore, layout: Layout, index: Index, topic: str, life: int, partition: int
) -> Iterator[list[IndexEntry]]:
    """Ask those objects of a partition for their facts that the index does not know, some after the others."""
    items = store.list(layout.partition_prefix(topic, life, partition))
    listed = [ListedSegment(key, item) for item in items if (key := layout.parse_segment(item.key)) is not None]
    _, unknown = _look_up(index, listed)
    for start in range(0, len(unknown), _TOLD_EACH):
        yield _entries_of(learn(store, unknown[start : start + _TOLD_EACH])[0])


def _entries_of(segments: Iterable[Segment]) -> list[IndexEntry]:
    """Make entries for the index; it has none of v1.0 objects."""
    return [
        IndexEntry(one.key, one.size, one.etag, one.facts) for one in segments if isinstance(one.facts, SegmentFacts)
    ]


def learn(
    store: ObjectStore, listed: Sequence[ListedSegment], tell: Callable[[int, int], None] = lambda _done, _total: None
) -> tuple[list[Segment], tuple[Damage, ...]]:
    """Ask objects for their facts, several at a time. One that has gone since it was listed is left out."""
    asked: list[Segment | Damage | None] = []
    with ThreadPoolExecutor(max_workers=HEADS_AT_ONCE, thread_name_prefix="head") as pool:
        for seen in pool.map(partial(_look_at, store), listed):
            asked.append(seen)
            if len(asked) % _TOLD_EACH == 0:
                tell(len(asked), len(listed))
    learned = [seen for seen in asked if isinstance(seen, Segment)]
    return learned, tuple(seen for seen in asked if isinstance(seen, Damage))


def _look_up(index: Index, listed: Sequence[ListedSegment]) -> tuple[list[Segment], Sequence[ListedSegment]]:
    """Take from the index what it knows of exactly the listed objects; the others have to be asked for."""
    known: list[Segment] = []
    unknown: list[ListedSegment] = []
    for one in listed:
        key, item = one
        facts = index.find(key, item.size, item.etag)
        if facts is None:
            unknown.append(one)
        else:
            known.append(_segment(key, item, facts))
    return known, unknown


def arrange_all(segments: Sequence[Segment]) -> dict[tuple[str, int], dict[int, PartitionInventory]]:
    """Apply the read rule to segments of any partitions: (topic, life) -> partition -> inventory."""
    grouped: dict[tuple[str, int], dict[int, list[Segment]]] = {}
    for segment in segments:
        by_partition = grouped.setdefault((segment.key.topic, segment.key.life), {})
        by_partition.setdefault(segment.key.partition, []).append(segment)
    return {
        topic_life: {number: arrange(by_partition[number]) for number in sorted(by_partition)}
        for topic_life, by_partition in sorted(grouped.items())
    }


def _add_lost_ends(
    partitions: dict[tuple[str, int], dict[int, PartitionInventory]], index: Index, damaged: Iterable[Damage]
) -> None:
    """Add the gap that no listing shows: what the index has seen behind the objects that a partition still has."""
    unknown = {(one.key.topic, one.key.life, one.key.partition) for one in damaged}  # where those end
    for place, end in index.reach().items():
        topic, life, number = place
        if place not in unknown:
            found = partitions.get((topic, life), {}).get(number, EMPTY)
            reaching = found.reaching(end)
            if reaching is not found:
                partitions.setdefault((topic, life), {})[number] = reaching


def _look_at(store: ObjectStore, listed: ListedSegment) -> Segment | Damage | None:
    """Read a segment's facts; None for an object that has gone since the listing."""
    key, item = listed
    info = store.head(item.key)
    if info is None:
        return None
    try:
        facts = facts_from_metadata(info.metadata, item.key) or _bounds_of(store, key, item.key, info.size)
        return None if facts is None else _segment(key, replace(item, size=info.size, etag=info.etag), facts)
    except NotWholeError as error:
        return Damage(key=key, message=str(error))


def _bounds_of(store: ObjectStore, key: SegmentKey, name: str, size: int) -> Bounds | None:
    from archiver.ends import read_bounds  # noqa: PLC0415 - its kernels take a second to load, and few archives need them

    return read_bounds(store, key, name, size)


def _segment(key: SegmentKey, item: ListedObject, facts: SegmentFacts | Bounds) -> Segment:
    return Segment(key=key, object_key=item.key, size=item.size, etag=item.etag, put_at=item.last_modified, facts=facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedEnd:
    """Where a writer goes on, and which log the newest segment came from. Zero, -1 and empty when there is none."""

    next: int = 0
    leader_epoch: int = -1
    topic_id: str = ""
    cluster_id: str = ""
    key: str = ""  # of the newest segment

    @classmethod
    def of(cls, facts: SegmentFacts, key: str) -> "ArchivedEnd":
        return cls(
            next=facts.next,
            leader_epoch=facts.leader_epoch,
            topic_id=facts.topic_id,
            cluster_id=facts.cluster_id,
            key=key,
        )


def position_of(
    store: ObjectStore, layout: Layout, topic: str, life: int, partition: int, newest_base: int | None = None
) -> ArchivedEnd:
    """Return where a writer goes on: the end of the coverage, with one HEAD, or two beside a merged segment.

    The last plain segment tells; a merged one tells by its name, so an old writer's segment inside it moves nothing back.
    `newest_base` is a hint, the base of the newest segment as far as someone knew: it spares the listing of what lies
    before it, and a listing that contradicts it wins.
    """
    if newest_base is None:
        return _last_end(store, layout, store.list(layout.partition_prefix(topic, life, partition)))
    hinted = layout.segment_key(SegmentKey(topic=topic, life=life, partition=partition, base=newest_base))
    later = _last_end(store, layout, store.list(layout.partition_prefix(topic, life, partition), start_after=hinted))
    if later.key:
        return later
    found = store.head(hinted)
    return position_of(store, layout, topic, life, partition) if found is None else _end_from(hinted, found)


def _last_end(store: ObjectStore, layout: Layout, listed: Iterable[ListedObject]) -> ArchivedEnd:
    newest = Newest()
    for item in listed:
        key = layout.parse_segment(item.key)
        if key is not None:
            newest.see(key, item.key)
    return end_at(store, newest)


def end_at(store: ObjectStore, newest: Newest) -> ArchivedEnd:
    """Return where a writer goes on, by what a listing of its partition had. The facts are asked for: an index does not decide that."""
    plain = _end_of(store, newest.plain) if newest.plain else ArchivedEnd()
    # Only the epoch of the segment that holds the end may be told to a broker: an earlier one would seem to diverge.
    return plain if plain.next >= newest.merged_next else _end_of(store, newest.merged)


def _end_of(store: ObjectStore, key: str) -> ArchivedEnd:
    return _end_from(key, store.head(key))


def _end_from(key: str, info: ObjectInfo | None) -> ArchivedEnd:
    facts = facts_from_metadata(info.metadata, key) if info is not None else None
    if facts is None:
        raise CorruptSegmentError(f"{key}: the newest segment has no facts; move it away, and look who wrote it")
    named = Layout.parse_segment_name(key.rpartition("/")[2])
    if named is not None and named.base != facts.base:
        raise CorruptSegmentError(
            f"{key}: its facts cover {facts.base}..{facts.next}, its name says otherwise; bring its older version back"
        )
    return ArchivedEnd.of(facts, key)
