"""`archiver compacted status`: its options, its run, and its two printers."""

import argparse
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from archiver.cli.options import add_archive, add_format, add_run, archive_config, pattern
from archiver.cli.output import complain, print_json, print_lines
from archiver.cli.spelling import moment, table_lines
from archiver.errors import NotWholeError
from archiver.process.output.text import spell_count, spell_size

if TYPE_CHECKING:
    from archiver.archive.copies.roles import Generation, Holder
    from archiver.backup.compacted.clearing.alarms import Alarm
    from archiver.backup.compacted.clearing.status import CompactedStatus, GenerationStatus, PartitionStatus


def add_options(parser: argparse.ArgumentParser) -> None:
    add_run(parser, run)
    add_archive(parser)
    add_format(parser)
    parser.add_argument("--topics", metavar="REGEX", default=".*", help="full-match regular expression (default: all)")
    parser.add_argument(
        "--against-kafka",
        action="store_true",
        help="also ask the cluster where the logs begin and end, and each object of a copy what it covers",
    )


def run(options: argparse.Namespace) -> int:
    from archiver.archive.format.handle import open_archive
    from archiver.archive.format.store_clock import epoch_ms
    from archiver.backup.compacted.clearing.alarms import alarms_in
    from archiver.backup.compacted.clearing.live_logs import asker_of
    from archiver.backup.compacted.clearing.status import StatusReader
    from archiver.kafka.login.settings import KafkaSettings

    config, topics = archive_config(options), pattern("--topics", options.topics)
    archive, ask = open_archive(config.storage), None
    if options.against_kafka:
        settings = KafkaSettings.of(config)
        ask = asker_of(archive, settings, lambda error: complain(f"{error}; its lag is not known"))
    now_ms = epoch_ms(datetime.now(UTC))
    status = StatusReader(archive, config, now_ms, ask, takes_noted=options.url is not None).read(topics)
    alarms = list(alarms_in(status))
    if options.format == "json":
        print_json(status_row(status, alarms))
    else:
        print_lines(status_lines(status))
    for alarm in alarms:
        complain(alarm.text)
    return NotWholeError.exit_code if alarms else 0


def status_row(status: "CompactedStatus", alarms: "list[Alarm]") -> dict[str, Any]:
    return {
        "partitions": [_partition_row(one) for one in status.partitions],
        "instances": [{"instance": name, "heard_ms": heard_ms} for name, heard_ms in status.heard_ms.items()],
        "limits": status.limits,
        "without_role": [{"topic": place.topic, "partition": place.partition} for place in status.missing],
        "alarms": [
            {
                "kind": str(alarm.kind),
                "topic": alarm.place and alarm.place.topic,
                "life": alarm.place and alarm.place.life,
                "partition": alarm.place and alarm.place.partition,
                "text": alarm.text,
            }
            for alarm in alarms
        ],
    }


def _partition_row(one: "PartitionStatus") -> dict[str, Any]:
    return {
        "topic": one.place.topic,
        "life": one.place.life,
        "partition": one.place.partition,
        "is_live": one.is_live,
        "entry": one.number,
        "entry_type": one.type and str(one.type),
        "holder": _holder_row(one.holder),
        "active_since_ms": one.since_ms,
        "unsure_since_ms": one.unsure_ms,
        "replaced": _holder_row(one.replaced),
        "candidate": one.candidate and _generation_row(one.candidate),
        "candidate_since_ms": one.candidate_ms,
        "next_turn_ms": one.due_ms,
        "reached": one.reached,
        "lag": one.lag,
        "log_start": one.log.log_start if one.log and one.lag is not None else None,
        "log_end": one.log.log_end if one.log and one.lag is not None else None,
        "generations": [_standing_row(found) for found in one.generations],
        "problem": one.problem or None,
    }


def _generation_row(generation: "Generation") -> dict[str, Any]:
    return {"instance": generation.instance, "generation": generation.number}


def _holder_row(holder: "Holder") -> dict[str, Any] | str | None:
    if holder is None or isinstance(holder, str):
        return holder
    told = {"next": holder.next, "position": holder.position, "is_sure": holder.is_sure}
    return {**_generation_row(holder.generation), **told}


def _standing_row(one: "GenerationStatus") -> dict[str, Any]:
    return {
        **_generation_row(one.generation),
        "role": one.role,
        "since_ms": one.since_ms,
        "objects": one.objects,
        "bytes": one.bytes,
        "heard_ms": one.heard_ms,
        "moment_ms": one.moment_ms,
        "kept": list(one.kept),
    }


def status_lines(status: "CompactedStatus") -> Iterator[str]:
    yield from table_lines(
        (
            "topic",
            "partition",
            "active",
            "since",
            "position",
            "sure",
            "lag",
            "catches up",
            "next turn",
            "copies",
            "size",
        ),
        [_cells(one) for one in status.partitions],
    )
    topics = len({one.place.topic for one in status.partitions})
    yield f"{spell_count(len(status.partitions), 'partition')} of {spell_count(topics, 'topic')}"
    for instance, heard_ms in status.heard_ms.items():
        yield f"instance {instance}: {'never heard of' if heard_ms is None else f'last heard of at {moment(heard_ms)}'}"
    yield f"limits: {status.limits}"
    for one in status.partitions:
        for found in one.generations:
            if found.role == "left":
                why = "; ".join(found.kept) or "goes with the next clearing"
                yield f"{_name(one)}: generation {found.generation.number} of {found.generation.instance}: {why}"


def _name(one: "PartitionStatus") -> str:
    from archiver.backup.compacted.clearing.alarms import name_of

    return name_of(one.place)


def _cells(one: "PartitionStatus") -> tuple[str, ...]:
    topic = one.place.topic + (f"@{one.place.life}" if one.place.life else "")
    if one.problem:
        return topic, str(one.place.partition), "?", *[""] * 8
    return (
        topic,
        str(one.place.partition),
        *_holder_cells(one),
        "" if one.lag is None else f"{one.lag:,}",
        str(one.candidate or ""),
        "" if one.due_ms is None else moment(one.due_ms),
        str(len(one.generations)),
        spell_size(sum(found.bytes for found in one.generations)),
    )


def _holder_cells(one: "PartitionStatus") -> tuple[str, str, str, str]:
    """Return the active instance, its start, its position, and its certainty."""
    since = "" if one.since_ms is None else moment(one.since_ms)
    match one.holder:
        case None:
            return "nobody", since, "", ""
        case str(history):
            return history, since, "", ""
        case copy:
            position = copy.position if one.reached is None else one.reached
            return str(copy.generation), since, str(position), "yes" if copy.is_sure else "no"
