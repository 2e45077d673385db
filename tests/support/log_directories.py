"""Log directories of brokers, made batch by batch."""

import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support import message_sets as ms
from tests.support.records import Rec
from tests.support.reference_batch import batch_of, control_batch, encode


def batch(first: int, count: int = 1, *, value: bytes = b"v", **fields: Any) -> bytes:  # noqa: ANN401 - of Batch
    return encode(batch_of([Rec(first + index, 1000, 0, None, value) for index in range(count)], **fields))


def in_transaction(first: int, producer_id: int) -> bytes:
    return batch(first, transactional=True, producer_id=producer_id, producer_epoch=0, base_sequence=0)


def old_message(offset: int, value: bytes = b"v") -> bytes:
    """Return a message v1 without a key."""
    body = struct.pack(">bbqii", 1, 0, 1000, -1, len(value)) + value
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def old_wrapper(first: int, count: int, *, magic: int = 1) -> bytes:
    """Return a compressed message of an old format around others."""
    offsets = range(count) if magic else range(first, first + count)
    inner = b"".join(ms.message(offset, b"v", None, magic=magic, time=ms.TIME) for offset in offsets)
    return ms.wrapper(first + count - 1, inner, magic=magic, attributes=ms.GZIP)


def marker(offset: int, producer_id: int, *, commit: bool) -> bytes:
    return encode(control_batch(offset, commit=commit, producer_id=producer_id))


@dataclass
class LogDirectory:
    """A log directory of one broker."""

    path: Path
    topic: str = "orders"

    def write(self, base: int, *batches: bytes, partition: int = 0, state: str = "") -> Path:
        folder = self.path / f"{self.topic}-{partition}"
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{base:020}.log{state}"
        file.write_bytes(b"".join(batches))
        return file

    def note_cluster(self, cluster_id: str) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / "meta.properties").write_text(f"#Mon\ncluster.id={cluster_id}\nnode.id=1\nversion=1\n")

    def note_topic(self, topic_id: str, partition: int = 0) -> None:
        (self.path / f"{self.topic}-{partition}" / "partition.metadata").write_text(
            f"version: 0\ntopic_id: {topic_id}\n"
        )

    def note_replicated(self, offset: int, partition: int = 0, *, file: str = "replication-offset-checkpoint") -> None:
        (self.path / file).write_text(f"0\n1\n{self.topic} {partition} {offset}\n")

    def note_epochs(self, *epochs: tuple[int, int], partition: int = 0) -> None:
        """Each is a leader epoch and its first offset."""
        lines = "".join(f"{number} {start}\n" for number, start in epochs)
        file = self.path / f"{self.topic}-{partition}" / "leader-epoch-checkpoint"
        file.write_text(f"0\n{len(epochs)}\n{lines}")


def flipped(content: bytes) -> bytes:
    """Return a batch with a wrong checksum."""
    return content[:-1] + bytes([content[-1] ^ 1])
