"""Records of `__consumer_offsets`, taken apart one by one: an oracle for the kernels, with which it shares no code."""

import base64
import struct
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
TOPIC_ID_BYTES: Final = 16
_NO_ID: Final = bytes(TOPIC_ID_BYTES)
_TOPIC_ID_TAG: Final = 0
_MOST_VERSION: Final = 4
_FIRST_COMPACT_VERSION: Final = 4
_POSITION_TYPES: Final = frozenset({0, 1})  # one position may have been committed under both


class GroupKind(StrEnum):
    """By which protocol the members of a group share its partitions."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    STREAMS = "streams"


_GROUP_TYPES: Final = {2: GroupKind.CLASSIC, 3: GroupKind.CONSUMER, 17: GroupKind.STREAMS}


class PositionKey(NamedTuple):
    """Of what a record is the position."""

    group: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    """Of which group a record says that there is one, or that there is none any more."""

    group: str
    kind: GroupKind


class OtherKey(NamedTuple):
    """A record of something else: members, assignments, share groups, and what later versions of Kafka keep there."""

    type: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """What a group has committed. Unknown are an epoch of -1, an expiry of -1, and an empty topic id."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_ms: int
    expire_ms: int = -1
    topic_id: str = ""


def decode_key(content: bytes) -> PositionKey | GroupKey | OtherKey:
    """Take a record's key apart. Raises ValueError when it is not one that Kafka writes."""
    fields = _Fields(content)
    kind = fields.int16()
    if kind in _POSITION_TYPES:
        key: PositionKey | GroupKey = PositionKey(fields.text(), fields.text(), fields.int32())
    elif kind in _GROUP_TYPES:
        key = GroupKey(fields.text(), _GROUP_TYPES[kind])
    else:
        return OtherKey(kind)
    fields.expect_end()
    return key


def decode_commit(content: bytes) -> Commit:
    """Take the value of a position's record apart. Raises ValueError, also for a version that is not known yet."""
    fields = _Fields(content)
    version = fields.int16()
    if not 0 <= version <= _MOST_VERSION:
        raise ValueError(f"version {version} of a commit is newer than this program reads ({_MOST_VERSION})")
    offset = fields.int64()
    leader_epoch = fields.int32() if version >= 3 else -1
    metadata = fields.compact_text() if version >= _FIRST_COMPACT_VERSION else fields.text()
    commit_ms = fields.int64()
    expire_ms = fields.int64() if version == 1 else -1
    topic_id = fields.tags().get(_TOPIC_ID_TAG, _NO_ID) if version >= _FIRST_COMPACT_VERSION else _NO_ID
    fields.expect_end()
    return Commit(
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=metadata,
        commit_ms=commit_ms,
        expire_ms=expire_ms,
        topic_id=spell_topic_id(topic_id),
    )


def spell_topic_id(raw: bytes) -> str:
    """Spell an id as Kafka prints it; empty for none, and for the zero id, which means unknown."""
    if len(raw) not in {0, TOPIC_ID_BYTES}:
        raise ValueError(f"a topic id of {len(raw)} bytes")
    return "" if raw in {b"", _NO_ID} else base64.urlsafe_b64encode(raw).decode().rstrip("=")


class _Fields:
    """Reads fields one behind the other. Whatever does not fit raises ValueError."""

    __slots__ = ("_at", "_content")

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def int16(self) -> int:
        return self._number(_INT16)

    def int32(self) -> int:
        return self._number(_INT32)

    def int64(self) -> int:
        return self._number(_INT64)

    def text(self) -> str:
        return self._take(self.int16()).decode()

    def compact_text(self) -> str:
        return self._take(self._uvarint() - 1).decode()

    def tags(self) -> dict[int, bytes]:
        return {self._uvarint(): self._take(self._uvarint()) for _ in range(self._uvarint())}

    def expect_end(self) -> None:
        if self._at != len(self._content):
            raise ValueError(f"{len(self._content) - self._at} bytes too many")

    def _number(self, layout: struct.Struct) -> int:
        return int(layout.unpack(self._take(layout.size))[0])

    def _uvarint(self) -> int:
        number = 0
        for shift in range(0, 35, 7):
            byte = self._take(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
        raise ValueError("a number without an end")

    def _take(self, length: int) -> bytes:
        start, self._at = self._at, self._at + length
        if length < 0 or self._at > len(self._content):
            raise ValueError(f"{length} bytes wanted at byte {start} of {len(self._content)}")
        return self._content[start : self._at]
