"""docs/format.md §2: what we spell we parse, names sort as offsets do, and nothing else is ours."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archiver.archive.format.layout import MOST_OFFSET, CopyKey, Layout, SegmentKey, is_instance

TOPIC_LETTERS = "abcXYZ019._-"
topics = st.text(TOPIC_LETTERS, min_size=1, max_size=249).filter(lambda name: name not in {".", ".."})
prefixes = st.lists(st.text("abAB09 .-_=+@é", min_size=1, max_size=8), max_size=3).map("/".join)
offsets = st.integers(0, MOST_OFFSET) | st.integers(0, 20)


@st.composite
def segment_keys(draw: st.DrawFn) -> SegmentKey:
    base = draw(st.integers(0, MOST_OFFSET - 1) | st.integers(0, 20))
    return SegmentKey(
        topic=draw(topics),
        life=draw(st.integers(0, 12)),
        partition=draw(st.integers(0, 2**31 - 1) | st.integers(0, 12)),
        base=base,
        next=(named_next := draw(st.none() | st.integers(base + 1, MOST_OFFSET))),
        rewrite=0 if named_next is None else draw(st.integers(0, 12) | st.integers(0, 2**31 - 1)),
    )


@given(prefixes, segment_keys())
def test_what_is_spelled_is_parsed(prefix: str, key: SegmentKey) -> None:
    layout = Layout(prefix)
    spelled = layout.segment_key(key)
    assert layout.parse_segment(spelled) == key
    assert spelled.startswith(layout.partition_prefix(key.topic, key.life, key.partition))
    assert spelled.startswith(layout.topic_prefix(key.topic, key.life))
    assert spelled.startswith(layout.topics_prefix)


@given(st.lists(st.tuples(st.integers(0, MOST_OFFSET - 1) | st.integers(0, 300), st.booleans())))
def test_names_sort_as_bases_do(drawn: list[tuple[int, bool]]) -> None:
    layout = Layout("p")
    keys = [
        SegmentKey(topic="t", partition=0, base=base, next=MOST_OFFSET if merged else None) for base, merged in drawn
    ]
    by_name = sorted(keys, key=layout.segment_key)
    assert [key.base for key in by_name] == sorted(key.base for key in keys)


EXAMPLE = SegmentKey(topic="orders", life=2, partition=10, base=7, next=9)
SPELLED = "p/topics/orders@2/partition=10/orders+10-00000000000000000007-00000000000000000009.data"


def test_the_spelling_is_the_one_of_the_format() -> None:
    plain = SegmentKey(topic="orders", partition=3, base=42)
    assert Layout("p").segment_key(EXAMPLE) == SPELLED
    assert Layout("p/q").segment_key(plain) == "p/q/topics/orders/partition=3/orders+3-00000000000000000042.data"
    assert Layout().segment_key(plain) == "topics/orders/partition=3/orders+3-00000000000000000042.data"


@pytest.mark.parametrize(
    ("ours", "not_ours"),
    [
        ("p/topics", "pp/topics"),
        ("orders@2/", "orders@02/"),
        ("orders@2/", "orders@0/"),
        ("/orders+", "/order+"),
        ("partition=10/orders+10", "partition=010/orders+010"),
        ("partition=10", "partition=11"),
        ("partition=10/orders+10", "partition=2147483648/orders+2147483648"),  # no 32-bit number
        ("orders@2/", "orders@2147483648/"),
        ("partition=10", "partition=\u0661\u0660"),
        ("00000000000000000007-", "00000000000000000009-"),  # base == next covers nothing
        ("00000000000000000007-", "99999999999999999999-"),
        ("-00000000000000000009", "-99999999999999999999"),  # no 64-bit offset
        (".data", ".01.data"),
        (".data", ".2147483648.data"),
        ("-00000000000000000009", ".1"),  # only a merged one is rewritten
        (".data", ".data\n"),
        (".data", ".data.tmp"),
    ],
)
def test_anything_but_our_spelling_is_a_stranger(ours: str, not_ours: str) -> None:
    layout = Layout("p")
    assert layout.parse_segment(SPELLED) == EXAMPLE
    assert SPELLED.count(ours) == 1
    assert layout.parse_segment(SPELLED.replace(ours, not_ours)) is None


def test_a_rewrite_has_its_number_in_its_name() -> None:
    rewritten = replace(EXAMPLE, rewrite=10)
    assert Layout("p").segment_key(rewritten) == SPELLED.replace(".data", ".10.data")
    copied = COPIED.replace(".data", ".10.data")
    assert Layout("p").parse_stored(copied) == Layout("p").parse_copied_segment(COPY, copied) == rewritten
    with pytest.raises(ValueError, match="not a rewrite"):
        replace(EXAMPLE, next=None, rewrite=1)


@given(segment_keys(), st.data())
def test_an_edited_key_is_a_stranger_or_spells_itself(key: SegmentKey, data: st.DataObject) -> None:
    layout = Layout("p")
    spelled = layout.segment_key(key)
    at = data.draw(st.integers(0, len(spelled)))
    letters = data.draw(st.text("0123456789aZ./+-@=\n٣ ", max_size=3))
    edited = spelled[:at] + letters + spelled[at + data.draw(st.integers(0, 3)) :]
    parsed = layout.parse_segment(edited)
    assert parsed is None or layout.segment_key(parsed) == edited


@given(st.text())
def test_a_directory_parses_only_as_it_is_spelled(name: str) -> None:
    parsed = Layout.parse_topic_directory(name)
    assert parsed is None or Layout().topic_prefix(*parsed) == f"topics/{name}/"


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "a+b", "a@1", "é", "a b", "a\n", "x" * 250])
def test_an_illegal_topic_has_no_key(topic: str) -> None:
    with pytest.raises(ValueError, match="not a topic name"):
        SegmentKey(topic=topic, partition=0, base=0)


@pytest.mark.parametrize(
    "wrong",
    [{"life": -1}, {"partition": -1}, {"base": -1}, {"base": MOST_OFFSET + 1}, {"next": 5}, {"next": MOST_OFFSET + 1}],
)
def test_numbers_that_cannot_be_have_no_key(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"negative|not a range"):
        SegmentKey(**({"topic": "t", "life": 0, "partition": 0, "base": 5} | wrong))  # type: ignore[arg-type]


@pytest.mark.parametrize("prefix", ["/", "/a", "a/"])
def test_a_prefix_has_no_slash_at_its_ends(prefix: str) -> None:
    with pytest.raises(ValueError, match="slash"):
        Layout(prefix)


# --- copies of compacted topics

COPY = CopyKey(instance="blue", topic="orders", life=2, partition=10, generation=3)
COPIED = "p/compacted/blue/topics/orders@2/partition=10/generation=3/orders+10-00000000000000000007-00000000000000000009.data"


def test_the_spelling_of_a_copy_is_the_one_of_the_format() -> None:
    layout = Layout("p")
    first = CopyKey(instance="b.l_u-e", topic="orders", life=0, partition=0, generation=0)
    assert layout.copy_prefix(first) == "p/compacted/b.l_u-e/topics/orders/partition=0/generation=0/"
    assert layout.copy_prefix(COPY) == COPIED[: COPIED.rindex("/") + 1]
    assert layout.copy_prefix(COPY).startswith(layout.copied_topic_prefix("blue", "orders", 2))
    assert [layout.parse_copy(f"{layout.copy_prefix(one)}x") for one in (COPY, first)] == [COPY, first]
    assert layout.parse_copy(COPIED.replace("generation=3", "generation=03")) is None
    assert layout.parse_copy(f"{layout.copy_prefix(COPY)}deeper/x") is None
    assert layout.parse_copy(f"q{COPIED}") is None
    assert layout.parse_copied_segment(COPY, COPIED) == EXAMPLE
    assert layout.parse_segment(COPIED) is None
    assert layout.parse_copied_segment(COPY, SPELLED) is None
    assert layout.split_copied(COPIED) == (COPY, layout.parse_stored(COPIED))
    assert layout.parse_stored(COPIED) == layout.parse_stored(SPELLED) == EXAMPLE
    assert layout.place_of(COPIED) == layout.place_of(SPELLED) == ("orders", 2, 10)


@pytest.mark.parametrize(
    ("ours", "not_ours"),
    [
        ("/blue/", "/green/"),
        ("orders@2/", "orders/"),
        ("generation=3/", "generation=3/x/"),
        ("/orders+10", "/orders+11"),
        (".data", ".avro"),
    ],
)
def test_anything_else_is_no_segment_of_the_copy(ours: str, not_ours: str) -> None:
    assert COPIED.count(ours) == 1
    assert Layout("p").parse_copied_segment(COPY, COPIED.replace(ours, not_ours)) is None


@pytest.mark.parametrize(
    ("ours", "not_ours"),
    [
        ("p/compacted", "q/compacted"),
        ("/blue/", "/../"),
        ("orders@2/", "orders@02/"),
        ("generation=3", "generation=03"),
        ("generation=3", "generation=9999999999"),
        (".data", ".avro"),
    ],
)
def test_anything_else_is_in_no_copy(ours: str, not_ours: str) -> None:
    assert COPIED.count(ours) == 1
    changed = COPIED.replace(ours, not_ours)
    assert (Layout("p").split_copied(changed), Layout("p").place_of(changed)) == (None, None)


@pytest.mark.parametrize("name", ["", ".", "..", "-x", "a/b", "a b", "é", "a\n", "x" * 65])
def test_what_is_no_name_of_an_instance(name: str) -> None:
    assert not is_instance(name)
    with pytest.raises(ValueError, match="not the name of an instance"):
        CopyKey(instance=name, topic="t", life=0, partition=0, generation=0)


# --- control facts

streams = st.lists(topics, min_size=1, max_size=4).map("/".join)


@given(prefixes, streams, st.integers(0, 999_999))
def test_a_fact_spelled_is_parsed(prefix: str, stream: str, number: int) -> None:
    layout = Layout(prefix)
    key = layout.fact_key(stream, number)
    assert key.startswith(layout.control_prefix(stream))
    assert layout.parse_fact(stream, key) == number
    assert layout.parse_segment(key) is None


@pytest.mark.parametrize(
    "name",
    ["7.json", "0000007.json", "00000a.json", "000007.JSON", "000007.json\n", "00000\u0667.json", "x/000007.json"],
)
def test_anything_else_is_no_fact(name: str) -> None:
    layout = Layout("p")
    assert layout.parse_fact("topics/t", layout.control_prefix("topics/t") + name) is None


@pytest.mark.parametrize("number", [-1, 1_000_000])
def test_a_number_of_seven_digits_has_no_key(number: int) -> None:
    with pytest.raises(ValueError, match="there is no fact number"):
        Layout("p").fact_key("topics/t", number)
