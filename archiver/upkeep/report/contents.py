"""Collects the data of the report: topics and partitions over time, losses by cause, puts a day and their cost, and groups."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from archiver.archive.copies.copied_topic import BY_ROLES, find_copied_topics, in_copies, problems_of_copied
from archiver.archive.format.handle import Archive
from archiver.archive.format.store_clock import epoch_ms
from archiver.archive.index.inventory import EMPTY_PARTITION, Inventory, PartitionInventory
from archiver.archive.reading.holdings import problems_in, read_contents, sum_up
from archiver.archive.segments.partition_segments import Segments, segment_blocks
from archiver.codec.selection import LAST_LONG
from archiver.config.model import IndexUse
from archiver.errors import UsageError
from archiver.groups.positions.shown import PositionFilter, ShownPosition, show_groups
from archiver.process.output.text import spell_some
from archiver.process.values.columns import total
from archiver.upkeep.report import timelines
from archiver.upkeep.report.timelines import Axis, put_times_ms

_DAY_MS: Final = 86_400_000
_MEASURED_MS: Final = 7 * _DAY_MS  # of puts a day
_MOST_PROBLEMS: Final = 20
_MOST_RANGES: Final = 5  # of lost offsets of one partition
_MOST_GROUPS: Final = 100
_GIB: Final = 1 << 30  # what stores charge for as a GB
_DAYS_A_MONTH: Final = 365 / 12


class ReportRequest(NamedTuple):
    """The topics and times to show, and the prices of a GB a month and of 1,000 puts."""

    topics: re.Pattern[str]
    last_ms: int | None  # the length of the time axes; None: all
    price_gb: float
    price_puts: float
    currency: str


class _Part(NamedTuple):
    """A partition of one life, or its current copies."""

    number: int
    inventory: PartitionInventory
    damaged: int = 0
    copy: str = ""

    @property
    def blocks(self) -> tuple[Segments, ...]:
        return segment_blocks(self.inventory.segments)


def collect_report(archive: Archive, asked: ReportRequest, use: IndexUse, now_ms: int) -> dict[str, Any]:
    """Return the data of the page as JSON values. `now_ms`: this machine's time."""

    def wants(topic: str) -> bool:
        return asked.topics.fullmatch(topic) is not None

    found = read_contents(archive, wants)
    parts, problems = _read_parts(archive, found.inventory, wants)
    blocks = [block for some in parts.values() for one in some for block in one.blocks]
    puts_ms = [int(at) for block in blocks if len(put := put_times_ms(block)) for at in (put.min(), put.max())]
    now_ms = max([now_ms, *puts_ms])
    times_ms = [at for block in blocks for at in timelines.first_times_ms(block)]
    record_axis, put_axis = (timelines.axis_of(some, now_ms, asked.last_ms) for some in (times_ms or puts_ms, puts_ms))
    problems = [*found.unreadable, *problems_in(found.inventory), *problems]
    groups = _group_rows(archive, asked, use, problems)
    empty = {(name, 0): () for name in sorted(found.fact_numbers.keys() - {name for name, _ in parts})}
    return {
        "now_ms": now_ms,
        "record_axis": record_axis._asdict(),
        "put_axis": put_axis._asdict(),
        "puts": {name: sums.tolist() for name, sums in timelines.puts_of(blocks, put_axis).items()},
        "cost": _cost_row(blocks, asked, now_ms, min(puts_ms, default=now_ms)),
        "topics": [
            _topic_row(*key, some, record_axis, put_axis) for key, some in [*sorted(parts.items()), *empty.items()]
        ],
        "groups": groups[:_MOST_GROUPS],
        "group_count": len(groups),
        "problems": problems[:_MOST_PROBLEMS],
        "problem_count": len(problems),
    }


