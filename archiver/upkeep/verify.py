"""Checks the listing of an archive, for `verify`: object names, metadata, notes and what the index remembers."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from archiver.archive.copies.archived_topic import ArchivedTopic
from archiver.archive.copies.copied_topic import BY_ROLES, CopyChoice, find_copied_topics, in_copies, problems_of_copied
from archiver.archive.copies.missing_copies import lost_entries
from archiver.archive.format.control import (
    CLUSTER,
    PRESENT,
    surplus_facts,
)
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.archive.index.index_generations import read_index
from archiver.archive.index.inventory import Inventory, PartitionInventory
from archiver.archive.index.loaded_index import Index
from archiver.archive.notes.topics import TopicFact, read_cluster, topic_stream
from archiver.archive.reading.catalog import join_lives
from archiver.archive.reading.holdings import problems_in, read_contents, swept_notes
from archiver.archive.reading.lost_control import gone_facts, lost_control_objects
from archiver.archive.segments.entries import IndexEntry
from archiver.archive.segments.listing import Partition, list_strangers
from archiver.archive.segments.partition_segments import Segment, Segments, segment_blocks
from archiver.archive.segments.segment_facts import HoleCause, SegmentFacts
from archiver.errors import NotWholeError
from archiver.groups.log.archived_until import lagging_problem, lags_of
from archiver.groups.log.folds import Folds, lost_folds
from archiver.groups.positions.offsets_lives import find_offsets_lives
from archiver.kafka.groups.group_positions import OFFSETS_TOPIC
from archiver.process.output.text import spell_count
from archiver.process.values.columns import Chain, total
from archiver.upkeep.control_check import MEND_INDEX
from archiver.upkeep.covered_ranges import Covered

_NOT_HELD = dict.fromkeys(HoleCause, "were not there to be read") | {
    HoleCause.UNREADABLE: "are lost to this archive: Kafka had an unreadable batch there",
    HoleCause.UNDECIDED: "were left out: their transaction had no outcome",
    HoleCause.ERASED: "were erased on request",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ListingReport:
    """The findings of names and metadata. `problems` make an archive not whole; `notes` explain oddities."""

    topics: int
    partitions: int
    segments: Sequence[Segment]
    problems: Sequence[str]
    notes: Sequence[str]
    covered: Mapping[str, Sequence[Covered]] = field(
        default_factory=dict
    )  # by the covering object, whose records are compared

    @property
    def is_empty(self) -> bool:
        """Whether nothing is archived, and no trace of an archive exists."""
        return not self.topics and not self.problems

    @property
    def records(self) -> int:
        """How many records the facts count; objects of v1.0 have no facts, and are not counted."""
        return sum(total(some.known.numbers("records")) for some in segment_blocks(self.segments))


def check_listing(
    archive: Archive,
    wanted: Callable[[str], bool] | None = None,
    report_progress: Callable[[int, int], None] = lambda _done, _total: None,
    choice: CopyChoice = BY_ROLES,
    *,
    reads_records: bool = False,
) -> ListingReport:
    """Check object names and metadata of the wanted topics (default: all), and that nothing is missing. `choice`: the copies.

    `report_progress` is called now and then with the number of objects whose facts were read, and their total.
    `reads_records`: all objects are read next, so facts of covered objects that are missing here are compared then.
    """
    index = read_index(archive, is_strict=True)  # before the listing: otherwise later puts would look like a loss
    inventory, known, facts, unreadable = read_contents(
        archive, wanted, asks_all=index, report_progress=report_progress
    )
    covered: dict[str, list[Covered]] = {}
    if reads_records:
        inventory, covered = _left_to_records(inventory)
    partitions = {
        (topic, life, number): found
        for (topic, life), numbered in inventory.partitions.items()
        for number, found in numbered.items()
    }
    history = Chain(some for found in partitions.values() for some in (found.segments, found.shadowed))
    copied = _check_copies(archive, inventory, wanted, choice)
    segments = Chain([history, copied.segments])
    others = _other_facts(inventory.learned, index)
    newest_facts = index.seen_control.newest_facts
    remembered = {topic: number for topic, number in newest_facts.items() if wanted is None or wanted(topic)}
    others += [f"{problem}; {MEND_INDEX}" for problem in index.unreadable.values()]
    others += _unread_files(archive.layout, index)
    others += [*_contradictions(archive, segments, facts), *_unnoted_partitions(archive, segments, facts)]
    gone = [*_lost_ends(index, inventory, wanted), *_lost_facts(archive, inventory, known, remembered, copied.topics)]
    holds = index.seen_control.newest_holds
    lost = lost_control_objects(archive, holds) if wanted is None else ()
    unfolded = [*_lagging(inventory, facts.get(OFFSETS_TOPIC)), *_unfolded(archive, inventory)]
    return ListingReport(
        topics=len({*known, *copied.topics, *(topic for topic, _, _ in partitions)}),
        partitions=len(partitions) + copied.partitions,
        segments=segments,
        problems=list(
            dict.fromkeys([*unreadable, *problems_in(inventory), *copied.problems, *others, *gone, *lost, *unfolded])
        ),
        notes=[
            *_notes(inventory),
            *swept_notes(inventory),
            *(f"{key}: is not one of ours" for key in (list_strangers(archive) if wanted is None else ())),
            *copied.notes,
            *_unremembered(archive.layout, index, history),
        ],
        covered=covered,
    )


def _left_to_records(inventory: Inventory) -> tuple[Inventory, dict[str, list[Covered]]]:
    """Take out overlaps that only the records decide. Returns the rest, and the covered objects by covering object."""
    covered: dict[str, list[Covered]] = {}

    def without(found: PartitionInventory) -> PartitionInventory:
        wholes: dict[str, list[str]] = {}
        for part, whole in (one.part_in_whole for one in found.overlaps if one.is_within):
            wholes.setdefault(part, []).append(whole)
        for segment in Chain([found.shadowed, found.segments]) if wholes else ():
            facts = segment.facts
            for whole in wholes.get(segment.object_key, ()):
                if isinstance(facts, SegmentFacts):
                    one = Covered(segment.object_key, facts.base, facts.next, facts.records, facts.digest)
                    covered.setdefault(whole, []).append(one)
        return replace(found, overlaps=tuple(one for one in found.overlaps if not one.is_within)) if wholes else found

    partitions = {
        place: {number: without(found) for number, found in numbered.items()}
        for place, numbered in inventory.partitions.items()
    }
    return replace(inventory, partitions=partitions), covered


def _lagging(inventory: Inventory, fact: TopicFact | None) -> Iterator[str]:
    """Name partitions of the offsets topic that are archived only in part."""
    if fact is not None:
        life = fact.current.life
        lags = lags_of(fact, life, join_lives(inventory, OFFSETS_TOPIC, life, fact)[0], {})
        yield from [lagging_problem(lags)] if lags else ()


def _unfolded(archive: Archive, inventory: Inventory) -> Sequence[str]:
    """Name swept objects of the offsets topic that no fold covers."""
    lives = (numbered for (topic, _), numbered in inventory.partitions.items() if topic == OFFSETS_TOPIC)
    if not any(found.swept for numbered in lives for found in numbered.values()):
        return ()
    unreadable: list[str] = []
    folds = Folds.of(archive, unreadable.append)
    return [*(lost for topic in find_offsets_lives(archive) for lost in lost_folds(topic, folds)), *unreadable]


class _Copies(NamedTuple):
    """The findings about role logs and copies, for each life with a role log."""

    topics: Sequence[str]
    partitions: int  # read from copies
    segments: Sequence[Segment]
    problems: Sequence[str]
    notes: Sequence[str]


def _check_copies(
    archive: Archive, inventory: Inventory, wanted: Callable[[str], bool] | None, choice: CopyChoice
) -> _Copies:
    """Check the current copy of each partition and its tail. Other generations are not checked."""
    read, unreadable = _read_copied(archive, inventory, wanted, choice)
    blocks: dict[tuple[str, int], Segments] = {}  # lives of one topic read the same copies
    partitions: set[Partition] = set()
    for topic in read:
        for one in in_copies(archive.layout, topic).values():
            some = [*segment_blocks(one.segments), *segment_blocks(one.shadowed)]
            blocks |= {(each.stem, int(each.numbers("base").min())): each for each in some}
            partitions |= {each.partition for each in some}
    lost = lost_entries(archive, wanted)
    is_any = any(True for _ in archive.store.list_directories(archive.layout.copies_root))
    others = f"{archive.layout.copies_root}: copies that no role log names as the holder, or as what it replaced, are not verified"
    return _Copies(
        topics=sorted({topic.topic for topic in read}),
        partitions=len(partitions),
        segments=Chain(blocks.values()),
        problems=[*unreadable, *(problem for topic in read for problem in problems_of_copied(topic)), *lost],
        notes=[
            *dict.fromkeys(note for topic in read for note in topic.notes),
            *([others] if is_any and wanted is None else []),
        ],
    )


def _read_copied(
    archive: Archive, inventory: Inventory, wanted: Callable[[str], bool] | None, choice: CopyChoice
) -> tuple[list[ArchivedTopic], list[str]]:
    """Read the topics with copies. On a problem they are listed again: a clearing may have continued meanwhile."""
    if choice.is_history:
        return [], []
    found, unreadable = find_copied_topics(archive, inventory, wanted)
    read = [topic.read(life, choice) for topic in found for life in topic.lives(choice)]
    wrong = {topic.topic for topic in read if problems_of_copied(topic)}
    again, _ = find_copied_topics(archive, inventory, wrong.__contains__) if wrong else ([], [])
    read = [topic for topic in read if topic.topic not in wrong]
    read += [topic.read(life, choice) for topic in again for life in topic.lives(choice)]
    return read, unreadable


def _other_facts(learned: Sequence[Segment], index: Index) -> list[str]:
    """Find objects whose facts differ from the index entries of their keys.

    Objects are never changed, so other facts are a fault. An ETag does not show it: it does not cover the metadata.
    """
    problems: list[str] = []
    for some in (block.known for block in segment_blocks(learned)):
        known = index.of(some.partition[:2])
        rows = known.of_names(some.partition[-1], some.numbers("base"), some.named_next, some.numbers("rewrite"))
        for place, row in enumerate(rows.tolist()):
            remembered = known.entries.known_facts(row) if row >= 0 else None
            if remembered is not None:
                problem = _other(some[place], remembered, known.entries.entry(row, *some.partition[:2]))
                problems += [problem] if problem else []
    return problems


def _other(segment: Segment, remembered: SegmentFacts, entry: IndexEntry) -> str:
    if not isinstance(segment.facts, SegmentFacts) or segment.facts.is_noted_as(remembered):
        return ""
    differing = ", ".join(remembered.differing(segment.facts))
    is_same = bool(entry.etag) and (entry.size, entry.etag) == (segment.size, segment.etag)
    what = "its metadata is not as it was written" if is_same else "is not the object that was put there"
    return f"{segment.object_key}: {what}: the index has other {differing}; bring its older version back"


def _contradictions(archive: Archive, segments: Sequence[Segment], facts: Mapping[str, TopicFact]) -> Iterator[str]:
    """Find objects and control facts that name different clusters, or different topic ids."""
    where = archive.layout.fact_key(CLUSTER, 0)
    try:
        owner = read_cluster(archive)
    except NotWholeError as error:
        yield str(error)
        owner = None
    for key in (key for stream in (CLUSTER, PRESENT) for key in surplus_facts(archive, stream)):
        yield f"{key}: there is one such fact, number 0, and this one is not read; look who put it, and delete it"
    for topic, fact in sorted(facts.items()):
        if owner not in {None, fact.cluster_id}:
            yield f"{_newest(archive.layout, topic)}: is of cluster {fact.cluster_id}, and {where} of {owner}; bring back what was changed"
    alike: Counter[tuple[str, int, str, str]] = Counter()
    for some in segment_blocks(segments):
        alike.update({(*some.partition[:2], *origin): count for origin, count in some.origins().items()})
    for (topic, life, topic_id, cluster_id), count in sorted(alike.items()):
        name, objects = f"{topic}@{life}" if life else topic, spell_count(count, "object is", "objects are")
        known = facts.get(topic)
        lives = () if known is None else known.lives
        if owner not in {None, cluster_id}:
            yield f"{name}: {objects} of cluster {cluster_id}, and {where} of {owner}; bring back what was changed"
        if known is not None and life >= len(lives):
            yield f"{name}: {objects} of a life that {_newest(archive.layout, topic)} does not have; bring it back"
        elif lives and len({topic_id, lives[life].topic_id} - {""}) > 1:  # brokers before 2.8 have none
            yield (
                f"{name}: {objects} of topic id {topic_id}, and {_newest(archive.layout, topic)} has"
                f" {lives[life].topic_id} there; bring back what was changed"
            )


def _unnoted_partitions(archive: Archive, segments: Sequence[Segment], facts: Mapping[str, TopicFact]) -> Iterator[str]:
    """Find objects in partitions that the topic's note does not have. Earlier topics of that name may have had more."""
    for topic, life, number in sorted({some.partition for some in segment_blocks(segments)}):
        fact = facts.get(topic)
        if fact is None or life >= len(fact.lives) or fact.root(life) != fact.root(fact.current.life):
            continue
        if number >= fact.partitions:
            yield (
                f"{topic}-{number}: objects of a partition that {_newest(archive.layout, topic)} does not have (it has"
                f" {fact.partitions}): find out who put them, or bring the note back"
            )


