"""Parses sizes, durations and times in people's spelling, and spells them for the same parsers."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from archiver.errors import UsageError

MEBIBYTE: Final = 1024 * 1024
_SIZE_UNITS: Final = {"B": 1, "kB": 1000, "KB": 1000, "MB": 1000**2, "GB": 1000**3, "TB": 1000**4}
_SIZE_UNITS_BINARY: Final = {"KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "TiB": 1024**4}
# No "m": some mean minutes, others months.
_DURATION_UNITS_MS: Final = {"ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


def parse_size_bytes(text: str | int) -> int:
    """Parse a number of bytes: `64MiB`, `1.5 GB`, `4096`."""
    units = _SIZE_UNITS | _SIZE_UNITS_BINARY
    return _parse_quantity(str(text), units, default_unit="B", example="64MiB")


def parse_duration_ms(text: str | int) -> int:
    """Parse a duration to milliseconds: `5min`, `7d`, `1.5h`. Only 0 needs no unit."""
    return _parse_quantity(str(text), _DURATION_UNITS_MS, default_unit="", example="5min")


def _parse_quantity(text: str, units: Mapping[str, int], *, default_unit: str, example: str) -> int:
    match = re.fullmatch(r"(\d+)(?:\.(\d{1,9}))?\s*([A-Za-z]*)", text.strip(), re.ASCII)
    unit = (match[3] or default_unit) if match else ""
    if match and not match[3] and float(match[0]) == 0:
        return 0
    if match is None or unit not in units:
        raise ValueError(f"is not like {example} (units: {', '.join(units)})")
    whole, fraction = match[1], match[2] or ""
    scale: int = 10 ** len(fraction)
    amount, rest = divmod(int(whole + fraction) * units[unit], scale)
    if rest:
        raise ValueError("is not a whole number of the smallest unit")
    return amount


def spell_exact_size(size: int) -> str:
    """Spell a size for parse_size_bytes."""
    for unit, factor in reversed(_SIZE_UNITS_BINARY.items()):
        if size and size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)


def spell_exact_duration(duration_ms: int) -> str:
    """Spell a duration for parse_duration_ms."""
    for unit, factor in reversed(_DURATION_UNITS_MS.items()):
        if duration_ms and duration_ms % factor == 0:
            return f"{duration_ms // factor}{unit}"
    return str(duration_ms)


def spell_time(time_ms: int) -> str:
    """Spell a time for parse_time_ms."""
    try:
        moment = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=time_ms)
    except OverflowError:  # the time is after the year 9999
        return str(time_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_start(text: str | int) -> str | int:
    """Parse `earliest`, `latest`, or a time: ISO 8601 with a zone, or milliseconds since the epoch."""
    plain = str(text).strip()
    try:
        return plain if plain in {"earliest", "latest"} else parse_time_ms(plain)
    except OverflowError as error:
        raise ValueError("is no time that there can be") from error


def parse_time_ms(text: str) -> int:
    """Parse `2026-11-20T14:00:00Z`, `...+02:00`, or milliseconds since the epoch. A time without a zone is refused.

    So is a number that means a time before 1973: it is more likely a year, a date (20261120) or seconds. 0 is accepted.
    """
    if re.fullmatch(r"\d{1,18}", text, re.ASCII):
        if 0 < int(text) < 10**11:
            raise ValueError("is before 1973 as milliseconds since 1970; write a time like 2026-11-20T14:00:00Z")
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError("is not a time like 2026-11-20T14:00:00Z") from error
    if moment.tzinfo is None:
        raise ValueError("has no zone; write 2026-11-20T14:00:00Z or +02:00")
    return (moment - datetime.fromtimestamp(0, UTC)) // timedelta(milliseconds=1)


def parse_moment_ms(option: str, text: str) -> int:
    """Parse a time of the command line, as parse_time_ms does. Raises UsageError."""
    try:
        return parse_time_ms(text)
    except (ValueError, OverflowError) as error:
        raise UsageError(f"{option}: {text!r} {error}, or -2h") from error
