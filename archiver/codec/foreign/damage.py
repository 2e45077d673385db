"""DamagedInput: bytes of another tool's file that its decoder could not read. Decoders yield it among the frames."""

from typing import Final, NamedTuple

NO_OFFSETS: Final = 0  # `until` of damage that is only reported: which offsets are missing, if any, is unknown


class DamagedInput(NamedTuple):
    """Bytes that are left out, from `start` on and before `end`."""

    start: int
    end: int
    reason: str
