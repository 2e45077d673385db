"""Both ends of a v1.0 object, which has no facts: what its first and its last record tell (docs/format.md §3.2)."""

from archiver.codec.avro import (
    RECORD_SCHEMAS,
    Block,
    ContainerHeader,
    block_at,
    block_size,
    decode_block,
    decode_header,
    last_block,
)
from archiver.errors import CorruptSegmentError
from archiver.facts import Bounds, facts_from_header
from archiver.frame import Column
from archiver.layout import SegmentKey
from archiver.store import ObjectStore

PIECE_BYTES = 128 * 1024  # most writers' blocks have 16 to 64 KiB
_BEGINNING_BYTES = 20  # of a block: its count and its size


def read_bounds(store: ObjectStore, key: SegmentKey, name: str, size: int) -> Bounds | None:
    """Read the ends of an object without metadata; None when it is gone. Raises NotWholeError when it is not one of v1.0."""
    head = store.get_range(name, 0, min(size, PIECE_BYTES)) if size else b""
    if head is None:
        return None
    header = decode_header(head, name)
    if RECORD_SCHEMAS[header.schema].second_version or facts_from_header(header.metadata, name) is not None:
        raise CorruptSegmentError(f"{name}: has no archiver-* metadata; copy it again, with its metadata")
    first = _first_block(store, name, size, head, header)
    last = _last_block(store, name, size, head, header)
    if first is None or last is None:
        raise CorruptSegmentError(f"{name}: has no record: it was cut, or somebody wrote nothing")
    first_offset, _ = _offsets(first, header, key)
    _, last_offset = _offsets(last, header, key)
    if not key.base <= first_offset <= last_offset:
        raise CorruptSegmentError(
            f"{name}: has records from offset {first_offset} to {last_offset}; its name says that they begin at {key.base}"
        )
    return Bounds(base=key.base, first=first_offset, last=last_offset)


def _first_block(store: ObjectStore, name: str, size: int, head: bytes, header: ContainerHeader) -> Block | None:
    def reaching(stop: int) -> memoryview:
        nonlocal head
        if len(head) < min(stop, size):
            head += store.get_range(name, len(head), min(stop, size)) or b""
        return memoryview(head)

    position = header.size
    while position < size:
        whole = position + block_size(reaching(position + _BEGINNING_BYTES), position)
        block = block_at(reaching(whole), position, header, name)
        if block.count:
            return block
        position = block.end
    return None


def _last_block(store: ObjectStore, name: str, size: int, head: bytes, header: ContainerHeader) -> Block | None:
    """Read from the end, and further back for as long as the block is not all there. The header ends with a marker, too."""
    earliest = header.size - len(header.sync)
    piece = PIECE_BYTES
    while True:
        start = max(earliest, size - piece)
        tail = head[start:size] if size <= len(head) else store.get_range(name, start, size) or b""
        found = last_block(memoryview(tail), header, name)
        if found is not None or start == earliest:
            return found
        piece *= 8


def _offsets(block: Block, header: ContainerHeader, key: SegmentKey) -> tuple[int, int]:
    frames = list(decode_block(block, header, topic=key.topic, partition=key.partition))
    return int(frames[0].column(Column.OFFSET)[0]), int(frames[-1].column(Column.OFFSET)[-1])