def _newest(layout: Layout, topic: str) -> str:
    return f"the newest fact in {layout.control_prefix(topic_stream(topic))}"


def _lost_facts(
    archive: Archive,
    inventory: Inventory,
    known: Mapping[str, Sequence[int]],
    remembered: Mapping[str, int],
    copied: Iterable[str],
) -> Iterator[str]:
    """Find missing control facts: the cluster's, a topic's, or one below an existing number.

    Only the index shows that a topic's newest fact is missing: it remembers the number.
    """
    topics = {
        topic
        for (topic, _), numbered in inventory.partitions.items()
        for found in numbered.values()
        if any(len(some.known) for some in segment_blocks(Chain([found.segments, found.shadowed])))
    }  # writers of v1.0 put no control objects
    if topics and archive.store.head(archive.layout.fact_key(CLUSTER, 0)) is None:
        yield f"{archive.layout.fact_key(CLUSTER, 0)}: is gone: whose archive this is; bring it back from the bucket's versions"
    for topic in sorted(topics | known.keys() | remembered.keys() | set(copied)):
        found = known.get(topic, ())
        newest = max(*found, remembered.get(topic, 0), 0)
        yield from gone_facts(archive.layout, topic_stream(topic), found, newest + 1)


def _lost_ends(index: Index, inventory: Inventory, wanted: Callable[[str], bool] | None) -> Iterator[str]:
    """Find partitions whose last objects are missing: that leaves no gap, but the index remembers where they ended."""
    damaged = {(damage.key.topic, damage.key.life, damage.key.partition) for damage in inventory.damaged}

    def there(place: Partition) -> int:
        found = inventory.partitions.get(place[:2], {}).get(place[2])
        blocks = () if found is None else segment_blocks(found.segments)
        return max((int(some.numbers("next").max()) for some in blocks), default=0)

    for place, reach in sorted(index.reach_beyond(there).items()):
        topic, life, number = place
        if place not in damaged and (wanted is None or wanted(topic)):
            name = f"{topic}@{life}" if life else topic
            yield (
                f"{name}-{number}: offsets {there(place)}-{reach - 1} were archived once, and their objects are gone; bring"
                " them back from the bucket's versions"
            )


