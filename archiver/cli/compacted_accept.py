"""`archiver compacted accept`: its options, its run, and its printer."""

import argparse
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from archiver.cli.options import add_config, add_run, topic_name
from archiver.cli.output import print_line, print_lines

if TYPE_CHECKING:
    from archiver.backup.compacted.accepting import InQuestion
    from archiver.errors import ArchiverError


def add_options(parser: argparse.ArgumentParser) -> None:
    add_run(parser, run)
    add_config(parser)
    parser.add_argument("topic", metavar="TOPIC", type=topic_name)
    parser.add_argument("--yes", action="store_true", help="accept it; without this option nothing is written")


def run(options: argparse.Namespace) -> int:
    from archiver.archive.handle import open_archive
    from archiver.archive.store_clock import epoch_ms
    from archiver.backup.compacted.accepting import accept, asker_of, find_in_question
    from archiver.config.load import load_config
    from archiver.kafka.settings import KafkaSettings

    config = load_config(options.config)
    archive = open_archive(config.storage)
    ask = asker_of(archive, KafkaSettings.parse(config.kafka, config.place_of_kafka), _refuse)
    found = find_in_question(archive, options.topic, ask, epoch_ms(datetime.now(UTC)))
    print_lines(accept_lines(found))
    if not found:
        print_line(f"{options.topic}: no log stands against its copies; there is nothing to accept")
    elif options.yes:
        accept(archive, found)
        print_line("accepted: copies that nothing else keeps go again")
    else:
        print_line("nothing was written; if all of this was meant, add --yes")
    return 0


def _refuse(error: "ArchiverError") -> None:
    raise error


def accept_lines(found: "list[InQuestion]") -> Iterator[str]:
    from archiver.backup.compacted.alarms import name_of

    for one in found:
        if one.accepted.log_start is not None:
            yield (
                f"{name_of(one.place)}: the log begins at offset {one.accepted.log_start}, and a copy has what was there from"
                f" {one.begins} on"
            )
        if one.accepted.end is not None:
            yield f"{name_of(one.place)}: the log ends at offset {one.log.log_end}, and the copy that is read reaches {one.reached}"
