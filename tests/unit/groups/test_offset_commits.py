"""Keys and values of `__consumer_offsets` that cannot be, and those of something else. What is right: tests/integration/groups."""

import pytest

from tests.support.offset_commits import Commit, GroupKey, GroupKind, OtherKey, PositionKey, decode_commit, decode_key

KEY = bytes.fromhex("000100016700017400000003")
VALUE = bytes.fromhex("0003000000000000002a0000000700016d00000000000003e8")
COMPACT = bytes.fromhex("0004000000000000002a00000007026d00000000000003e8")
TOPIC_ID = bytes.fromhex("01001000000000000000000000000000000002")


def test_a_position_under_either_type_of_key_is_the_same() -> None:
    assert decode_key(KEY) == decode_key(b"\0\0" + KEY[2:]) == PositionKey("g", "t", 3)


def test_a_commit() -> None:
    assert decode_commit(VALUE) == Commit(offset=42, leader_epoch=7, metadata="m", commit_ms=1000)
    assert decode_commit(COMPACT + b"\0") == Commit(offset=42, leader_epoch=7, metadata="m", commit_ms=1000)
    assert decode_commit(COMPACT + TOPIC_ID).topic_id == "AAAAAAAAAAAAAAAAAAAAAg"


def test_the_zero_id_is_unknown() -> None:
    assert decode_commit(COMPACT + b"\1\0\x10" + bytes(16)).topic_id == ""


def test_tags_of_later_versions_are_passed_over() -> None:
    assert decode_commit(COMPACT + b"\2\x05\x02xy" + TOPIC_ID[1:]).topic_id == "AAAAAAAAAAAAAAAAAAAAAg"


@pytest.mark.parametrize("kind", [*range(4, 17), *range(18, 30), 32767, -1])
def test_other_types_are_not_guessed_at(kind: int) -> None:
    assert decode_key(kind.to_bytes(2, signed=True) + b"whatever it is") == OtherKey(kind)


@pytest.mark.parametrize(("kind", "group"), [(2, GroupKind.CLASSIC), (3, GroupKind.CONSUMER), (17, GroupKind.STREAMS)])
def test_groups(kind: int, group: GroupKind) -> None:
    assert decode_key(kind.to_bytes(2) + b"\0\1g") == GroupKey("g", group)


@pytest.mark.parametrize(
    "content", [KEY + b"\0", b"\0\1\xff\xff" + KEY[4:], KEY.replace(b"g", b"\xff"), b"\0\2\0\2g", b""]
)
def test_a_key_that_kafka_does_not_write_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"wanted at byte|bytes too many|utf-8|newer than|topic id|without an end"):
        decode_key(content)


@pytest.mark.parametrize("content", [KEY, VALUE, COMPACT + TOPIC_ID])
def test_every_cut_is_refused(content: bytes) -> None:
    decode = decode_key if content is KEY else decode_commit
    for length in range(len(content)):
        with pytest.raises(ValueError, match=r"wanted at byte|bytes too many|utf-8|newer than|topic id|without an end"):
            decode(content[:length])


@pytest.mark.parametrize(
    "content",
    [
        b"\0\5" + VALUE[2:],  # a version that may mean something else
        b"\xff\xff" + VALUE[2:],
        VALUE + b"\0",
        COMPACT + b"\1\0\x0f" + bytes(15),  # an id that is none
        COMPACT + b"\xff\xff\xff\xff\xff\xff",
        COMPACT[:14] + b"\0" + COMPACT[16:] + b"\0",  # metadata must not be null
    ],
)  # fmt: skip
def test_a_commit_that_kafka_does_not_write_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"wanted at byte|bytes too many|utf-8|newer than|topic id|without an end"):
        decode_commit(content)