def _unread_files(layout: Layout, index: Index) -> Iterator[str]:
    if index.unread_files:
        yield (
            f"{layout.index_prefix}: {spell_count(index.unread_files, 'file of the index is', 'files of the index are')} not read, as too"
            " many come before; a backup merges them, unless one of them is damaged"
        )


def _unremembered(layout: Layout, index: Index, segments: Sequence[Segment]) -> Iterator[str]:
    has_facts = any(len(some.known) for some in segment_blocks(segments))  # objects of v1.0 are in no index
    if has_facts and not index.files and not index.unreadable:
        yield (
            f"{layout.index_prefix}: there is no index, which remembers where partitions ended: whether their last objects"
            " are gone, only --against-kafka can tell"
        )
    if index.lost_files:
        yield (
            f"{layout.index_prefix}: {spell_count(index.lost_files, 'file of the index is', 'files of the index are')} gone,"
            " and with that what was remembered of where partitions ended"
        )


def _notes(inventory: Inventory) -> Iterator[str]:
    for (topic, life), numbered in inventory.partitions.items():
        name = f"{topic}@{life}" if life else topic
        for number, found in numbered.items():
            blocks = segment_blocks(found.segments)
            for hole in (hole for some in blocks for facts in some.facts_with_holes() for hole in facts.holes):
                yield f"{name}-{number}: offsets {hole.first_offset}-{hole.last_offset} {_NOT_HELD[hole.cause]} ({hole.cause})"
            bare = [one.numbers("base") for some in blocks if len(one := some.of_v1)]
            if bare:
                yield (
                    f"{name}-{number}: {spell_count(sum(map(len, bare)), 'object is', 'objects are')} of v1.0, from offset {bare[0][0]} on,"
                    " which tells neither how many records there were, nor what they were; what was below the first object"
                    " nothing tells"
                )
            doubtful = {one.left_out for one in found.overlaps}
            for segment in found.shadowed:
                if segment.object_key not in doubtful:
                    yield f"{segment.object_key}: its records are in other objects, too; no reader uses it"
    for key in inventory.strangers:
        yield f"{key}: is not one of ours"


def put_since(segments: Sequence[Segment], since_ms: int) -> Sequence[Segment]:
    """Return the objects that were put since a time. Stores return whole seconds."""
    return Chain(some.put_since(since_ms // 1000) for some in segment_blocks(segments))
