"""Frame -> Arrow record batch."""

import numpy as np
import pyarrow as pa

from archiver.codec.arrow_kernels import flatten_headers, gather
from archiver.frame import Bytes, Column, Frame, Longs

# Header keys are binary: Kafka does not promise UTF-8.
HEADER = pa.struct([pa.field("key", pa.binary(), nullable=False), pa.field("value", pa.binary())])
SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.int64(), nullable=False),
        pa.field("timestampType", pa.int32(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.list_(pa.field("element", HEADER, nullable=False)), nullable=False),
    ]
)
_MOST_ARROW_BYTES = 2**31 - 1  # what one binary array holds


def frame_to_arrow(frame: Frame) -> pa.RecordBatch:
    """Copy a frame into Arrow. A frame of more than 2 GiB of keys or of values is a ValueError: cut it by rows first."""
    table = frame.table
    columns = [
        pa.array(table[Column.OFFSET]),
        pa.array(table[Column.TIMESTAMP]),
        pa.array(table[Column.TIMESTAMP_TYPE].astype(np.int32)),
        _binary(frame.body, table[Column.KEY_START], table[Column.KEY_LENGTH]),
        _binary(frame.body, table[Column.VALUE_START], table[Column.VALUE_LENGTH]),
        _headers(frame),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _binary(source: Bytes, starts: Longs, lengths: Longs) -> pa.BinaryArray:
    if (lengths > len(source)).any():  # or it would choose how much is allocated
        raise ValueError("a row of the frame points outside its buffer")
    size = int(np.maximum(lengths, 0).sum())
    if size > _MOST_ARROW_BYTES:
        raise ValueError(f"{size} bytes do not fit one Arrow array")
    offsets = np.empty(len(starts) + 1, np.int64)
    present = np.empty(len(starts), np.uint8)
    target = np.empty(size, np.uint8)
    if not gather(source, starts, lengths, offsets, present, target):
        raise ValueError("a row of the frame points outside its buffer")
    nulls = int(len(present) - present.sum())
    bitmap = pa.py_buffer(np.packbits(present, bitorder="little").tobytes()) if nulls else None
    buffers = [bitmap, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(target)]
    return pa.Array.from_buffers(pa.binary(), len(starts), buffers, nulls)


def _headers(frame: Frame) -> pa.ListArray:
    counts = frame.column(Column.HEADER_COUNT)
    # A header takes two bytes at least: a count that lies must not choose how much is allocated.
    if (counts < 0).any() or (counts > len(frame.header_body) // 2).any():
        raise ValueError("the frame counts more headers than its buffer can hold")
    parts = np.empty((4, int(counts.sum())), np.int64)
    if not flatten_headers(frame.header_body, frame.table, parts):
        raise ValueError("headers of the frame point outside their buffer")
    offsets = np.zeros(len(frame) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    keys = _binary(frame.header_body, parts[0], parts[1])
    values = _binary(frame.header_body, parts[2], parts[3])
    elements = pa.StructArray.from_arrays([keys, values], fields=list(HEADER))
    return pa.ListArray.from_arrays(pa.array(offsets), elements, type=SCHEMA.field("headers").type)
