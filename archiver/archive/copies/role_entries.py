"""Builds role log entries of the four kinds, each from the entry before it."""

from dataclasses import replace

from archiver.archive.copies.roles import (
    HISTORY,
    MOST_LEFT,
    CompleteCopy,
    EntryType,
    Generation,
    Left,
    RoleEntry,
)

_NOBODY = RoleEntry(
    type=EntryType.HISTORY, instance="", holder=None, switched=None, broke=None, replaced=None, candidate=None, left=()
)


def begin(before: RoleEntry | None, number: int, instance: str, *, has_history: bool) -> RoleEntry:
    """A generation begins. Before the first one, the history under `topics/` is current, if it exists."""
    before = before or _first(has_history=has_history)
    given_up = before.open_candidate
    return replace(
        before,
        type=EntryType.BEGIN,
        instance=instance,
        candidate=Generation(instance=instance, number=number),
        left=_left_with(before.left, given_up, number),
    )


def switch(before: RoleEntry, number: int, copy: CompleteCopy) -> RoleEntry:
    """The candidate's copy becomes current. Without a current copy, readers had the history under `topics/`."""
    return replace(
        before,
        type=EntryType.SWITCH,
        instance=copy.generation.instance,
        holder=copy,
        switched=number,
        broke=None,
        replaced=before.holder or HISTORY,
        left=_left_with(before.left, before.current, number),
    )


def unsure(before: RoleEntry, number: int, instance: str) -> RoleEntry:
    """The current copy may have values whose tombstones it has missed."""
    holder = replace(before.copy, is_sure=False) if before.copy else before.holder
    return replace(before, type=EntryType.UNSURE, instance=instance, holder=holder, broke=number)


def history(before: RoleEntry, number: int, instance: str) -> RoleEntry:
    """The history under `topics/` becomes current again: the topic is no longer compacted. A candidate is given up."""
    gone = _left_with(before.left, before.open_candidate, number)
    return replace(
        before,
        type=EntryType.HISTORY,
        instance=instance,
        holder=HISTORY,
        switched=number,
        broke=None,
        replaced=before.holder,
        candidate=None,
        left=_left_with(gone, before.current, number),
    )


def _first(*, has_history: bool) -> RoleEntry:
    return replace(_NOBODY, holder=HISTORY, switched=0) if has_history else _NOBODY


def _left_with(left: tuple[Left, ...], generation: Generation | None, since: int) -> tuple[Left, ...]:
    """Add a generation. The oldest ones are forgotten: one that still exists counts as left since it was begun."""
    return left if generation is None else (*left, Left(generation=generation, since=since))[-MOST_LEFT:]
