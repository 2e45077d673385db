"""`archiver restore --dry-run`: its run, and its two printers."""

import argparse
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from archiver.cli.options import archive_config
from archiver.cli.output import complain, print_json, print_line, print_lines
from archiver.cli.spelling import NOTHING_ARCHIVED, table_lines
from archiver.errors import NotWholeError
from archiver.process.output.text import spell_count, spell_name, spell_size

if TYPE_CHECKING:
    from archiver.groups.positions.archived_position import ArchivedPosition
    from archiver.restore.groups.group_preview import GroupPreview
    from archiver.restore.groups.group_restore import GroupRequest
    from archiver.restore.plan.request import RestoreRequest
    from archiver.restore.report.preview import RestorePreview


def preview(options: argparse.Namespace, request: "RestoreRequest", asked: "GroupRequest | None") -> int:
    """Print the plan of a restore, and why it would be refused."""
    from archiver.config.load import load_target
    from archiver.errors import TargetError
    from archiver.groups.target.backup_groups import NAMELESS
    from archiver.process.output.progress import Progress
    from archiver.restore.groups.removed_positions import removal_warnings
    from archiver.spark.restore import preview_restore

    config = archive_config(options)
    with closing(Progress("restore", quiet=options.quiet)) as progress:
        found = preview_restore(
            config.storage,
            load_target(options.target),
            request,
            restore_id=options.id,
            select_topics=config.topics.select,
            notice=progress.report,
            groups=asked,
        )
    groups = found.groups
    if options.format == "json":
        print_json(preview_row(found) | {"groups": None if groups is None else [_group_row(one) for one in groups]})
    else:
        print_lines(preview_lines(found))
        print_lines(() if groups is None else group_lines(groups))
        print_line("nothing was changed")
    if found.skips_nameless:
        complain(NAMELESS)
    removed = [one for group in groups or () for one in group.removed]
    left = [one for one in removed if not one.is_certain]
    for warning in removal_warnings(left, (one for one in removed if one.is_certain)):
        complain(warning)
    for problem in [*found.refused, *found.damage, *found.problems]:
        complain(problem)
    for where, missing in found.missing:
        complain(f"would be skipped, not in {where}: {missing}")
    is_open = [one for one in groups or () if one.is_open]
    for group in is_open:
        complain(f"group {spell_name(group.group)} would not be set as a whole: {_unset_text(group)}")
    if groups is not None and not groups:
        complain("no group that --groups matches has an archived position; none would be set")
    if found.refused:
        return TargetError.exit_code
    is_whole = not (found.damage or found.problems or found.missing or is_open)
    return 0 if is_whole else NotWholeError.exit_code


def _group_row(group: "GroupPreview") -> dict[str, Any]:
    return {
        "group": group.group,
        "archived_group": group.source,
        "positions": group.positions,
        "not_set": {str(why): count for why, count in group.unset.items()},
        "has_members": group.has_members,
        "takes_positions": group.takes_positions,
        "removed": [_removed_row(one) for one in group.removed],
    }


def _removed_row(one: "ArchivedPosition") -> dict[str, Any]:
    return {
        "topic": one.topic,
        "partition": one.partition,
        "committed": one.offset if one.is_removed_value_known else None,
        "removed_ms": None if one.removed_ms < 0 else one.removed_ms,
        "cause": str(one.cause) or None,
        "would_be_set": one.is_certain,
    }


def group_lines(groups: "Sequence[GroupPreview]") -> Iterator[str]:
    rows = [(spell_name(one.group), f"{one.positions:,}", _unset_text(one)) for one in groups]
    yield from table_lines(("group", "positions to set", "not set"), rows)


def _unset_text(group: "GroupPreview") -> str:
    told = [f"{spell_count(count, 'position')}: {why}" for why, count in group.unset.items()]
    if not group.takes_positions:
        told.append("the target has a group of this name and of a kind without positions: give --rename-group")
    elif group.has_members:
        told.append("it has members on the target: stop its consumers first")
    return "; ".join(told)


def preview_row(preview: "RestorePreview") -> dict[str, Any]:
    return {
        "id": preview.restore_id,
        "topics": [
            {
                "source": topic.source,
                "life": topic.life,
                "target": topic.target,
                "state": _state(preview, topic.target),
                "records": topic.records,
                "repartition": topic.repartition,
                "stored_bytes": topic.stored_bytes,
                "nothing_archived": not topic.has_objects and not preview.is_partial,
                "partitions": [
                    {
                        "partition": one.partition,
                        "records": one.records,
                        "objects": len(one.parts),
                        "stored_bytes": one.stored_bytes,
                        "missing": one.missing,
                        "problem": one.problem,
                    }
                    for one in topic.partitions
                ],
            }
            for topic in preview.topics
        ],
        "refused": preview.refused,
        "problems": preview.problems,
        "damage": preview.damage,
        "notes": preview.notes,
        "may_be_refused": preview.doubts,
        "effort": {name: getattr(preview.effort, name) for name in preview.effort.__slots__},
    }


def preview_lines(preview: "RestorePreview") -> Iterator[str]:
    rows = [
        (
            topic.source,
            str(topic.life),
            topic.target,
            str(len(topic.partitions)) + ("" if topic.repartition is None else f" into {topic.repartition}"),
            f"{topic.records:,}",
            spell_size(topic.stored_bytes),
            _state(preview, topic.target),
        )
        for topic in preview.topics
    ]
    yield from table_lines(("topic", "life", "target", "partitions", "records at most", "stored", "target is"), rows)
    effort = preview.effort
    yield (
        f"restore {preview.restore_id}: {spell_count(sum(topic.records for topic in preview.topics), 'record')} at most,"
        f" {spell_count(effort.gets, 'object')} to get, {spell_count(effort.batches, 'batch', 'batches')} to send,"
        f" {spell_count(effort.puts, 'small put')}; about {effort.seconds:.0f} s on this machine, if brokers and store"
        " keep up"
    )
    yield from (f"note: {note}" for note in preview.notes)
    for topic in preview.topics:
        if not topic.has_objects and not preview.is_partial:
            yield f"note: {topic.target}: {NOTHING_ARCHIVED.format(topic.source)}"
    yield from (f"may be refused, by what is chosen of these records: {doubt}" for doubt in preview.doubts)


_THERE = {"empty": "there already", "append": "there already, and kept", "purge": "there already, and would be purged"}


def _state(preview: "RestorePreview", target: str) -> str:
    if target in preview.begun:
        return "begun with"
    return _THERE[preview.policy] if target in preview.existing else "new"
