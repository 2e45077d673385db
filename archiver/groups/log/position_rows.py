"""Holds the commits and removals of positions in a commit log as columns, sorted by position, then by log order."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from archiver.codec.frame import Bytes, Column, Longs
from archiver.codec.kernels import commits as kernels
from archiver.groups.log.commit_log import CommitRows, Flags, number_texts

NO_ROW: Final = -1
_TOPIC_ID_BYTES: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedTexts:
    """Texts shared by many rows: each text once, and its number for each row."""

    texts: Sequence[str]
    numbers: Longs

    def at(self, row: int) -> str:
        return self.texts[int(self.numbers[row])]


@dataclass(frozen=True, kw_only=True)
class PositionRows:
    """The commits and removals of positions, before and after the requested time."""

    rows: CommitRows
    place: Longs  # the place among the rows, in the order of the log
    key: Longs  # the same number for all rows of a position, ascending

    @classmethod
    def of(cls, rows: CommitRows) -> "PositionRows":
        places = np.flatnonzero(rows.fields[kernels.KIND] == kernels.POSITION)
        places = places[np.argsort(rows.keys[places], kind="stable")]
        return cls(rows=rows, place=places, key=rows.keys[places])

    def __len__(self) -> int:
        return len(self.place)

    @cached_property
    def offset(self) -> Longs:
        return self._column(Column.OFFSET)

    @cached_property
    def ms(self) -> Longs:
        return self._column(Column.TIMESTAMP)

    @cached_property
    def is_commit(self) -> Flags:
        found: Flags = self._column(Column.VALUE_LENGTH) >= 0
        return found

    @cached_property
    def is_later(self) -> Flags:
        """Return for each row whether it is after the requested time."""
        found: Flags = (self.ms > self.rows.until_ms) | self.is_pending
        return found

    @cached_property
    def is_pending(self) -> Flags:
        """Return for each row whether it is before the requested time but may count only after it."""
        return np.isin(self.offset, self.rows.pending)

    @cached_property
    def is_late(self) -> Flags:
        """Return for each row whether it may count later than its time."""
        firsts, lasts = np.array([(-1, -1), *self.rows.late], np.int64).T
        found: Flags = self.offset <= lasts[np.searchsorted(firsts, self.offset, side="right") - 1]
        return found

    @cached_property
    def following(self) -> Longs:
        """Return for each row the next row of its position; NO_ROW: it is the last one."""
        found = np.arange(1, len(self) + 1)
        if len(self):
            found[-1] = NO_ROW
            found[:-1][self.key[1:] != self.key[:-1]] = NO_ROW
        return found

    @cached_property
    def topic(self) -> SharedTexts:
        return self.texts(np.arange(len(self)), kernels.TOPIC_START, kernels.TOPIC_LENGTH)

    @cached_property
    def topic_id(self) -> SharedTexts:
        """Return the committed topic ids; empty: unknown."""
        starts = self.told(kernels.TOPIC_ID_START)
        numbers, samples = _distinct(
            self.rows.frame.body, np.maximum(starts, 0), np.where(starts < 0, 0, _TOPIC_ID_BYTES)
        )
        return SharedTexts(texts=[_spell_topic_id(sample) for sample in samples], numbers=numbers)

    def told(self, field: int) -> Longs:
        """Return one parsed field of keys and values: a row of archiver.codec.kernels.commits."""
        found: Longs = self.rows.fields[field][self.place]
        return found

    def texts(self, chosen: Longs, start: int, length: int) -> SharedTexts:
        """Return texts of some rows. Invalid UTF-8, which Kafka does not write, stays distinct from every other text."""
        places = self.place[chosen]
        numbers, samples = _distinct(
            self.rows.frame.body, self.rows.fields[start][places], self.rows.fields[length][places]
        )
        return SharedTexts(texts=[sample.decode(errors="surrogateescape") for sample in samples], numbers=numbers)

    def _column(self, column: Column) -> Longs:
        found: Longs = self.rows.frame.column(column)[self.place]
        return found


def is_utf8(text: str) -> bool:
    """Return whether a text was valid UTF-8."""
    return text.isascii() or not any("\udc80" <= char <= "\udcff" for char in text)


def _distinct(body: Bytes, starts: Longs, lengths: Longs) -> tuple[Longs, list[bytes]]:
    """Number equal values, from 0 in the order of first rows; also return the value of each number."""
    numbers = number_texts(body, starts, lengths)
    firsts = np.unique(numbers, return_index=True)[1]
    return numbers, [body[starts[row] : starts[row] + lengths[row]].tobytes() for row in firsts.tolist()]


def _spell_topic_id(raw: bytes) -> str:
    """Spell an id as Kafka prints it; empty for none, and for the zero id, which means unknown."""
    return base64.urlsafe_b64encode(raw).decode().rstrip("=") if any(raw) else ""