def _read_parts(
    archive: Archive, inventory: Inventory, wants: Callable[[str], bool]
) -> tuple[Mapping[tuple[str, int], Sequence[_Part]], list[str]]:
    """Return the partitions and current copies of each life of each topic, and the problems of copies."""
    parts: dict[tuple[str, int], list[_Part]] = defaultdict(list)
    for topic, life in ((topic, life) for topic, lives in inventory.lives().items() for life in lives):
        found, damaged = inventory.partitions.get((topic, life), {}), inventory.damage_of(topic, life)
        parts[topic, life] += [
            _Part(number, found.get(number, EMPTY_PARTITION), len(damaged.get(number, ())))
            for number in sorted(inventory.numbers_of(topic, [life]))
        ]
    copied, problems = find_copied_topics(archive, inventory, wants)
    for one in (one.read(None, BY_ROLES) for one in copied if one.lives(BY_ROLES)):
        problems += problems_of_copied(one)
        in_copy = in_copies(archive.layout, one).items()
        parts[one.topic, one.life] += [_Part(number, read, copy=str(one.copies[number])) for number, read in in_copy]
    return parts, problems


def _topic_row(topic: str, life: int, parts: Sequence[_Part], record_axis: Axis, put_axis: Axis) -> dict[str, Any]:
    puts = timelines.puts_of([block for one in parts for block in one.blocks], put_axis)
    rows = [_partition_row(topic, life, one, record_axis) for one in parts]
    return {"topic": topic, "life": life, "rate": timelines.shape_of(puts["stored"]), "partitions": rows}


def _partition_row(topic: str, life: int, part: _Part, axis: Axis) -> dict[str, Any]:
    """Return the totals of a partition as `archiver ls` names them, and its time line. Members of 0 are left out."""
    lost = timelines.lost_ranges(part.inventory)
    offsets: Counter[str] = Counter()
    for first, last, cause in lost:
        offsets[cause] += last - first + 1
    sums = replace(sum_up(topic, life, part.number, [part.inventory], part.damaged), copy=part.copy)
    row = {
        **{name: getattr(sums, name) for name in sums.__slots__},
        "last_put": None if sums.last_put is None else epoch_ms(sums.last_put),
        "line": timelines.line_of(part.blocks, lost, axis),
        "lost": dict(offsets),
        "ranges": spell_some([f"{first}-{last} {cause}" for first, last, cause in lost], _MOST_RANGES),
    }
    return {name: value for name, value in row.items() if value or name == "partition"}


def _cost_row(blocks: Sequence[Segments], asked: ReportRequest, now_ms: int, first_ms: int) -> dict[str, Any]:
    """Return puts a day, and the cost of puts and stored bytes a month: of existing segments, without notes and reads."""
    span_ms = min(_MEASURED_MS, max(_DAY_MS // 24, now_ms - first_ms))
    a_day = sum(int((put_times_ms(one) >= now_ms - span_ms).sum()) for one in blocks) * _DAY_MS / span_ms
    return {
        "puts_a_day": round(a_day),
        "measured_ms": span_ms,
        "storage_a_month": sum(total(block.numbers("size")) for block in blocks) / _GIB * asked.price_gb,
        "puts_a_month": a_day * _DAYS_A_MONTH / 1_000 * asked.price_puts,
        "price_gb": asked.price_gb,
        "price_puts": asked.price_puts,
        "currency": asked.currency,
    }


def _group_rows(archive: Archive, asked: ReportRequest, use: IndexUse, problems: list[str]) -> list[dict[str, Any]]:
    """Return the groups with the largest lag behind the archive first; none if no position is archived."""
    wanted = PositionFilter(as_of_ms=LAST_LONG, groups=re.compile(".*", re.DOTALL), topics=asked.topics)
    groups: dict[str, list[ShownPosition]] = defaultdict(list)
    try:
        for one in show_groups(archive, wanted, use, problems.append).positions:
            groups[one.position.group].append(one)
    except UsageError:
        return []
    rows = [_group_row(name, positions) for name, positions in groups.items()]
    return sorted(rows, key=lambda row: (-(row["lag"] or 0), row["group"]))


def _group_row(name: str, positions: Sequence[ShownPosition]) -> dict[str, Any]:
    lags = [one.lag for one in positions if one.lag is not None]
    return {
        "group": name,
        "partitions": len(positions),
        "lag": sum(lags) if lags else None,
        "committed_ms": max(0, *(one.position.commit_ms for one in positions)),
    }
