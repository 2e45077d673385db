"""A replacement for Spark where records are chosen: it drops what the driver sends, and chooses some records of each object."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Row

SUMS = ("records", "min_timestamp", "max_timestamp", "bytes", "largest_record")


class NoSpark:
    """A context, a session, what is dealt out, and what comes of it. It looks at nothing."""

    defaultParallelism = 8  # noqa: N815 - PySpark's name
    value: dict[int, str] = {}  # noqa: RUF012 - of an accumulator

    def __init__(self, objects: int) -> None:
        self.objects = objects

    @property
    def sparkContext(self) -> "NoSpark":  # noqa: N802 - PySpark's name
        return self

    def parallelize(self, rows: Iterable[object], _slices: int) -> "NoSpark":
        """PySpark writes them into a file."""
        for _ in rows:
            pass
        return self

    def __getattr__(self, _name: str) -> Any:  # noqa: ANN401 - any step of a job
        return lambda *_args, **_more: self

    def toArrow(self) -> pa.Table:  # noqa: N802 - PySpark's name
        """Return what was written down of each object. The arrays are numpy's, which tells how much they take."""
        count = self.objects
        ends, digests = np.arange(0, 12 * count + 1, 12, dtype=np.int32), np.random.default_rng(1).bytes(12 * count)
        told = [pa.py_buffer(ends), pa.py_buffer(np.frombuffer(digests, np.uint8))]
        columns = {
            "__part": pa.array(np.arange(count, dtype=np.int32)),
            "__digest": pa.Array.from_buffers(pa.binary(), count, [None, *told]),
        }
        return pa.table(columns | {name: pa.array(np.arange(count)) for name in SUMS})

    def collect(self) -> list[Row]:
        """The same, as rows."""
        return [
            Row(__part=at, key=f"chosen/{at:024x}.offsets", **dict.fromkeys(SUMS, at)) for at in range(self.objects)
        ]
