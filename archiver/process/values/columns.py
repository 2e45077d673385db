"""Sequences kept as compact numpy columns, whose values become Python objects only on access: archives have millions of objects."""

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from operator import eq
from typing import Any, Final, Generic, TypeVar, overload

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[Any]  # integers, as few bytes each as they need
Places = slice | Numbers  # the selected values: a range, or single ones

Value = TypeVar("Value")
_T = TypeVar("_T")

CHUNK: Final = 2048  # values that are Python objects at the same time
_LARGEST: Final = 2**63 - 1


class Lazy(Sequence[Value], Generic[Value]):
    """A sequence over columns that creates each value on access."""

    @abstractmethod
    def value(self, place: int) -> Value:
        """Make the value at a place, which is not negative."""

    @abstractmethod
    def only(self: _T, places: Places) -> _T:
        """Return some of the values."""

    @overload
    def __getitem__(self, index: int) -> Value: ...
    @overload
    def __getitem__(self, index: slice) -> "Lazy[Value]": ...
    def __getitem__(self, index: int | slice) -> "Value | Lazy[Value]":
        if isinstance(index, slice):
            return self.only(index)
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError(index)
        return self.value(place)

    def __iter__(self) -> Iterator[Value]:
        return map(self.value, range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(tuple(self))


class Chain(Sequence[Value], Generic[Value]):
    """Several sequences one behind the other, as one sequence; empty ones are left out."""

    def __init__(self, blocks: Iterable[Sequence[Value]]) -> None:
        flat = (inner for block in blocks for inner in (block.blocks if isinstance(block, Chain) else (block,)))
        self.blocks: tuple[Sequence[Value], ...] = tuple(block for block in flat if len(block))
        self._ends = list(accumulate(map(len, self.blocks)))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @overload
    def __getitem__(self, index: int) -> Value: ...
    @overload
    def __getitem__(self, index: slice) -> "Chain[Value]": ...
    def __getitem__(self, index: int | slice) -> "Value | Chain[Value]":
        if isinstance(index, slice):
            return self._slice(*index.indices(len(self)))
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError(index)
        number = bisect_right(self._ends, place)
        return self.blocks[number][place - self._ends[number] + len(self.blocks[number])]

    def _slice(self, start: int, stop: int, step: int) -> "Chain[Value]":
        if step != 1:
            raise ValueError("a chain is cut, and not thinned out")
        begins = (end - len(block) for end, block in zip(self._ends, self.blocks, strict=True))
        return Chain(
            block[max(0, start - begin) : max(0, stop - begin)]
            for begin, block in zip(begins, self.blocks, strict=True)
        )

    def __iter__(self) -> Iterator[Value]:
        for block in self.blocks:
            yield from block

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        if isinstance(other, Chain) and list(map(len, self.blocks)) == list(map(len, other.blocks)):
            return self.blocks == other.blocks
        return len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(tuple(self))


class Texts(Lazy[str]):
    """Texts of about the same length, as bytes. If all are hex digits of one length, two digits take a byte."""

    __slots__ = ("content", "digits")

    def __init__(self, content: Numbers, digits: int = 0) -> None:
        self.content = content
        self.digits = digits  # how many each text has, where all are hex

    @classmethod
    def of(cls, texts: Sequence[str]) -> "Texts":
        digits = len(texts[0]) if texts else 0
        if digits and not digits % 2 and set(map(len, texts)) == {digits}:
            packed = _unhex("".join(texts))
            if packed is not None:
                return cls(np.frombuffer(packed, np.dtype((np.void, digits // 2))), digits)
        return cls(_as_bytes(texts))

    @classmethod
    def unpad(cls, padded: bytes, width: int) -> "Texts":
        """Read adjacent ASCII texts, each filled up with zero bytes to `width`. Raises ValueError."""
        text = padded.decode("ascii")
        packed = _unhex(text) if width % 2 == 0 else None
        if packed is None:
            return cls(np.frombuffer(padded, np.dtype((np.bytes_, width))))
        return cls(np.frombuffer(packed, np.dtype((np.void, width // 2))), width)

    @classmethod
    def join(cls, several: Sequence["Texts"]) -> "Texts":
        if len({(one.digits, one.content.dtype) for one in several}) <= 1:
            return cls(np.concatenate([one.content for one in several]), several[0].digits)
        plain = [_as_bytes(one.texts(slice(None))) if one.digits else one.content for one in several]
        return cls(np.concatenate(plain))

    @property
    def width(self) -> int:
        """Return the room that the longest text needs."""
        return self.digits or self.content.dtype.itemsize

    def padded(self) -> bytes:
        """Return the texts, adjacent, each filled up with zero bytes to `width`."""
        content = self.content.tobytes()
        return content.hex().encode() if self.digits else content

    def __len__(self) -> int:
        return len(self.content)

    def value(self, place: int) -> str:
        return self.texts(slice(place, place + 1))[0]

    def only(self, places: Places) -> "Texts":
        return Texts(self.content[places], self.digits)

    def texts(self, places: Places) -> list[str]:
        """Make some of them at once."""
        found = self.content[places]
        if not self.digits:
            return [one.decode() for one in found.tolist()]
        digits, joined = self.digits, found.tobytes().hex()
        return [joined[start : start + digits] for start in range(0, len(joined), digits)]

    def are(self, other: "Texts") -> npt.NDArray[np.bool_]:
        """Return for each text whether the other column has the same text in that row."""
        if self.digits and self.digits == other.digits:
            width = self.digits // 2
            ours, theirs = (
                np.ascontiguousarray(one.content).view(np.uint8).reshape(-1, width) for one in (self, other)
            )
            return np.asarray((ours == theirs).all(axis=1))
        ours, theirs = (_as_bytes(one.texts(slice(None))) if one.digits else one.content for one in (self, other))
        return np.asarray(ours == theirs)

    def are_empty(self) -> npt.NDArray[np.bool_]:
        return np.zeros(len(self), bool) if self.digits else np.asarray(self.content == b"")


def _unhex(joined: str) -> bytes | None:
    try:
        packed = bytes.fromhex(joined)
    except ValueError:
        return None
    return packed if packed.hex() == joined else None


def _as_bytes(texts: Sequence[str]) -> Numbers:
    found: Numbers = np.array([text.encode() for text in texts], dtype=np.bytes_)
    return found


def narrow(numbers: Numbers) -> Numbers:
    """Return the same numbers in the narrowest type that holds all of them."""
    if not len(numbers) or numbers.dtype.itemsize == 1 or int(numbers.min()) < 0:
        return numbers
    kind = narrowest(int(numbers.max()))
    return numbers if kind.itemsize >= numbers.dtype.itemsize else numbers.astype(kind)


def narrowest(largest: int) -> np.dtype[Any]:
    """Return the narrowest type that holds the numbers from 0 to this one."""
    return np.dtype(np.int64) if largest >= 1 << 32 else np.min_scalar_type(largest)


def same(number: int, count: int) -> Numbers:
    """Return a number repeated `count` times, in the memory of one."""
    return np.broadcast_to(narrow(np.array([number], np.int64))[0], count)


def total(numbers: Numbers) -> int:
    """Add up numbers, without overflow."""
    if not len(numbers):
        return 0
    most = max(abs(int(numbers.max())), abs(int(numbers.min())))
    return int(numbers.sum(dtype=np.int64)) if most * len(numbers) <= _LARGEST else sum(numbers.tolist())


def chunks(count: int) -> Iterator[slice]:
    """Cut a number of values into pieces of CHUNK."""
    return (slice(start, min(start + CHUNK, count)) for start in range(0, count, CHUNK))


def as_slice(places: Numbers) -> Places:
    """Return consecutive places as a slice: taking a slice copies nothing."""
    if not len(places):
        return slice(0, 0)
    first, last = int(places[0]), int(places[-1])
    follow = last - first == len(places) - 1 and bool((np.diff(places) == 1).all())
    return slice(first, last + 1) if follow else places
