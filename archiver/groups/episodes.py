"""Episodes: a position from its first commit until it is removed, told by the last commit of that time.

A position that was removed and committed again has several episodes. A commit log keeps of each just what is here.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from archiver.codec.frame import Bytes, Column, Longs
from archiver.codec.kernels import commits as kernels
from archiver.groups.commit_log import CommitRows, number_texts

NO_ROW: Final = -1
_TOPIC_ID_BYTES: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """Texts that stand in many rows: each once, and its number for each row."""

    texts: Sequence[str]
    numbers: Longs

    def only(self, rows: Longs) -> "Texts":
        return Texts(texts=self.texts, numbers=self.numbers[rows])


@dataclass(frozen=True, slots=True, kw_only=True)
class Episodes:
    """Of one partition of `__consumer_offsets`, in the order of the log: columns, one entry an episode."""

    key: Longs  # the same number for all episodes of a position
    group: Texts
    topic: Texts
    partition: Longs
    topic_id: Texts  # as it was committed; empty: unknown
    offset: Longs  # that was committed
    leader_epoch: Longs
    metadata: Texts
    commit_ms: Longs
    at_offset: Longs  # of the record that committed it
    at_ms: Longs
    removed_at: Longs  # the offset of the record that removed it; NO_ROW: it stands
    removed_ms: Longs
    ends_at: Longs  # the same, whether the record is of before the time that was asked for or of after it
    ends_ms: Longs
    is_readable: npt.NDArray[np.bool_]  # what was committed is known

    def __len__(self) -> int:
        return len(self.key)

    def only(self, rows: Longs) -> "Episodes":
        """Some of them, over the same texts."""
        chosen: dict[str, Any] = {}
        for item in fields(self):
            column = getattr(self, item.name)
            chosen[item.name] = column.only(rows) if isinstance(column, Texts) else column[rows]
        return Episodes(**chosen)


def episodes_of(rows: CommitRows, *, later: bool = False) -> Episodes:
    """Read the episodes up to the time that was asked for, or those after it."""
    frame, told = rows.frame, rows.fields
    endings = _endings(rows)
    is_position = (told[kernels.KIND] == kernels.POSITION) & (rows.is_later == int(later))
    places = np.flatnonzero(is_position)
    places = places[np.argsort(rows.keys[places], kind="stable")]  # position by position, each in the order of the log
    is_commit = frame.table[Column.VALUE_LENGTH][places] >= 0
    is_ended = np.zeros(len(places), bool)
    same = rows.keys[places][1:] == rows.keys[places][:-1]
    is_ended[:-1] = same & ~is_commit[1:]
    ends = np.where(is_ended, np.roll(places, -1), NO_ROW)
    order = np.argsort(places[is_commit], kind="stable")
    commits, ends = places[is_commit][order], ends[is_commit][order]
    offsets, times = frame.column(Column.OFFSET), frame.column(Column.TIMESTAMP)
    found = told[:, commits]
    return Episodes(
        key=rows.keys[commits],
        group=_texts(frame.body, found[kernels.GROUP_START], found[kernels.GROUP_LENGTH]),
        topic=_texts(frame.body, found[kernels.TOPIC_START], found[kernels.TOPIC_LENGTH]),
        partition=found[kernels.PARTITION],
        topic_id=_topic_ids(frame.body, found[kernels.TOPIC_ID_START]),
        offset=found[kernels.OFFSET],
        leader_epoch=found[kernels.LEADER_EPOCH],
        metadata=_texts(frame.body, found[kernels.METADATA_START], found[kernels.METADATA_LENGTH]),
        commit_ms=found[kernels.COMMIT_MS],
        at_offset=offsets[commits],
        at_ms=times[commits],
        removed_at=np.where(ends == NO_ROW, NO_ROW, offsets[ends]),
        removed_ms=np.where(ends == NO_ROW, NO_ROW, times[ends]),
        ends_at=np.where(endings[commits] == NO_ROW, NO_ROW, offsets[endings[commits]]),
        ends_ms=np.where(endings[commits] == NO_ROW, NO_ROW, times[endings[commits]]),
        is_readable=found[kernels.IS_READABLE] == 1,
    )


def _endings(rows: CommitRows) -> Longs:
    """Return for each row the next one that removes its position, in the order of the log; NO_ROW: there is none."""
    count = len(rows)
    order = np.argsort(rows.keys, kind="stable")
    removes = rows.frame.table[Column.VALUE_LENGTH][order] < 0
    following = np.minimum.accumulate(np.where(removes, np.arange(count), count)[::-1])[::-1]
    padded = np.append(order, NO_ROW)
    is_same = np.append(rows.keys[order], NO_ROW)[following] == rows.keys[order]
    found = np.empty(count, np.int64)
    found[order] = np.where(is_same, padded[following], NO_ROW)
    return found


def _texts(body: Bytes, starts: Longs, lengths: Longs) -> Texts:
    numbers, samples = _distinct(body, starts, lengths)
    # Kafka writes nothing but UTF-8; what somebody else wrote is shown as it is, and can be nobody's name.
    return Texts(texts=[sample.decode(errors="backslashreplace") for sample in samples], numbers=numbers)


def _topic_ids(body: Bytes, starts: Longs) -> Texts:
    numbers, samples = _distinct(body, np.maximum(starts, 0), np.where(starts < 0, 0, _TOPIC_ID_BYTES))
    return Texts(texts=[_spell_topic_id(sample) for sample in samples], numbers=numbers)


def _distinct(body: Bytes, starts: Longs, lengths: Longs) -> tuple[Longs, list[bytes]]:
    """Number what is alike alike, from 0 in the order of first rows; and what each number stands for."""
    numbers = number_texts(body, starts, lengths)
    firsts = np.unique(numbers, return_index=True)[1]
    return numbers, [body[starts[row] : starts[row] + lengths[row]].tobytes() for row in firsts.tolist()]


def _spell_topic_id(raw: bytes) -> str:
    """Spell an id as Kafka prints it; empty for none, and for the zero id, which means that it is not known."""
    return base64.urlsafe_b64encode(raw).decode().rstrip("=") if any(raw) else ""
