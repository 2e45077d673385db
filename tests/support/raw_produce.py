"""Write record batches to a broker as they are: for what no client would write."""

import socket
import struct
import time
from collections.abc import Sequence
from dataclasses import replace

from tests.support.records import Rec
from tests.support.reference_batch import batch_of, encode

CLIENT = b"raw-produce"
_NOT_LEADER = 6
_ATTEMPTS = 100


class RefusedError(Exception):
    """The broker answered with an error code of Kafka's protocol."""

    def __init__(self, code: int) -> None:
        super().__init__(f"error code {code}")
        self.code = code


def produce_raw(bootstrap: str, topic: str, batches: Sequence[bytes], partition: int = 0) -> list[int]:
    """Each batch in a request of its own (Produce v7, acks all); the base offset that each was given.

    For a one-node cluster: it is the leader. Base offsets are 0. Far timestamps need the topic's message.timestamp.after.max.ms.
    """
    host, port = bootstrap.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        return [_produce_patiently(connection, topic.encode(), partition, batch) for batch in batches]


def produce_records(
    bootstrap: str, topic: str, records: Sequence[Rec], codec: str = "none", size: int = 100, partition: int = 0
) -> None:
    """Any records at all, `size` a batch. Their offsets follow from the log's end."""
    parts = [records[start : start + size] for start in range(0, len(records), size)]
    produce_raw(bootstrap, topic, [encode(batch_of(_from_zero(part), codec=codec)) for part in parts], partition)


def _from_zero(records: Sequence[Rec]) -> list[Rec]:
    """A broker refuses a batch whose base offset is not 0 (error 87)."""
    return [replace(record, offset=index) for index, record in enumerate(records)]


def _produce_patiently(connection: socket.socket, topic: bytes, partition: int, batch: bytes) -> int:
    """A broker that has just learned of a topic does not lead it yet; then it has taken nothing."""
    for _ in range(_ATTEMPTS):
        try:
            return _produce(connection, topic, partition, batch)
        except RefusedError as error:
            if error.code != _NOT_LEADER:
                raise
            time.sleep(0.1)
    return _produce(connection, topic, partition, batch)


def _produce(connection: socket.socket, topic: bytes, partition: int, batch: bytes) -> int:
    head = struct.pack(f">hhih{len(CLIENT)}s", 0, 7, 0, len(CLIENT), CLIENT)
    body = struct.pack(f">hhiih{len(topic)}siii", -1, -1, 30_000, 1, len(topic), topic, 1, partition, len(batch))
    connection.sendall(struct.pack(">i", len(head) + len(body) + len(batch)) + head + body + batch)
    with connection.makefile("rb") as pipe:
        answer = pipe.read(struct.unpack(">i", pipe.read(4))[0])
    # correlation, topics, name, partitions, partition; then error code and base offset
    code, base_offset = struct.unpack_from(">hq", answer, 4 + 4 + 2 + len(topic) + 4 + 4)
    if code:
        raise RefusedError(code)
    return int(base_offset)
