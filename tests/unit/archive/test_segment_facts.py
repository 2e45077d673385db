"""docs/format.md §4: facts as text and back; what cannot be is refused by name."""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archiver.archive.segments.segment_facts import (
    Bounds,
    Hole,
    HoleCause,
    SegmentFacts,
    facts_from_header,
    facts_from_metadata,
    format_for,
)
from archiver.errors import CorruptSegmentError, FormatTooNewError

FACTS = SegmentFacts(
    writer="0.1.0",
    cluster_id="MkU3OEVBNTcwNTJENDM2Qg",
    topic_id="q4cJwU1ESQuHQCkhXlqmrA",
    leader_epoch=3,
    base=100,
    first=120,
    last=180,
    next=200,
    records=50,
    tombstones=7,
    min_timestamp=-1,
    max_timestamp=1_700_000_000_000,
    timestamp_types=(-1, 0, 1),
    bytes=12345,
    largest_record=999,
    source_bytes=7777,
    holes=(
        Hole(first_offset=100, last_offset=110, cause=HoleCause.EXPIRED),
        Hole(first_offset=112, last_offset=112, cause=HoleCause.EXPIRED),
    ),
    sha256="0123456789abcdef" * 4,
    digest=0xAB,
)

# Spelled out: these texts are in buckets, and stay there.
TEXTS = {
    "format": "1",
    "writer": "0.1.0",
    "cluster-id": "MkU3OEVBNTcwNTJENDM2Qg",
    "topic-id": "q4cJwU1ESQuHQCkhXlqmrA",
    "leader-epoch": "3",
    "base": "100",
    "first": "120",
    "last": "180",
    "next": "200",
    "records": "50",
    "tombstones": "7",
    "min-timestamp": "-1",
    "max-timestamp": "1700000000000",
    "timestamp-types": "-1,0,1",
    "bytes": "12345",
    "largest-record": "999",
    "source-bytes": "7777",
    "holes": "100-110:expired;112-112:expired",
    "sha256": "0123456789abcdef" * 4,
    "digest": "00000000000000ab",
    "encryption": "none",
}
METADATA = {f"archiver-{name}": text for name, text in TEXTS.items()}
# What coreutils make of the lines: sort, sha256sum.
CHECKSUM = "804addc83b29db088c334ad0080513ac7dfc2c2daa566ec36561680fb87b1a2e"

longs = st.integers(-(2**63), 2**63 - 1)
ids = st.text("ABCxyz019_-", max_size=22)


@st.composite
def holes(draw: st.DrawFn) -> Hole:
    first, last = sorted((draw(st.integers(0, 2**63 - 1)), draw(st.integers(0, 2**63 - 1))))
    return Hole(first_offset=first, last_offset=last, cause=draw(st.sampled_from(HoleCause)))


@st.composite
def segment_facts(draw: st.DrawFn) -> SegmentFacts:
    base, first, last = sorted(draw(st.integers(0, 2**63 - 2)) for _ in range(3))
    records = draw(st.integers(1, last - first + 1))
    min_timestamp, max_timestamp = sorted((draw(longs), draw(longs)))
    return SegmentFacts(
        writer=draw(st.text("0123.abc+-", min_size=1, max_size=20)),
        cluster_id=draw(ids),
        topic_id=draw(ids),
        leader_epoch=draw(st.integers(-1, 2**31 - 1)),
        base=base,
        first=first,
        last=last,
        next=draw(st.integers(last + 1, 2**63 - 1)),
        records=records,
        tombstones=draw(st.integers(0, records)),
        min_timestamp=min_timestamp,
        max_timestamp=max_timestamp,
        timestamp_types=tuple(sorted(draw(st.sets(st.integers(-1, 1), min_size=1)))),
        bytes=draw(st.integers(0, 2**63 - 1)),
        largest_record=draw(st.integers(0, 2**31)),
        source_bytes=draw(st.integers(0, 2**63 - 1)),
        holes=tuple(draw(st.lists(holes(), max_size=4))),
        sha256=draw(st.text("0123456789abcdef", min_size=64, max_size=64)),
        digest=draw(st.integers(0, 2**61 - 2)),
        unserved=draw(st.none() | st.just(0)),
        stable_end=draw(st.none() | st.integers(0, 2**63 - 1)),
    )


def checksummed(metadata: Mapping[str, str]) -> dict[str, str]:
    """With the checksum of the format, by its words."""
    lines = sorted(f"{name}: {text}\n" for name, text in metadata.items() if name.startswith("archiver-"))
    return {**metadata, "archiver-facts-sha256": hashlib.sha256("".join(lines).encode()).hexdigest()}


