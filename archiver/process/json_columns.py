"""A JSON object whose values are long lists, read piece by piece: all of it as Python objects would take a kilobyte for each row."""

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

Values = Iterator[list[object]]  # a long list, piece by piece

_SPACE: Final = " \t\r\n"
_MOST_OPEN: Final = 1 << 20  # characters that are held while a value is incomplete: values of ours have up to 2,048
_MOST_NAMES: Final = 100  # each name costs a copy of the text that is held; our objects have 24
_decoder = json.JSONDecoder()


class JsonColumns:
    """Reads an object out of pieces of text. Whatever is wrong with it raises ValueError."""

    def __init__(self, pieces: Iterator[str]) -> None:
        self._pieces = pieces
        self._text = ""

    def __iter__(self) -> Iterator[tuple[str, object | Values]]:
        """Yield names and values. A list must be read to its end before the next name is asked for."""
        self._take("{")
        if self._next() == "}":
            self._take("}")
        else:
            for left in reversed(range(_MOST_NAMES)):
                name = self._value()
                if not isinstance(name, str):
                    raise ValueError("a name that is no text")  # noqa: TRY004 - as for all that is wrong
                self._take(":")
                values = self._list() if self._next() == "[" else None
                yield name, self._value() if values is None else values
                if self._next() == "}":
                    break
                if not left:
                    raise ValueError("more names than there are columns")
                self._take(",")
            self._take("}")
        if self._text.strip(_SPACE) or any(piece.strip(_SPACE) for piece in self._pieces):
            raise ValueError("more than one object")

    def _more(self) -> bool:
        if len(self._text) > _MOST_OPEN:
            raise ValueError("a value that is too long")
        piece = next(self._pieces, None)
        self._text += piece or ""
        return piece is not None

    def _next(self) -> str:
        while True:
            self._text = self._text.lstrip(_SPACE)
            if self._text:
                return self._text[0]
            if not self._more():
                raise ValueError("it ends too soon")

    def _take(self, sign: str) -> None:
        if self._next() != sign:
            raise ValueError(f"{self._text[:20]!r} where {sign!r} was to come")
        self._text = self._text[1:]

    def _value(self) -> object:
        """Read one value that is no long list. A number is complete only when something follows it."""
        self._next()
        while True:
            with suppress(ValueError):
                value, end = _decoder.raw_decode(self._text)
                if end < len(self._text):
                    self._text = self._text[end:]
                    return value
            if not self._more():
                raise ValueError("it ends too soon")

    def _list(self) -> Values:
        """Yield the items up to the last comma that is held. A comma within a text leaves that text open, and does not count."""
        self._take("[")
        while True:
            if "]" in self._text:
                with suppress(ValueError):  # that bracket was within a text
                    values, end = _decoder.raw_decode(f"[{self._text}")
                    self._text = self._text[end - 1 :]
                    yield values
                    return
            cut = self._text.rfind('",') + 1 or self._text.rfind(",")
            some = _list_of(self._text[:cut]) if cut > 0 else None
            if some is not None:
                self._text = self._text[cut + 1 :]
                yield some
            if not self._more():
                raise ValueError("it ends too soon")


def _list_of(text: str) -> list[object] | None:
    try:
        found: list[object] = json.loads(f"[{text}]")
    except ValueError:
        return None
    return found
