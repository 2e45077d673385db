"""`archiver topics`: its options, its run, and its two printers."""

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from archiver.cli.options import add_config, add_format, add_run
from archiver.cli.output import complain, print_json, print_lines
from archiver.cli.spelling import table_lines
from archiver.errors import KafkaError, NotWholeError

if TYPE_CHECKING:
    from archiver.archive.notes.cluster_topics import IncludeEntry, TopicRow, TopicsSurvey


def add_options(parser: argparse.ArgumentParser) -> None:
    add_run(parser, run)
    add_config(parser)
    add_format(parser)
    parser.add_argument(
        "--accept-gone",
        action="append",
        default=[],
        metavar="NAME",
        help="note that this archived topic was deleted on purpose: it is reported no longer, until it is seen again (may be repeated)",
    )


def run(options: argparse.Namespace) -> int:
    from archiver.archive.notes.cluster_topics import ArchivingState, survey_topics
    from archiver.config.load import load_with_optional_storage

    config, has_storage = load_with_optional_storage(options.config)
    found = survey_topics(config, options.accept_gone, has_storage=has_storage)
    if options.format == "json":
        print_json(topics_row(found))
    else:
        print_lines(topics_lines(found))
    if found.unread is not None:
        complain(f"{found.unread}; so what the archive has is not known")
    refused = [row for row in found.rows if row.standing is ArchivingState.REFUSED]
    for row in refused:
        complain(row.why)
    for one in found.unmatched:
        complain(one.unmatched)
    lost = [row for row in found.rows if row.is_lost]
    for row in lost:
        complain(f"{row.topic}: is archived, and Kafka no longer has it; if it may be gone: --accept-gone {row.topic}")
    return max(
        0 if found.unread is None else found.unread.exit_code,
        KafkaError.exit_code if refused else 0,
        NotWholeError.exit_code if found.unmatched or lost else 0,
    )


def topics_lines(found: "TopicsSurvey") -> Iterator[str]:
    rows = [
        (
            row.topic,
            "?" if row.partitions is None else str(row.partitions),
            "?" if row.in_archive is None else "yes" if row.in_archive else "",
            row.standing,
            f"{row.why} (accepted)" if row.is_accepted_gone else row.why,
        )
        for row in found.rows
    ]
    return table_lines(("topic", "partitions", "in archive", "is", "by"), rows)


def topics_row(found: "TopicsSurvey") -> dict[str, Any]:
    return {
        "topics": [_topic_row(row) for row in found.rows],
        "unmatched": [_entry_row(one) for one in found.unmatched],
    }


def _topic_row(row: "TopicRow") -> dict[str, Any]:
    return {
        "topic": row.topic,
        "partitions": row.partitions,
        "standing": row.standing,
        "why": row.why,
        "include": [_entry_row(one) for one in row.include],
        "exclude": [_entry_row(one) for one in row.exclude],
        "in_archive": row.in_archive,
        "accepted_gone": row.is_accepted_gone,
    }


def _entry_row(one: "IncludeEntry") -> dict[str, str]:
    return {"entry": one.entry, "place": one.place}