def test_the_texts_are_those_of_the_format() -> None:
    assert FACTS.to_metadata() == METADATA | {"archiver-facts-sha256": CHECKSUM}
    assert FACTS.to_header() == {f"archiver.{name}": text for name, text in TEXTS.items()}
    assert facts_from_metadata(checksummed(METADATA), "k") == FACTS


def test_facts_without_their_checksum_are_damage() -> None:
    with pytest.raises(CorruptSegmentError, match="archiver-facts-sha256 is missing"):
        facts_from_metadata(METADATA, "k")


@given(segment_facts())
def test_what_is_written_is_read(facts: SegmentFacts) -> None:
    metadata, header = facts.to_metadata(), facts.to_header()
    assert facts_from_metadata(metadata, "k") == facts == facts_from_header(header, "k")
    assert all((name + text).isascii() for name, text in (metadata | header).items())
    assert all(text == text.strip() for text in metadata.values())  # S3 trims


def test_what_no_batch_served_is_told_where_it_was_counted() -> None:
    facts = replace(FACTS, unserved=37)
    told = facts.to_metadata()
    assert told == METADATA | {"archiver-unserved": "37", "archiver-facts-sha256": told["archiver-facts-sha256"]}
    assert facts_from_metadata(told, "k") == facts == facts_from_header(facts.to_header(), "k")
    assert facts.differing(FACTS) == FACTS.differing(facts) == ["unserved"]
    with pytest.raises(CorruptSegmentError, match="not those that were written"):
        facts_from_metadata({name: text for name, text in told.items() if name != "archiver-unserved"}, "k")


@pytest.mark.parametrize("text", ["-1", "51", "", "None", "+0", "9" * 30])
def test_no_more_can_be_unserved_than_has_no_record(text: str) -> None:
    with pytest.raises(CorruptSegmentError, match="facts that cannot be"):
        facts_from_metadata(checksummed(METADATA | {"archiver-unserved": text}), "k")
    assert facts_from_metadata(checksummed(METADATA | {"archiver-unserved": "50"}), "k") == replace(FACTS, unserved=50)


@pytest.mark.parametrize("unserved", [None, 0, 7])
def test_an_index_may_leave_out_what_its_program_did_not_know(unserved: int | None) -> None:
    facts = replace(FACTS, unserved=unserved)
    assert facts.is_noted_as(facts)
    assert facts.is_noted_as(FACTS)
    assert not facts.is_noted_as(replace(FACTS, unserved=3))
    assert not facts.is_noted_as(replace(FACTS, bytes=1))
    ended = replace(facts, stable_end=9)
    assert ended.is_noted_as(facts)  # by a program that knew the other fact alone
    assert ended.is_noted_as(FACTS)
    assert not ended.is_noted_as(replace(ended, stable_end=8))
    assert not ended.is_noted_as(replace(FACTS, stable_end=9, bytes=1))
    assert not ended.is_noted_as(None)
    assert not facts.is_noted_as(Bounds(base=100, first=120, last=199))


def test_others_metadata_is_no_matter() -> None:
    assert facts_from_metadata(FACTS.to_metadata() | {"s3b-last-modified": "x"}, "k") == FACTS


@pytest.mark.parametrize("name", TEXTS)
def test_every_fact_that_was_changed_in_the_metadata_is_found(name: str) -> None:
    written = FACTS.to_metadata()
    changed = {"leader-epoch": "4", "min-timestamp": "-2", "holes": "", "timestamp-types": "0"}
    text = changed.get(name, written[f"archiver-{name}"].replace("0", "1") + "1")
    with pytest.raises((CorruptSegmentError, FormatTooNewError), match="the/key: "):
        facts_from_metadata(written | {f"archiver-{name}": text}, "the/key")


@pytest.mark.parametrize("dropped", [["holes"], ["topic-id"], ["holes", "topic-id"]])
def test_an_empty_fact_that_a_store_has_dropped_is_read_where_the_checksum_agrees(dropped: list[str]) -> None:
    facts = replace(FACTS, holes=(), topic_id="")
    metadata = facts.to_metadata()
    left = {name: text for name, text in metadata.items() if name.removeprefix("archiver-") not in dropped}
    assert facts_from_metadata(left, "k") == facts
    of_others = {name: text for name, text in FACTS.to_metadata().items() if name in left}
    with pytest.raises(CorruptSegmentError, match="not those that were written"):
        facts_from_metadata(of_others, "k")


def test_a_signature_is_no_fact_and_not_under_the_checksum() -> None:
    signed = FACTS.to_metadata() | {"archiver-signature": "ed25519 AbC="}
    assert facts_from_metadata(signed, "k") == FACTS
    assert (
        facts_from_metadata({"archiver-signature": "ed25519 AbC="}, "k") is None
    )  # an object of v1.0 may be signed, too
    with pytest.raises(CorruptSegmentError, match="are not those that were written"):
        facts_from_metadata(signed | {"archiver-records": "49"}, "k")


