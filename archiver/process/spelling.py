"""Counts, sizes and tables as they are read."""

from collections.abc import Iterator, Sequence


def spell_count(count: int, one: str, many: str = "") -> str:
    """Write a count with its noun: `1 topic`, `12,345 topics`. `many` is for nouns, or verbs behind them, that take more than an s."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


def spell_size(count: int) -> str:
    """Write a number of bytes so that it can be read at a glance."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def spell_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Lines with columns as wide as the widest cell."""
    widths = [max(len(row[index]) for row in (head, *rows)) for index in range(len(head))]
    for row in (head, *rows):
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
