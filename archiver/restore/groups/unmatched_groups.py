"""Finds other groups with positions in the restored topics if `--groups` matches none: a typing error would lose them all."""

from collections.abc import Collection, Sequence
from typing import Final

from archiver.archive.format.handle import Archive
from archiver.groups.positions.shown import read_all_groups
from archiver.groups.target.backup_groups import groups_left_out
from archiver.process.output.text import spell_count, spell_name, spell_some
from archiver.restore.groups.group_restore import GroupRequest

_MOST_NAMED: Final = 20


def unmatched_problem(archive: Archive, asked: GroupRequest, sources: Collection[str]) -> str:
    """Name the archived groups of the source topics of a restore; empty: no group, so nothing is missed.

    For a request that matches no group. Reads all positions once more.
    """
    asked_for = [one for one in sources if asked.wanted.topics.fullmatch(one)]
    groups = _groups_in(archive, asked, asked_for or sources) if sources else []
    if not groups:
        return ""
    if not asked_for:
        return (
            f"--topics {asked.wanted.topics.pattern!r} matches none of the restored topics: {_named(sorted(sources))}. Run the"
            " command again with an expression that matches the whole name of each wanted topic, as the archive has it"
        )
    have = spell_count(len(groups), "group has", "groups have")
    return (
        f"--groups {asked.wanted.groups.pattern!r} matches none of those that the archive has: {have} positions in the restored"
        f" topics: {_named(groups)}. Run the command again with an expression that matches the whole name of each wanted group"
    )


def _named(names: Sequence[str]) -> str:
    return spell_some([*map(spell_name, names)], _MOST_NAMED)


def _groups_in(archive: Archive, asked: GroupRequest, topics: Collection[str]) -> Sequence[str]:
    """Name the groups, but the archiver's own."""
    positions = read_all_groups(archive, asked.wanted, topics, asked.config.storage.index)
    return sorted({one.group for one in positions} - groups_left_out(asked.config, positions))
