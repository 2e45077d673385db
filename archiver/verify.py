"""Is the archive whole? What is looked at, level by level, and what is found."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum

from archiver.codec.avro import encode_header, says_the_same, split_blocks
from archiver.control import decode_fact, encode_fact, topic_stream
from archiver.errors import CorruptSegmentError, NotWholeError
from archiver.facts import SegmentFacts, facts_from_metadata
from archiver.holdings import look, problems_in
from archiver.index import check_index_file, read_index
from archiver.inventory import Inventory, Segment
from archiver.layout import Layout, SegmentKey
from archiver.segment import check_header, read_segment
from archiver.store import PROBE, ObjectStore
from archiver.tally import Tally

_READS_AT_ONCE = 16


class Level(StrEnum):
    """How much of the archive is read; each level does what those before it do."""

    LISTING = "listing"  # names and facts: every offset is covered, or its absence explained
    COUNTS = "counts"  # the objects, but no record: as many in the blocks as the facts say
    RECORDS = "records"  # every record: decoded, in order, and adding up to the facts


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What names and facts tell. `problems` make an archive not whole; `notes` explain what may surprise."""

    topics: int
    partitions: int
    segments: Sequence[Segment]
    problems: Sequence[str]
    notes: Sequence[str]

    @property
    def records(self) -> int:
        return sum(segment.facts.records for segment in self.segments)


def check_listing(store: ObjectStore, layout: Layout, wanted: Callable[[str], bool] | None = None) -> Listing:
    """Look at the names and facts of all objects of the wanted topics (default: all), and at what should be there."""
    reach = read_index(store, layout).reach()  # before the listing: what is put meanwhile is no loss
    inventory, known, unreadable = look(store, layout, wanted, reads_all=True)
    partitions = {
        (topic, life, number): found
        for (topic, life), numbered in inventory.partitions.items()
        for number, found in numbered.items()
    }
    segments = [segment for found in partitions.values() for segment in (*found.segments, *found.shadowed)]
    gone = [*_lost_ends(reach, inventory, wanted), *_lost_facts(store, layout, inventory, known)]
    return Listing(
        topics=len({*known, *(topic for topic, _, _ in partitions)}),
        partitions=len(partitions),
        segments=segments,
        problems=[*unreadable, *problems_in(inventory), *gone],
        notes=list(_notes(inventory)),
    )


def _lost_facts(
    store: ObjectStore, layout: Layout, inventory: Inventory, known: Mapping[str, Sequence[int]]
) -> Iterator[str]:
    """Tell of control facts that must be there: the cluster's, each topic's, and those before one that is there.

    That a topic's newest fact is gone nothing tells.
    """
    topics = {topic for topic, _ in inventory.partitions}
    if topics and store.head(layout.fact_key("cluster", 0)) is None:
        yield f"{layout.fact_key('cluster', 0)}: is gone: whose archive this is; bring it back from the bucket's versions"
    with_facts = {topic for topic, found in known.items() if found}
    for topic in sorted(topics | with_facts):
        found = known.get(topic, ())
        for number in sorted(set(range(max(found, default=0) + 1)) - set(found)):
            yield f"{layout.fact_key(topic_stream(topic), number)}: is gone; bring it back from the bucket's versions"


def _lost_ends(
    reached: Mapping[tuple[str, int, int], int], inventory: Inventory, wanted: Callable[[str], bool] | None
) -> Iterator[str]:
    """Tell of partitions whose last objects are gone: no gap shows that, but the index remembers what was put."""
    damaged = {(damage.key.topic, damage.key.life, damage.key.partition) for damage in inventory.damaged}
    for place, reach in sorted(reached.items()):
        topic, life, number = place
        found = inventory.partitions.get((topic, life), {}).get(number)
        end = max((segment.facts.next for segment in found.segments), default=0) if found else 0
        if end < reach and place not in damaged and (wanted is None or wanted(topic)):
            name = f"{topic}@{life}" if life else topic
            yield (
                f"{name}-{number}: offsets {end}-{reach - 1} were archived once, and their objects are gone; bring them"
                " back from the bucket's versions"
            )


