"""`archiver cat`: its options, and its run. It has one printer: records are always printed as JSON lines."""

import argparse
import threading
from itertools import islice
from typing import TYPE_CHECKING

from archiver.cli.options import (
    add_archive,
    add_copies,
    add_life,
    add_run,
    add_times,
    archive_config,
    copy_choice,
    natural,
    topic_name,
)
from archiver.cli.output import complain, write
from archiver.errors import NotWholeError, UsageError
from archiver.process.output.text import printable_json

if TYPE_CHECKING:
    from archiver.archive.copies.archived_topic import ArchivedTopic
    from archiver.codec.selection import Selection


FOLLOW_PAUSE_S = 5.0


def add_options(parser: argparse.ArgumentParser) -> None:
    add_run(parser, run)
    add_archive(parser)
    parser.add_argument("topic", type=topic_name, metavar="TOPIC")
    parser.add_argument("--partition", type=natural, help="print this partition only")
    parser.add_argument("--from-offset", type=natural, metavar="N", help="leave out records below this offset")
    parser.add_argument("--until-offset", type=natural, metavar="N", help="leave out records above this offset")
    parser.add_argument("--key", metavar="TEXT", help="print only records with this key, in UTF-8")
    add_times(parser)
    add_life(parser)
    add_copies(parser)
    parser.add_argument("--limit", type=natural, metavar="N", help="stop after N records")
    parser.add_argument(
        "--follow", action="store_true", help="go on with records that are archived later, until Ctrl-C"
    )


def run(options: argparse.Namespace) -> int:
    storage = archive_config(options).storage  # before the kernels are imported, which may compile them

    from archiver.archive.format.handle import open_archive
    from archiver.archive.reading.catalog import find_topic
    from archiver.archive.reading.plain_records import follow_records, json_pieces, read_records, spell_bytes, wanted_of

    archive = open_archive(storage)
    problems: list[str] = []

    def report_problem(problem: str) -> None:
        problems.append(problem)
        complain(problem)

    if options.follow and options.life is not None:
        raise UsageError("--follow goes with the newest life: nothing comes to the others any more")
    selection = _selection(options)
    if options.follow:
        records = follow_records(
            archive,
            options.topic,
            report_problem=report_problem,
            pause=lambda: threading.Event().wait(FOLLOW_PAUSE_S),
            partition=options.partition,
            selection=selection,
            choice=copy_choice(options),
            use=storage.index,
        )
    else:
        reads = wanted_of(options.partition, selection)
        topic = find_topic(
            archive,
            options.topic,
            options.life,
            choice=copy_choice(options),
            use=storage.index,
            reads=reads,
            report_problem=report_problem,
        )
        _complain_of(topic, is_newest=options.life is None)
        records = read_records(
            archive.store, topic, report_problem=report_problem, partition=options.partition, selection=selection
        )
    if options.key is not None:
        key = spell_bytes(options.key.encode())
        records = (record for record in records if record["key"] == key)
    try:
        for record in islice(records, options.limit):
            if not all(write(printable_json(piece), end="") for piece in json_pieces(record)):
                break  # the reader has closed the pipe, and wants no more
            if not write("", flush=options.follow):
                break
    except KeyboardInterrupt:
        if not options.follow:  # with --follow Ctrl-C is the normal end
            raise
    return NotWholeError.exit_code if problems else 0


def _complain_of(topic: "ArchivedTopic", *, is_newest: bool) -> None:
    for note in topic.notes:
        complain(note)
    if topic.other_lives and is_newest:
        others = ", ".join(map(str, topic.other_lives))
        complain(f"{topic.topic}: this is its life {topic.life}; the archive also has life {others} (--life)")


def _selection(options: argparse.Namespace) -> "Selection":
    from archiver.codec.selection import Selection
    from archiver.config.quantities import parse_moment_ms

    given = {
        "first_offset": options.from_offset,
        "last_offset": options.until_offset,
        "from_ms": None if options.from_time is None else parse_moment_ms("--from", options.from_time),
        "until_ms": None if options.until_time is None else parse_moment_ms("--until", options.until_time),
    }
    selection = Selection(**{name: number for name, number in given.items() if number is not None})
    if selection.is_empty:
        raise UsageError("the range ends before it begins; see --from-offset, --until-offset, --from and --until")
    return selection
