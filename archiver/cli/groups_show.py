"""`archiver groups show`: its options, its run, and its two printers."""

import argparse
import asyncio
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from archiver.cli.chosen_positions import add_chosen_positions, wanted_positions
from archiver.cli.options import add_archive, add_format, add_run, archive_config
from archiver.cli.output import complain, print_json, print_lines
from archiver.cli.spelling import moment, moment_from, table_lines
from archiver.errors import NotWholeError
from archiver.process.output.text import printable, spell_count, spell_name

if TYPE_CHECKING:
    from archiver.archive.format.handle import Archive
    from archiver.config.model import ArchiverConfig
    from archiver.groups.log.archived_log import OffsetsLog
    from archiver.groups.log.live_logs import LiveLog
    from archiver.groups.positions.shown import ShownGroups, ShownPosition

LiveLogs = Mapping[int, "LiveLog"]  # by partition
_LIVES = {-1: "not archived", -2: "ambiguous"}
_REMARKS = {
    "set": "",
    "topic deleted": "removed with its topic, or as the last one in it",
    "ambiguous": "ambiguous: in which of the topics that had this name",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    add_run(parser, run)
    add_archive(parser)
    add_format(parser)
    add_chosen_positions(parser)
    parser.add_argument(
        "--against-kafka",
        action="store_true",
        help="also ask the cluster where __consumer_offsets ends now, and which open transaction holds a partition back",
    )


def run(options: argparse.Namespace) -> int:
    config = archive_config(options)  # before the kernels are imported, which may compile them

    from archiver.archive.format.handle import open_archive
    from archiver.groups.positions.shown import show_groups

    problems: list[str] = []
    archive = open_archive(config.storage)
    live = _ask_kafka(config, archive) if options.against_kafka else None
    found = show_groups(archive, wanted_positions(options), config.storage.index, problems.append)
    if options.format == "json":
        print_json(groups_row(found, problems, live))
    else:
        print_lines(groups_lines(found, live))
    if not found.positions:
        complain("no group has an archived position as of then that --groups and --topics match")
    for problem in problems:
        complain(problem)
    return NotWholeError.exit_code if problems else 0


def _ask_kafka(config: "ArchiverConfig", archive: "Archive") -> LiveLogs:
    from archiver.archive.notes.topics import read_cluster
    from archiver.groups.log.live_logs import survey_live_logs
    from archiver.kafka.login.settings import KafkaSettings

    settings = KafkaSettings.of(config)
    return {log.partition: log for log in asyncio.run(survey_live_logs(settings, read_cluster(archive)))}


def groups_row(found: "ShownGroups", problems: list[str], live: LiveLogs | None = None) -> dict[str, Any]:
    return {
        "positions": [position_row(one) for one in found.positions],
        "offsets_partitions": [_log_row(log) for log in found.logs],
        "snapshot_ms": found.snapshot_ms,
        "missing_in_snapshot": [
            {"group": group, "told_by_snapshot_ms": at_ms} for group, at_ms in found.missing.items()
        ],
        **({} if live is None else {"live_offsets_partitions": [_live_row(log) for log in live.values()]}),
        "problems": problems,
    }


def position_row(one: "ShownPosition") -> dict[str, Any]:
    position = one.position
    stood = position.has_stood
    return {
        "group": position.group,
        "topic": position.topic,
        "life": None if position.life < 0 else position.life,
        "topic_is": _LIVES.get(position.life, "archived"),
        "partition": position.partition,
        "state": str(position.state),
        "offset": position.offset if stood else None,
        "leader_epoch": position.leader_epoch if stood and position.leader_epoch >= 0 else None,
        "snapshot_ms": position.at_ms if position.source == "snapshot" and position.at_ms >= 0 else None,
        "or_offset": None if position.other_offset < 0 else position.other_offset,
        "or_ms": None if position.other_ms < 0 else position.other_ms,
        "metadata": position.metadata if stood else None,
        "committed_ms": position.commit_ms if stood and position.commit_ms >= 0 else None,
        "removed_ms": None if position.removed_ms < 0 else position.removed_ms,
        "cause": str(position.cause) or None,
        "known_from_ms": None if position.known_from_ms < 0 else position.known_from_ms,
        "lag": one.lag,
        "beyond_archive": one.beyond,
        "source": str(position.source),
    }


def _log_row(log: "OffsetsLog") -> dict[str, Any]:
    return {
        "life": log.life,
        "partition": log.partition,
        "next": log.next,
        "first_ms": log.first_ms,
        "last_ms": log.last_ms,
        "other_records": log.rows.others,
    }


def _live_row(log: "LiveLog") -> dict[str, Any]:
    return {
        "partition": log.partition,
        "end": log.end,
        "last_stable": log.last_stable,
        "transactions": [
            {
                "producer_id": one.producer_id,
                "transactional_id": one.transactional_id or None,
                "start_offset": one.start_offset,
                "last_ms": one.last_timestamp_ms,
            }
            for one in log.transactions
        ],
        "problem": log.problem or None,
    }


def groups_lines(found: "ShownGroups", live: LiveLogs | None = None) -> Iterator[str]:
    yield from table_lines(
        ("group", "topic", "partition", "offset", "lag", "committed", "from", ""),
        [_position_cells(one) for one in found.positions],
    )
    groups = len({one.position.group for one in found.positions})
    yield f"{spell_count(len(found.positions), 'position')} of {spell_count(groups, 'group')}"
    held = max((log.life for log in found.logs), default=0)
    for log in found.logs:
        if log.life != held:
            yield f"{_log_name(log.life, log.partition)}: {_archived_text(log)}"
    archived = {log.partition: log for log in found.logs if log.life == held}
    for number in sorted({*archived, *(live or {})}):
        told = [_archived_text(archived.get(number)), *([] if live is None else _live_texts(live.get(number)))]
        yield f"{_log_name(held, number)}: {'; '.join(told)}"
    if found.snapshot_ms is not None:
        yield f"the newest snapshot of positions is of {moment(found.snapshot_ms)}"
    for group, at_ms in found.missing.items():
        told_by = "no earlier snapshot tells of it" if at_ms is None else f"told by the snapshot of {moment(at_ms)}"
        yield f"the newest snapshot does not tell of group {printable(spell_name(group))}: {told_by}"


def _log_name(life: int, partition: int) -> str:
    return f"__consumer_offsets{f'@{life}' if life else ''}-{partition}"


def _archived_text(log: "OffsetsLog | None") -> str:
    if log is None:
        return "not archived"
    if log.last_ms is None:
        return f"archived up to offset {log.next}, and nothing of it can be read"
    others = log.rows.others
    skipped = f"; {spell_count(others, 'record')} of other kinds skipped" if others else ""
    return f"archived up to offset {log.next}, of {moment(log.last_ms)}{skipped}"


def _live_texts(log: "LiveLog | None") -> Iterator[str]:
    if log is None:
        yield "the cluster does not have it"
        return
    yield f"the log ends at {log.end}"
    if log.last_stable < log.end:
        yield f"held back at {log.last_stable}" + "".join(
            f" by a transaction of {one}, last written to at {moment(one.last_timestamp_ms)}"
            for one in log.transactions[:1]
        )
    if log.problem:
        yield f"by which transaction is not known: {log.problem}"


def _position_cells(one: "ShownPosition") -> tuple[str, ...]:
    position = one.position
    topic = position.topic + (f"@{position.life}" if position.life > 0 else "")
    stood = position.has_stood
    return (
        printable(spell_name(position.group)),
        printable(topic),
        str(position.partition),
        str(position.offset) if stood else "?",
        "" if one.lag is None else f"{one.lag:,}",
        moment(position.commit_ms) if stood and position.commit_ms >= 0 else "",
        position.source,
        "; ".join(_remarks(one)),
    )


def _remarks(one: "ShownPosition") -> Iterator[str]:
    position = one.position
    state = str(position.state)
    if position.other_ms >= 0:
        there = "elsewhere" if position.other_offset < 0 else f"at {position.other_offset}"
        yield f"ambiguous: {'nowhere' if position.offset < 0 else f'at {position.offset}'}, or already {there}, of {moment(position.other_ms)}"
    elif remark := _REMARKS.get(state, state):
        yield remark + (f" ({position.cause})" if state == "removed" and position.cause != "unknown" else "")
    if position.known_from_ms >= 0:
        yield f"known from {moment_from(position.known_from_ms)} on"
    if one.beyond is not None:
        yield f"{spell_count(one.beyond, 'offset')} beyond the end of the archive"
    if position.life == -1:
        yield "its topic is not archived"