def test_blocks_of_an_unknown_codec_of_encryption_are_refused_by_name() -> None:
    encrypted = replace(FACTS, encryption="aes-256-gcm")
    for read, texts in ((facts_from_metadata, encrypted.to_metadata()), (facts_from_header, encrypted.to_header())):
        with pytest.raises(
            FormatTooNewError, match=r"k: its blocks are encrypted by the codec 'aes-256-gcm', .* later version"
        ):
            read(texts, "k")


@pytest.mark.parametrize("cause", ["unreadable", "undecided", "erased"])
def test_causes_that_the_first_format_did_not_have_are_read_and_take_the_second(cause: str) -> None:
    hole = Hole.parse(f"100-110:{cause}")
    assert (format_for([hole]), format_for([Hole.parse("100-110:expired")])) == (2, 1)
    facts = replace(FACTS, format=2, holes=(hole,))
    assert facts_from_metadata(facts.to_metadata(), "k") == facts


def test_a_later_program_may_add_facts_under_the_checksum() -> None:
    assert facts_from_metadata(checksummed(METADATA | {"archiver-new": "y"}), "k") == FACTS


@pytest.mark.parametrize("metadata", [{}, {"writer": "someone"}, {"archiver.base": "1"}])
def test_an_object_without_our_facts_has_none(metadata: dict[str, str]) -> None:
    """As those of v1.0 have none."""
    assert facts_from_metadata(metadata, "k") is None


@pytest.mark.parametrize("name", sorted(TEXTS.keys() - {"holes", "topic-id"}))
def test_a_missing_fact_is_named(name: str) -> None:
    cut = {key: text for key, text in METADATA.items() if key != f"archiver-{name}"}
    with pytest.raises(CorruptSegmentError, match=rf"^the/key: the fact {name.replace('-', '.')} is missing"):
        facts_from_metadata(cut, "the/key")


@pytest.mark.parametrize("version", ["3", "10", "999"])
def test_a_newer_format_is_refused_by_name_even_if_unreadable(version: str) -> None:
    with pytest.raises(FormatTooNewError, match=rf"^the/key: format {version} is newer.*\(2\); use a later version"):
        facts_from_metadata({"archiver-format": version, "archiver-what": "?"}, "the/key")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("base", "121"),
        ("base", "-1"),
        ("base", "1e2"),
        ("first", "181"),
        ("last", "200"),
        ("next", "180"),
        ("records", "0"),
        ("tombstones", "51"),
        ("min-timestamp", "1700000000001"),
        ("timestamp-types", ""),
        ("holes", "5"),
        ("holes", "5-9:eaten"),
        ("digest", "xyz"),
        ("format", "one"),
    ],
)
def test_facts_that_cannot_be_are_corrupt(name: str, text: str) -> None:
    with pytest.raises(CorruptSegmentError, match=r"^the/key: facts that cannot be"):
        facts_from_metadata(METADATA | {f"archiver-{name}": text}, "the/key")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("next", str(10**30)),
        ("min-timestamp", str(-(2**63) - 1)),
        ("bytes", "9" * 400),
        ("leader-epoch", str(2**31)),
        ("leader-epoch", "-2"),
        ("stable-end", "-1"),
        ("stable-end", str(2**63)),
        ("digest", "f" * 30),
        ("base", "9" * 5000),
        ("bytes", "1_000"),
        ("bytes", "05"),
        ("timestamp-types", "0," * 1000 + "0"),
        ("holes", "\u0661-\u0665:expired"),
        ("holes", ";".join(["5-9:expired"] * 100_000)),
        ("writer", "w" * 100_000),
    ],
)
def test_a_number_that_no_offset_time_or_size_can_be_is_damage(name: str, text: str) -> None:
    """Where nothing else tells: in metadata from before there was a checksum."""
    with pytest.raises(CorruptSegmentError, match=r"^the/key: facts that cannot be: "):
        facts_from_metadata(METADATA | {f"archiver-{name}": text}, "the/key")


def test_no_flipped_bit_turns_the_checksum_off() -> None:
    written = FACTS.to_metadata()
    checksum = written.pop("archiver-facts-sha256")
    for place, bit in product(range(len("archiver-facts-sha256")), range(8)):
        name = bytearray(b"archiver-facts-sha256")
        name[place] ^= 1 << bit
        with pytest.raises(CorruptSegmentError, match="the/key: "):
            facts_from_metadata(written | {name.decode("latin-1"): checksum}, "the/key")
