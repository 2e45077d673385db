"""DamagedInput: bytes of another tool's file that its decoder could not read. Decoders yield it among the frames."""

from typing import NamedTuple


class DamagedInput(NamedTuple):
    """Bytes that are left out, from `start` on and before `end`."""

    start: int
    end: int
    reason: str
