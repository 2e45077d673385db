"""Spells moments, tables, and lists that are too long for a terminal, for the printers of several commands."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain, islice
from typing import Any, Final

from archiver.process.output.text import WIDEST, spell_cell, spell_count

# Lines of a list on a terminal. JSON has the whole list.
MOST_LISTED: Final = 1000
NOTHING_ARCHIVED: Final = "nothing of {} is archived: either it had no record, or no backup could read it, which `archiver backup --until-end` says"
_ROWS_MEASURED = 1000


def table_lines(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], spell: Callable[[str], str] = spell_cell
) -> Iterator[str]:
    """Yield rows at once, in columns as wide as the first rows need; wider cells overflow. `spell`: texts."""
    lines = ([spell(_cell(value)) for value in row] for row in rows)
    seen = [[_line(name) for name in columns], *islice(lines, _ROWS_MEASURED)]
    widths = [min(WIDEST, max(map(len, cells))) for cells in zip(*seen, strict=True)]
    for line in chain(seen, lines):
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


def _cell(value: Any) -> str:  # noqa: ANN401 - any that JSON can hold
    match value:
        case None:
            return "NULL"
        case str():
            return _line(value)
        case {"utf8": str(text), **others} if not others:
            return _line(text)
        case {"base64": str(text), **others} if not others:
            return f"base64 {text}"
        case _:
            return json.dumps(value, ensure_ascii=False)


def _line(text: str) -> str:
    """Escape characters that would break the line, or act on a terminal."""
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text) if not text.isprintable() else text


def left_out_lines(count: int, what: str) -> Iterator[str]:
    if count > 0:
        yield f"... and {spell_count(count, f'more {what}')}"


def put_moment(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def moment_from(timestamp_ms: int) -> str:
    """Spell the first whole second that is not earlier: typed in a command, it must not mean an earlier time."""
    return moment(-(-timestamp_ms // 1000) * 1000)


def moment(timestamp_ms: int) -> str:
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)  # a timestamp may be any 64-bit value
