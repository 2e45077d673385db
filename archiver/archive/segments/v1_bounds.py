"""Reads the bounds of a v1.0 object, which has no facts, from both of its ends: reading all of it would be too much."""

from collections.abc import Callable, Iterator

from archiver.archive.format.layout import SegmentKey
from archiver.archive.segments.segment_facts import Bounds, facts_from_header
from archiver.codec.avro import RECORD_SCHEMAS, Block, block_at, block_size, decode_block, decode_header, last_block
from archiver.codec.frame import Column, Frame
from archiver.errors import CorruptSegmentError
from archiver.store.port import ObjectStore

END_PIECE_BYTES = 128 * 1024  # most writers' blocks have 16 to 64 KiB
_BEGINNING_BYTES = 20  # bytes of a block with its count and its size

Read = Callable[[int, int], bytes]  # returns the bytes from one place up to another


class Container:
    """A container file that is read only at its ends. Raises CorruptSegmentError; errors name `name`."""

    def __init__(self, head: bytes, read: Read, name: str, size: int) -> None:
        """`head`: the first bytes of the file, END_PIECE_BYTES at least, or the whole file."""
        self.name = name
        self.header = decode_header(head, name)
        self._head = head
        self._read = read
        self._size = size

    def first_block(self) -> Block | None:
        """Return the first block with a record."""
        position = self.header.size
        while position < self._size:
            whole = position + block_size(self._reaching(position + _BEGINNING_BYTES), position)
            block = block_at(self._reaching(whole), position, self.header, self.name)
            if block.count:
                return block
            position = block.end
        return None

    def last_block(self) -> Block | None:
        """Return the last block with a record, searched backwards from the end of the object until it is whole."""
        earliest = self.header.size - len(self.header.sync)  # the header also ends with a sync marker
        piece = END_PIECE_BYTES
        while True:
            start = max(earliest, self._size - piece)
            is_read = self._size <= len(self._head)
            tail = self._head[start : self._size] if is_read else self._read(start, self._size)
            found = last_block(memoryview(tail), self.header, self.name)
            if found is not None or start == earliest:
                return found
            piece *= 8

    def frames(self, block: Block | None, key: SegmentKey) -> Iterator[Frame]:
        """Decode the records of one block."""
        return iter(()) if block is None else decode_block(block, self.header, topic=key.topic, partition=key.partition)

    def _reaching(self, stop: int) -> memoryview:
        if len(self._head) < min(stop, self._size):
            self._head += self._read(len(self._head), min(stop, self._size))
        return memoryview(self._head)


def read_bounds(store: ObjectStore, key: SegmentKey, name: str, size: int) -> Bounds | None:
    """Read the bounds of an object without metadata; None if it is missing. Raises NotWholeError if it is not of v1.0.

    Its first and last records replace its facts (docs/format.md §3.2).
    """
    head = store.get_range(name, 0, min(size, END_PIECE_BYTES)) if size else b""
    if head is None:
        return None
    container = Container(head, lambda start, stop: store.get_range(name, start, stop) or b"", name, size)
    header = container.header
    if RECORD_SCHEMAS[header.schema].second_version or facts_from_header(header.metadata, name) is not None:
        raise CorruptSegmentError(f"{name}: has no archiver-* metadata; copy it again, with its metadata")
    first = list(container.frames(container.first_block(), key))
    last = list(container.frames(container.last_block(), key))
    if not first or not last:
        raise CorruptSegmentError(f"{name}: has no record: it was cut, or somebody wrote nothing")
    first_offset, last_offset = int(first[0].column(Column.OFFSET)[0]), int(last[-1].column(Column.OFFSET)[-1])
    if not key.base <= first_offset <= last_offset:
        raise CorruptSegmentError(
            f"{name}: has records from offset {first_offset} to {last_offset}; its name says that they begin at {key.base}"
        )
    return Bounds(base=key.base, first=first_offset, last=last_offset)
