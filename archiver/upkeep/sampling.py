"""Selects the objects that `verify --sample` reads: another part each day, so that all parts together are the whole archive."""

import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from archiver.archive.segments.partition_segments import Segment, segment_blocks
from archiver.config.quantities import parse_size_bytes
from archiver.process.values.columns import Chain, as_slice, total

_PART: Final = re.compile(r"([1-9][0-9]{0,4}|100000)/([1-9][0-9]{0,4}|100000)")
_PERCENT: Final = re.compile(r"(100|[0-9]{1,2}(?:\.[0-9]{1,3})?)%")
_DAY_MS: Final = 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class SamplePart:
    """One of `count` parts, numbered from 1. The hash of an object's key decides its part, so later objects move no other one."""

    number: int
    count: int

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    def has(self, key: str) -> bool:
        digest = hashlib.blake2b(key.encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") % self.count == self.number - 1

    def choose(self, segments: Sequence[Segment]) -> Sequence[Segment]:
        """Return the segments of this part."""
        return Chain(
            some.only(as_slice(np.flatnonzero(np.fromiter(map(self.has, some.object_keys()), bool, len(some)))))
            for some in segment_blocks(segments)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The requested size of a part: a number of parts, or bytes. `number`: the requested part; None: that of the day."""

    count: int = 0
    number: int | None = None
    size: int = 0

    @classmethod
    def parse(cls, text: str) -> "Sample":
        """Parse `5%`, `3/30`, or a size such as `50GiB`. Raises ValueError."""
        part, percent = _PART.fullmatch(text), _PERCENT.fullmatch(text)
        if part is not None and int(part[1]) <= int(part[2]):
            return cls(count=int(part[2]), number=int(part[1]))
        if percent is not None and float(percent[1]):
            return cls(count=math.ceil(100 / float(percent[1])))
        size = 0 if text.isdecimal() or "/" in text or "%" in text else parse_size_bytes(text)
        if not size:
            raise ValueError("is no part; give one such as 5%, 3/30 or 50GiB, of at most 100,000 parts")
        return cls(size=size)

    def part(self, segments: Sequence[Segment], now_ms: int) -> SamplePart:
        """Return the part to read now.

        A size gives a power of two as the number of parts: it changes only when the archive has doubled.
        """
        count = self.count
        if not count:
            stored = sum(total(some.numbers("size")) for some in segment_blocks(segments))
            count = 1 << (max(1, -(-stored // self.size)) - 1).bit_length()
        return SamplePart(now_ms // _DAY_MS % count + 1 if self.number is None else self.number, count)
