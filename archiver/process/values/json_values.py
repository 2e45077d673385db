"""Reads JSON of unknown writers: checks the kind and bounds of each value, and raises ValueError."""

import json
import re
from reprlib import repr as short_repr
from typing import Any, Final, NoReturn

LARGEST: Final = 2**63 - 1
MOST_TEXT: Final = 2048  # characters: the maximum of an object's metadata; names in Kafka have 249
MOST_PARSED_BYTES: Final = 16 << 20
# Python's highest need for an object, a list, and a member of either. Measured: `json.loads` takes up to 48 times its input.
_OBJECT_BYTES: Final = 200
_LIST_BYTES: Final = 100
_MEMBER_BYTES: Final = 80
_WIDE_TIMES: Final = 4  # bytes of a character, if one of its text needs four
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,18})", re.ASCII)
_DIGEST: Final = re.compile(r"[0-9a-f]{16}", re.ASCII)
# Python keeps a text as wide as its widest character: one escape makes its text up to four times as large. The patterns are
# possessive (`*+`), since remembering where else they could match takes more memory than the text.
_WIDE_ESCAPE: Final = "\\u"
_STRING: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_HEX: Final = "[0-9a-fA-F]"
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
# An escaped backslash begins no escape. Of a pair both halves are taken at once.
_LONE_SURROGATE: Final = re.compile(
    rf"(?:\\\\)++|\\u[dD][89abAB]{_HEX}{{2}}\\u[dD][c-fC-F]{_HEX}{{2}}|({_SURROGATE.pattern})"
)


def parsed_bytes(text: str) -> int:
    """Estimate how much memory the value of a JSON text needs, the text included."""
    size = len(text) if text.isascii() else 4 * len(text)  # one character of four bytes makes all of them as wide
    if _WIDE_ESCAPE in text:
        size += _WIDE_TIMES * sum(len(one[0]) for one in _STRING.finditer(text) if _WIDE_ESCAPE in one[0])
    return size + _OBJECT_BYTES * text.count("{") + _LIST_BYTES * text.count("[") + _MEMBER_BYTES * text.count(",")


def parse_json(content: bytes | str, most_parsed_bytes: int = MOST_PARSED_BYTES) -> object:
    """Parse JSON of an unknown writer.

    Raises ValueError for a value that may need more memory, for NaN, for nesting that exhausts the stack, and for text that UTF-8 cannot encode.
    """
    text = content.decode() if isinstance(content, bytes) else content
    expected = parsed_bytes(text)
    if expected > most_parsed_bytes:
        raise ValueError(f"parsing it may take {expected:,} bytes of memory, and the limit is {most_parsed_bytes:,}")
    try:
        found: object = _decoder.decode(text)
    except RecursionError:
        raise ValueError("nested too deep") from None
    if _SURROGATE.search(text) and any(one[1] for one in _LONE_SURROGATE.finditer(text)):
        raise ValueError("a text has half of a surrogate pair, which UTF-8 cannot encode")
    return found


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number")


_decoder: Final = json.JSONDecoder(parse_constant=_refuse)


def as_number(value: object, least: int = 0, most: int = LARGEST) -> int:
    """Take a whole number within bounds, both included. `true` is no number."""
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{short_repr(value)} where a number from {least} to {most} was to come")
    return value


def as_truth(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{short_repr(value)} where true or false was to come")  # noqa: TRY004 - as for all that is wrong
    return value


def as_text(value: object, most: int = MOST_TEXT) -> str:
    """Take a text of at most this many characters."""
    if not isinstance(value, str) or len(value) > most:
        raise ValueError(f"{short_repr(value)} where a text of at most {most} characters was to come")
    return value


def as_list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{short_repr(value)} where a list was to come")  # noqa: TRY004
    return value


def as_texts(value: object, most: int = MOST_TEXT) -> tuple[str, ...]:
    return tuple(as_text(one, most) for one in as_list(value))


def as_object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{short_repr(value)} where an object was to come")  # noqa: TRY004
    return value


def spelled_number(value: str, least: int = 0, most: int = LARGEST) -> int:
    """Parse a number as we spell it: ASCII digits, no sign but a minus, no zeros before it."""
    if _NUMBER.fullmatch(value) is None:
        raise ValueError(f"not a number: {short_repr(value)}")
    return as_number(int(value), least, most)


def spelled_digest(value: object) -> int:
    """Parse a digest as we spell it: 16 hex digits."""
    if not isinstance(value, str) or _DIGEST.fullmatch(value) is None:
        raise ValueError(f"not a digest: {short_repr(value)}")
    return as_number(int(value, 16))
