"""Whether other groups have positions in the restored topics, where `--groups` matches none: an expression with a slip would lose them all."""

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from archiver.archive.handle import Archive
from archiver.groups.own_group import archivers_groups
from archiver.groups.shown import show_groups
from archiver.process.text import spell_count
from archiver.restore.group_restore import GroupRequest

_MOST_NAMED: Final = 20
_LONGEST_NAME: Final = 255


def unmatched_problem(archive: Archive, asked: GroupRequest, sources: Collection[str]) -> str:
    """Say which groups there are in the source topics of a restore; empty: none, by the archive, so nothing is missed.

    It is for a request that matches no group, and reads all positions once more.
    """
    topics = [one for one in sources if asked.wanted.topics.fullmatch(one)] or list(sources)
    groups = _groups_in(archive, asked, topics) if topics else []
    if not groups:
        return ""
    named = ", ".join(
        name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…" for name in groups[:_MOST_NAMED]
    )
    more = f" and {len(groups) - _MOST_NAMED:,} more" if len(groups) > _MOST_NAMED else ""
    have = spell_count(len(groups), "group has", "groups have")
    return (
        f"--groups {asked.wanted.groups.pattern!r} matches none of those that the archive has: {have} positions in the restored"
        f" topics: {named}{more}. Run the command again with an expression that matches the whole name of each wanted group"
    )


def _groups_in(archive: Archive, asked: GroupRequest, topics: Collection[str]) -> Sequence[str]:
    """Name the groups, but the archiver's own. What cannot be read was told when the wanted positions were read."""
    named = re.compile("|".join(map(re.escape, sorted(topics))))
    wanted = replace(asked.wanted, groups=re.compile(".*", re.DOTALL), topics=named)
    found = show_groups(archive, wanted, asked.config.storage.index, lambda _: None)
    positions = [one.position for one in found.positions]
    return sorted({one.group for one in positions} - archivers_groups(asked.config, positions))
