"""Decodes message sets v0 and v1, which Kafka wrote before 0.11, to frames. Used by `decode_batches` and by imports."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from archiver.codec.compression import Arena, BatchCodec, DecompressionError, ExpandsError, old_lz4_pieces
from archiver.codec.frame import Bytes, Column, Frame, Longs
from archiver.codec.kernels import batches as batch_kernels
from archiver.codec.kernels import messages as kernels
from archiver.errors import CorruptBatchError, LargeBatchError, UnsupportedBatchError

_PROBLEMS = {
    kernels.CRC_WRONG: "its CRC does not match its bytes",
    kernels.MESSAGE_CUT: "a message's length cannot be",
    kernels.FIELDS_BROKEN: "key and value do not fill the message exactly",
    kernels.OFFSET_ORDER: "offsets do not rise, or are above that of the compressed message",
    kernels.OTHER_MAGIC: "a compressed message has messages of another format",
    kernels.NESTED: "a compressed message inside a compressed message",
    kernels.NO_PAYLOAD: "a compressed message without a value",
    kernels.BASE_BELOW_ZERO: "the offset of a compressed message is below the relative offsets inside",
}


class MessageSets(NamedTuple):
    """Checked messages of a fetch, decompressed."""

    body: Bytes
    messages: Longs  # rows of the batch table
    source_bytes: int
    records: int
    wrong_inside: int  # messages in a good compressed message whose own CRC is wrong: their producer wrote them so
    cut_sets: int  # compressed messages that end within a message

    def frames(self, position: int, table: Longs) -> Iterator[Frame]:
        """Yield the records from `position` on. A frame is valid until the next one is asked for."""
        state, left = np.zeros(kernels.INDEX_STATE_SIZE, np.int64), self.records
        while True:
            rows, _, _ = kernels.index_messages(self.body, self.messages, position, table, state)
            frame = Frame(body=self.body, header_body=self.body, table=table)
            yield frame if rows == len(frame) else frame.rows(0, rows)
            left -= rows
            if not left:
                return


def is_old(batches: Longs) -> bool:
    """Return whether the first row of a batch table is a message of an old format."""
    return batches.shape[1] > 0 and batches[batch_kernels.MAGIC, 0] in {0, 1}


def open_messages(
    batches: Longs, source: Bytes, position: int, most_bytes: int, used_buffer: Bytes | None
) -> tuple[MessageSets, Bytes | None]:
    """Check and decompress the messages that a batch table begins with. Returns them, and the buffer to use again.

    Ends early, and raises, as decode_batches does.
    """
    is_new = batches[batch_kernels.MAGIC] > 1
    count = int(is_new.argmax()) if is_new.any() else batches.shape[1]
    messages = np.ascontiguousarray(batches[:, :count])
    good, problem = kernels.check_messages(source, messages)
    if problem != kernels.OK:
        raise _corrupt(messages, good, problem)
    body, buffer = source, used_buffer
    if (messages[batch_kernels.COUNT] == 0).any():
        arena = Arena(int(messages[batch_kernels.SIZE].sum()), most_bytes, used_buffer)
        messages = _inflate(arena, messages, source)
        body, buffer = arena.body, arena.buffer
    state = np.zeros(kernels.INDEX_STATE_SIZE, np.int64)
    records, problem, broken = kernels.index_messages(
        body, messages, position, np.empty((len(Column), 0), np.int64), state
    )
    if problem != kernels.OK:
        raise _corrupt(messages, broken, problem)
    end = int(messages[batch_kernels.START, -1] + messages[batch_kernels.SIZE, -1])
    wrong_inside, cut_sets = state[[kernels.WRONG_INSIDE, kernels.CUT_SETS]].tolist()
    return MessageSets(body, messages, end, records, wrong_inside, cut_sets), buffer


def _inflate(arena: Arena, messages: Longs, source: Bytes) -> Longs:
    """Put all messages into the arena, compressed ones decompressed. Returns those that fit."""
    is_plain = messages[batch_kernels.COUNT] == 1
    index, count = 0, messages.shape[1]
    while index < count:
        start, base = messages[[batch_kernels.START, batch_kernels.BASE_OFFSET], index].tolist()
        stop = index + 1
        try:
            if is_plain[index]:
                stop = index + int(np.append(~is_plain[index:], True).argmax())
                end = int(messages[batch_kernels.PAYLOAD_END, stop - 1])
                moved, _ = arena.add(BatchCodec.NONE, source[start:end])
                messages[batch_kernels.PAYLOAD_START : batch_kernels.PAYLOAD_END + 1, index:stop] += moved - start
            else:
                messages[batch_kernels.PAYLOAD_START : batch_kernels.PAYLOAD_END + 1, index] = _add(
                    arena, messages[:, index], source
                )
        except DecompressionError as error:
            if index:  # the messages before a broken one are good
                return np.ascontiguousarray(messages[:, :index])
            problem = LargeBatchError if isinstance(error, ExpandsError) else CorruptBatchError
            raise problem(f"offset {base}: compressed messages: {error}", good_bytes=start) from error
        index = stop
    return messages


def _add(arena: Arena, message: Longs, source: Bytes) -> tuple[int, int]:
    codec, magic, base, start = message[
        [batch_kernels.ATTRIBUTES, batch_kernels.MAGIC, batch_kernels.BASE_OFFSET, batch_kernels.START]
    ].tolist()
    codec &= kernels.CODEC_BITS
    if codec > BatchCodec.LZ4:
        raise UnsupportedBatchError(f"offset {base}: compression {codec} is not known", good_bytes=start)
    payload = source[message[batch_kernels.PAYLOAD_START] : message[batch_kernels.PAYLOAD_END]]
    if codec == BatchCodec.LZ4 and magic == 0:
        return arena.add_pieces(old_lz4_pieces(payload))
    return arena.add(BatchCodec(codec), payload)


def _corrupt(messages: Longs, index: int, problem: int) -> CorruptBatchError:
    base, start, magic = messages[[batch_kernels.BASE_OFFSET, batch_kernels.START, batch_kernels.MAGIC], index].tolist()
    return CorruptBatchError(f"offset {base}: message v{magic}: {_PROBLEMS[problem]}", good_bytes=start)