def _notes(inventory: Inventory) -> Iterator[str]:
    for (topic, life), numbered in inventory.partitions.items():
        name = f"{topic}@{life}" if life else topic
        for number, found in numbered.items():
            for hole in (hole for segment in found.segments for hole in segment.facts.holes):
                yield f"{name}-{number}: offsets {hole.first_offset}-{hole.last_offset} were not there to be read ({hole.cause})"
            for segment in found.shadowed:
                yield f"{segment.object_key}: its records lie in other objects, too; nobody reads it"
    for key in inventory.strangers:
        yield f"{key}: is not one of ours"


def check_control(store: ObjectStore, layout: Layout) -> list[str]:
    """Read all that is beside the records: facts, the index, the probe. Returns what is not as it was written."""
    keys = [item.key for item in store.list(layout.control_root)]

    def look(key: str) -> str:
        found = store.get(key)
        try:
            return "" if found is None else _control_problem(layout, key, *found)
        except NotWholeError as error:
            return str(error)

    with ThreadPoolExecutor(max_workers=_READS_AT_ONCE, thread_name_prefix="control") as pool:
        return [problem for problem in pool.map(look, keys) if problem]


def _control_problem(layout: Layout, key: str, content: bytes, metadata: Mapping[str, str]) -> str:
    if key.startswith(layout.index_prefix):
        try:
            check_index_file(content, metadata, key)
        except NotWholeError as error:
            return f"{error}; delete it: the index is a cache, and does without"
        return ""
    if key == layout.probe_key:
        return "" if content == PROBE else f"{key}: is not what a writer puts there; delete it"
    if layout.is_fact(key):
        same = encode_fact(decode_fact(content, key)) == content
        return "" if same else f"{key}: is not as it was written; bring its older version back"
    return f"{key}: is not one of ours"


def put_since(segments: Sequence[Segment], since_ms: int) -> list[Segment]:
    """Leave out what an earlier run may have read."""
    return [one for one in segments if one.put_at is None or one.put_at.timestamp() * 1000 >= since_ms]


def check_content(content: bytes, metadata: Mapping[str, str], key: SegmentKey, name: str, level: Level) -> None:
    """Compare an object with what its metadata says of it. Raises NotWholeError, which names the object."""
    facts = facts_from_metadata(metadata, name)
    if level is Level.RECORDS:
        _check_records(content, facts, key, name)
    else:
        _check_counts(content, facts, name)


def _check_counts(content: bytes, facts: SegmentFacts | None, name: str) -> None:
    view = memoryview(content)
    header, facts = check_header(view, facts, name)
    counted = sum(block.count for block in split_blocks(view, header, name))
    if facts is not None and counted != facts.records:
        raise CorruptSegmentError(f"{name}: {counted} records in its blocks, {facts.records} in its facts")


def _check_records(content: bytes, facts: SegmentFacts | None, key: SegmentKey, name: str) -> None:
    view = memoryview(content)
    header, known = check_header(view, facts, name)
    # The SHA-256 begins behind the header, and a reader overlooks what nothing depends on.
    if known is not None and not says_the_same(
        bytes(view[: header.size]), encode_header(header.codec, header.sync, known.to_header())
    ):
        raise CorruptSegmentError(f"{name}: its header is not as it was written")
    tally = Tally()
    for frame in read_segment(content, facts, topic=key.topic, partition=key.partition, key=name):
        tally.add(frame)
    differing = [] if facts is None else [fact for fact, one in tally.facts().items() if getattr(facts, fact) != one]
    if differing:
        raise CorruptSegmentError(f"{name}: its records do not add up to its facts: {', '.join(differing)}")
