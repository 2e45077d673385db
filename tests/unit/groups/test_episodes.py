"""A log of commits, reduced in frames of any size, tells the episodes that reading all of it one by one tells."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archiver.codec.selection import LAST_LONG
from archiver.groups.log import commit_log
from archiver.groups.log.commit_log import CommitLog
from archiver.groups.log.position_rows import PositionRows
from archiver.groups.positions.episodes import Episodes, episodes_of
from tests.support.commit_frames import Row, commit_value, frame_of, position_key, text
from tests.support.offset_commits import Commit, PositionKey, decode_commit, decode_key


@dataclass(frozen=True, slots=True)
class Told:
    """An episode, as read one by one."""

    key: PositionKey
    commit: Commit | None
    first_offset: int
    at_offset: int
    at_ms: int
    removed_at: int
    removed_ms: int


def position_of(key: bytes | None) -> PositionKey | None:
    """None for what is no key of a position, or none that Kafka writes."""
    try:
        decoded = None if key is None else decode_key(key)
    except ValueError:
        return None
    return decoded if isinstance(decoded, PositionKey) and decoded.partition >= 0 else None


def one_by_one(rows: Sequence[Row], until_ms: int, *, later: bool) -> list[Told]:
    """The oracle: with Python's dictionaries and the other decoder."""
    standing: dict[PositionKey, Told] = {}
    ended: list[Told] = []
    seen: set[PositionKey] = set()
    for place, (key, value, timestamp) in enumerate(rows):
        offset = 3 * place
        decoded = position_of(key)
        if decoded is None or (timestamp > until_ms) != later:
            continue
        if value is None:
            before = standing.pop(decoded, None)
            if before is not None:
                ended.append(replace(before, removed_at=offset, removed_ms=timestamp))
            elif decoded not in seen:
                ended.append(Told(decoded, None, -1, -1, -1, offset, timestamp))
        else:
            first = standing[decoded].first_offset if decoded in standing else offset
            standing[decoded] = Told(decoded, decode_commit(value), first, offset, timestamp, -1, -1)
        seen.add(decoded)
    return sorted([*ended, *standing.values()], key=lambda one: max(one.at_offset, one.removed_at))


def told(rows: PositionRows, found: Episodes) -> list[Told]:
    offsets = [*rows.offset.tolist(), -1]
    read = [
        Told(
            PositionKey(found.group.at(row), found.topic.at(row), int(found.partition[row])),
            None
            if found.at_offset[row] < 0
            else Commit(
                offset=int(found.offset[row]),
                leader_epoch=int(found.leader_epoch[row]),
                metadata=found.metadata.at(row),
                commit_ms=int(found.commit_ms[row]),
                topic_id=rows.topic_id.at(found.row[row]),
            ),
            offsets[found.first[row]],
            int(found.at_offset[row]),
            int(found.at_ms[row]),
            int(found.removed_at[row]),
            int(found.removed_ms[row]),
        )
        for row in range(len(found))
    ]
    return sorted(read, key=lambda one: max(one.at_offset, one.removed_at))


def episodes_in(log: CommitLog) -> Episodes:
    return episodes_of(PositionRows.of(log.finish()))


GROUP = struct.pack(">h", 2) + text("a")
BROKEN = [
    position_key("a", "x", 0)[:-1],
    position_key("a", "x", 0) + b"\0",
    position_key("a", "x", -1),
    b"\0\1\xff\xff" + text("x") + bytes(4),
    GROUP + b"\0",
    b"\0\1",
    b"\0",
    b"",
]
KEYS = st.one_of(
    st.builds(position_key, st.sampled_from("ab"), st.sampled_from("xy"), st.integers(0, 1), st.sampled_from([0, 1])),
    st.sampled_from([GROUP, struct.pack(">h", 9) + b"share", None, *BROKEN]),
)
VALUES = st.one_of(
    st.none(), st.builds(commit_value, st.integers(0, 9), st.sampled_from(["", "m"]), st.integers(-1, 3))
)
ROWS = st.lists(st.tuples(KEYS, VALUES, st.integers(0, 20)), max_size=60)


@given(
    rows=ROWS,
    cuts=st.lists(st.integers(0, 60)),
    until_ms=st.sampled_from([LAST_LONG, 10]),
    few=st.sampled_from([0, 1 << 16]),
)
def test_what_is_reduced_tells_the_same(rows: list[Row], cuts: list[int], until_ms: int, few: int) -> None:
    log, ends = CommitLog(until_ms), [*sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commit_log, "_FEW_ROWS", few)
        for start, end in zip([0, *ends], ends, strict=False):
            log.add(frame_of(rows[start:end], 3 * start))
        reduced = log.finish()
    positions = PositionRows.of(reduced)
    for later in (False, True):
        found = told(positions, episodes_of(positions, later=later))
        assert found == one_by_one(rows, until_ms, later=later)
    assert reduced.others == sum(key != GROUP and position_of(key) is None for key, _, _ in rows)


def test_a_name_that_kafka_cannot_write_harms_no_other() -> None:
    log = CommitLog()
    broken = position_key("a", "x", 0).replace(b"a", b"\xff")
    rows: list[Row] = [(broken, commit_value(1), 5), (position_key("a", "x", 0), commit_value(2), 6)]
    log.add(frame_of(rows, 0))
    found = episodes_in(log)
    assert found.group.texts == ["\udcff", "a"]


def test_a_commit_of_a_later_version_is_not_guessed_at() -> None:
    log = CommitLog()
    value = commit_value(7)
    log.add(frame_of([(position_key("a", "x", 0), b"\0\5" + value[2:], 5), (position_key("b", "x", 0), value, 6)], 0))
    found = episodes_in(log)
    assert found.is_readable.tolist() == [False, True]


def test_metadata_that_kafka_neither_writes_nor_takes_make_a_commit_unreadable() -> None:
    log = CommitLog()
    longest = commit_value(7, "ü" * 16_383 + "x")
    broken = commit_value(7, "m").replace(b"\0\1m", b"\0\1\xff")
    flexible = b"\0\4" + longest[2:14] + b"\x81\x80\2" + b"x" * 32_768 + longest[-8:] + b"\0"
    values = [longest, broken, flexible, flexible.replace(b"\x81\x80\2x", b"\x80\x80\2")]
    log.add(frame_of([(position_key("g", "x", number), value, 5) for number, value in enumerate(values)], 0))
    assert episodes_in(log).is_readable.tolist() == [True, False, False, True]


@given(rows=ROWS, cut=st.integers(0, 60))
def test_episodes_can_be_continued_from_a_reduced_log(rows: list[Row], cut: int) -> None:
    cut = min(cut, len(rows))
    earlier, log, whole = CommitLog(), CommitLog(), CommitLog()
    earlier.add(frame_of(rows[:cut], 0))
    log.add(earlier.finish().frame)
    for each in (log, whole):
        each.add(frame_of(rows[cut:] if each is log else rows, 3 * cut if each is log else 0))
    found, wanted = (PositionRows.of(each.finish()) for each in (log, whole))
    assert told(found, episodes_of(found)) == told(wanted, episodes_of(wanted))
