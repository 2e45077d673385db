"""JSON of unknown writers: how much memory it takes, and which texts UTF-8 cannot encode."""

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archiver.process.values.json_values import parse_json, parsed_bytes

PAIR = r"\ud83d\ude00"
LARGE = 1 << 20


@pytest.mark.parametrize(
    "text",
    [
        "a" * LARGE,
        "a" * LARGE + PAIR,
        PAIR + "a" * LARGE,
        r"\"" * LARGE + PAIR,
        r"\\" * LARGE + PAIR,
        PAIR * (LARGE // 8),
        r"\\ud83d" * (LARGE // 8) + PAIR,
        '","'.join(["a" * 40 + PAIR] * (LARGE // 32)),
    ],
    ids=["plain", "escape-behind", "escape-before", "quotes", "backslashes", "pairs", "no-pairs", "many-texts"],
)
def test_parsing_takes_at_most_twice_the_estimate(text: str) -> None:
    content = f'["{text}"]'
    parse_json('"x"')
    tracemalloc.start()
    try:
        expected = parsed_bytes(content)
        parse_json(content, expected)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * expected


def test_texts_without_escapes_count_once() -> None:
    """One name with an escape makes no other name of a large note wider."""
    names = json.dumps(["plain" * 20] * 100)
    assert parsed_bytes(json.dumps(["\u00e9", *json.loads(names)])) < parsed_bytes(names) + 150


@given(st.lists(st.sampled_from(["\\", "\\\\", "u", "d83d", "ude00", r"\ud83d", r"\uDE00", "a", r"\u00e9", r"\n"])))
def test_texts_that_utf8_cannot_encode_are_refused(pieces: list[str]) -> None:
    text = f'"{"".join(pieces)}"'
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    try:
        expected = None if value is None else str(value).encode().decode()
    except UnicodeEncodeError:
        expected = None
    if expected is None:
        with pytest.raises(ValueError, match=r"."):
            parse_json(text)
    else:
        assert parse_json(text) == expected
