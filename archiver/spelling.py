"""Counts as they are read."""


def spell_count(count: int, one: str, many: str = "") -> str:
    """Write a count with its noun: `1 topic`, `12,345 topics`. `many` is for nouns, or verbs behind them, that take more than an s."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"
