"""Frame: n records of one partition as columns over byte buffers. The only form of records in memory."""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Longs = npt.NDArray[np.int64]

NULL_LENGTH = -1


class Column(IntEnum):
    """The rows of `Frame.table`. Starts point into the frame's buffers; the start of a null means nothing."""

    OFFSET = 0
    TIMESTAMP = 1
    TIMESTAMP_TYPE = 2
    KEY_START = 3
    KEY_LENGTH = 4  # NULL_LENGTH: null
    VALUE_START = 5
    VALUE_LENGTH = 6  # NULL_LENGTH: null
    HEADER_START = 7
    HEADER_LENGTH = 8
    HEADER_COUNT = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Records in offset order; `table[c, i]` is column c of record i.

    `header_body` has the headers back to back, as Kafka writes them: varint key length, key, varint value length or -1, value.
    It is the same buffer as `body` when the records came from Kafka, and one of its own when they came from Avro.
    """

    body: Bytes
    header_body: Bytes
    table: Longs

    def __post_init__(self) -> None:
        if self.table.ndim != 2 or len(self.table) != len(Column):
            raise ValueError(f"a frame has {len(Column)} columns, not {self.table.shape}")
        if not self.table.flags.c_contiguous:
            raise ValueError("a frame's table is contiguous")

    def __len__(self) -> int:
        return int(self.table.shape[1])

    def column(self, column: Column) -> Longs:
        """Return one column, without a copy."""
        found: Longs = self.table[column]
        return found

    def rows(self, start: int, stop: int) -> "Frame":
        """Return the records from `start` on and before `stop`, over the same buffers."""
        table = np.ascontiguousarray(self.table[:, start:stop])
        return Frame(body=self.body, header_body=self.header_body, table=table)

    def only(self, chosen: npt.NDArray[np.bool_]) -> "Frame":
        """Return the marked records, over the same buffers."""
        if chosen.all():
            return self
        return Frame(body=self.body, header_body=self.header_body, table=np.ascontiguousarray(self.table[:, chosen]))
