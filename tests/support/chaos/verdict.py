"""What Kafka's own consumer sees is in the archive exactly once. Nothing of the archiver is asked."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tests.support.chaos.archive import WatchedBucket
from tests.support.chaos.traffic import Topic
from tests.support.foreign_reader import Segment, keys_in, read_segments
from tests.support.java_oracle import Consumed, JavaOracle
from tests.support.records import Rec
from tests.support.service import eventually

_SHOWN = 5
_CATCH_UP_S = 240.0


class VerdictError(AssertionError):
    """The archive is not what it must be."""


@dataclass(slots=True)
class Judgement:
    """What was compared, and what was wrong."""

    partitions: int = 0
    records: int = 0
    segments: int = 0
    shadowed: int = 0
    swept_records: int = 0
    faults: list[str] = field(default_factory=list)

    def add_partition(
        self, name: str, expected: Sequence[Rec], segments: Sequence[Segment], swept: Sequence[range], compacted: bool
    ) -> None:
        """Compare one partition: what Kafka's consumer saw, and all that lies in the archive."""
        read = _walk(segments)
        kept = [record for record in expected if not any(record.offset in gap for gap in read.missing)]
        self.partitions += 1
        self.records += len(read.records)
        self.segments += len(segments)
        self.shadowed += read.shadowed
        self.swept_records += len(expected) - len(kept)
        compare = _compare_compacted if compacted else _compare
        found = [*_gaps(read, _joined(swept)), *compare(kept, read.records)]
        self.faults += [f"{name}: {fault}" for fault in found]


def consume_all(oracle: JavaOracle, bootstrap: str, topics: Sequence[Topic]) -> dict[str, Consumed]:
    return {topic.name: oracle.consume(bootstrap, topic.name) for topic in topics}


def wait_caught_up(watched: WatchedBucket, expected: Mapping[str, Consumed]) -> None:
    """Until the archive's end is behind the last record of every partition."""
    behind = {
        (topic, nr): records[-1].offset
        for topic, consumed in expected.items()
        for nr, records in consumed.records.items()
        if records
    }

    def is_caught_up() -> bool:
        for partition in list(behind):
            if watched.end(partition) > behind[partition]:
                del behind[partition]
        return not behind

    try:
        eventually(is_caught_up, "the archive caught up", _CATCH_UP_S, every_s=0.5)
    except AssertionError as error:
        ends = {partition: (watched.end(partition), offset) for partition, offset in behind.items()}
        raise VerdictError(
            f"no record came any more, and the archive stays behind (end, last offset): {ends}"
        ) from error


def judge(watched: WatchedBucket, expected: Mapping[str, Consumed], topics: Sequence[Topic]) -> Judgement:
    """VerdictError tells what is wrong."""
    judgement = Judgement()
    for topic in topics:
        segments = read_segments(watched.bucket, topic.name)
        by_partition = expected[topic.name].records
        for nr in sorted(by_partition.keys() | {segment.partition for segment in segments}):
            judgement.add_partition(
                f"{topic.name}-{nr}",
                by_partition.get(nr, []),
                [segment for segment in segments if segment.partition == nr],
                watched.swept.get((topic.name, nr), []),
                topic.is_compacted,
            )
    ours = tuple(f"topics/{topic.name}/" for topic in topics)
    strangers = [key for key in keys_in(watched.bucket, "topics/") if not key.startswith(ours)]
    judgement.faults += _some("keys that nobody expected", strangers)
    judgement.faults += _some("keys that were written again", watched.rewritten_keys())
    if judgement.faults:
        raise VerdictError("the archive is not what Kafka holds:\n" + "\n".join(judgement.faults))
    return judgement


@dataclass(slots=True)
class _Read:
    """A partition by the read rule (docs/format.md §7)."""

    records: list[Rec] = field(default_factory=list)
    missing: list[range] = field(default_factory=list)
    holes: list[str] = field(default_factory=list)
    shadowed: int = 0


def _walk(segments: Sequence[Segment]) -> _Read:
    read, position = _Read(), 0
    for segment in sorted(segments, key=lambda one: (one.base, -one.next)):
        if segment.holes:
            read.holes.append(f"{segment.key}: {segment.holes}")
        if segment.next <= position:
            read.shadowed += 1
            continue
        if segment.base > position:
            read.missing.append(range(position, segment.base))
        read.records += [record for record in segment.records if record.offset >= position]
        position = segment.next
    return read


def _joined(ranges: Sequence[range]) -> list[range]:
    """Those that touch become one."""
    joined: list[range] = []
    for one in sorted(ranges, key=lambda some: some.start):
        if joined and one.start <= joined[-1].stop:
            joined[-1] = range(joined[-1].start, max(joined[-1].stop, one.stop))
        else:
            joined.append(one)
    return joined


def _gaps(read: _Read, swept: Sequence[range]) -> list[str]:
    """Only what was swept may be missing; and nothing is ever deleted in Kafka here, so there are no holes."""
    gaps = [
        f"offsets [{gap.start}, {gap.stop}) are in no segment"
        for gap in read.missing
        if not any(one.start <= gap.start and gap.stop <= one.stop for one in swept)
    ]
    return gaps + [f"a hole without a cause: {hole}" for hole in read.holes]


def _compare(expected: Sequence[Rec], found: Sequence[Rec]) -> list[str]:
    if expected == found:
        return []
    faults = _differences(expected, found)
    wanted = {record.offset for record in expected}
    extra = [record.offset for record in found if record.offset not in wanted]
    return [*faults, *_some("records that Kafka does not show", extra)]


def _compare_compacted(expected: Sequence[Rec], found: Sequence[Rec]) -> list[str]:
    """Compaction took records that the archive has: each of them has a later record of its key."""
    last_of_key = {record.key: record.offset for record in found}
    wanted = {record.offset for record in expected}
    extra = [one.offset for one in found if one.offset not in wanted and last_of_key[one.key] == one.offset]
    return [*_differences(expected, found), *_some("records that Kafka does not show, the last of their key", extra)]


def _differences(expected: Sequence[Rec], found: Sequence[Rec]) -> list[str]:
    by_offset = {record.offset: record for record in found}
    counts = Counter(record.offset for record in found)
    lost = [record.offset for record in expected if record.offset not in by_offset]
    doubled = [offset for offset, count in counts.items() if count > 1]
    wrong = [one.offset for one in expected if one.offset in by_offset and by_offset[one.offset] != one]
    disordered = [after.offset for before, after in pairwise(found) if after.offset < before.offset]
    return [
        *_some("lost", lost),
        *_some("doubled", doubled),
        *_some("not the same record", wrong),
        *_some("out of order", disordered),
    ]


def _some(what: str, which: Sequence[object]) -> list[str]:
    if not which:
        return []
    more = f" and {len(which) - _SHOWN} more" if len(which) > _SHOWN else ""
    return [f"{what}: {', '.join(map(str, which[:_SHOWN]))}{more}"]
