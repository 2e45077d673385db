"""`archiver compacted clear`: its options, its run, and its printer; and the refusal of `compacted accept`, which it replaces."""

import argparse
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from archiver.cli.options import add_config, add_run
from archiver.cli.output import complain, print_line, print_lines
from archiver.errors import NotWholeError, UsageError
from archiver.process.output.text import spell_count, spell_size

if TYPE_CHECKING:
    from archiver.backup.compacted.clearing.clearing_run import ClearingReport

log = logging.getLogger(__name__)


def add_options(parser: argparse.ArgumentParser) -> None:
    add_run(parser, run)
    add_config(parser)
    parser.add_argument("place", metavar="TOPIC-PARTITION")
    parser.add_argument(
        "--force",
        action="store_true",
        required=True,
        help="delete them although the log begins later, or ends earlier, than the copies have it",
    )


def add_refused_options(parser: argparse.ArgumentParser) -> None:
    add_run(parser, refuse)
    add_config(parser)
    parser.add_argument("topic", metavar="TOPIC", nargs="?")
    parser.add_argument("--yes", action="store_true", help="has no effect")


def refuse(options: argparse.Namespace) -> int:
    del options
    raise UsageError(
        "compacted accept is no command any more: instances clear copies again after the next turn; what is still kept then,"
        " `archiver compacted clear --force TOPIC-PARTITION` deletes"
    )


def run(options: argparse.Namespace) -> int:
    from archiver.archive.copies.role_logs import read_role_logs
    from archiver.archive.format.handle import open_archive
    from archiver.archive.format.store_clock import agreed_now_ms
    from archiver.backup.compacted.clearing.clearing_rules import NO_LOG, ClearingRules
    from archiver.backup.compacted.clearing.clearing_run import clear_copies
    from archiver.backup.compacted.clearing.clearing_survey import ClearingSurvey
    from archiver.config.load import load_config

    config = load_config(options.config)
    archive, (topic, partition) = open_archive(config.storage), _parsed(options.place)
    places = [place for place in read_role_logs(archive, topic) if place.partition == partition]
    if not places:
        raise UsageError(f"{options.place}: has no role log; `archiver compacted status` shows which partitions have")
    rules = ClearingRules(delay_ms=config.compacted.clear_delay_ms, keep_generations=config.compacted.keep_generations)

    survey = ClearingSurvey(archive, rules, config.restores.pin_ms, lambda asked: dict.fromkeys(asked, NO_LOG))
    report = clear_copies(survey, places, agreed_now_ms(archive.store))
    deleted = list(cleared_lines(report))
    for line in deleted:
        log.warning("%s", line)
    print_lines([*deleted, *kept_lines(report)])
    if not report.cleared:
        print_line(f"{options.place}: nothing was deleted")
    for line in (*report.failures, *(why for found in report.alarms.values() for why in found)):
        complain(f"{options.place}: {line}")
    return NotWholeError.exit_code if report.failures or report.alarms else 0


def _parsed(place: str) -> tuple[str, int]:
    from archiver.archive.format.layout import is_partition_number, is_topic_name

    topic, _, number = place.rpartition("-")
    if not is_topic_name(topic) or not is_partition_number(number):
        raise UsageError(f"{place}: is no partition; give TOPIC-PARTITION, as in orders-0")
    return topic, int(number)


def cleared_lines(report: "ClearingReport") -> Iterator[str]:
    from archiver.backup.compacted.clearing.alarms import name_of

    for one in report.cleared:
        what = f"{spell_count(one.objects, 'object')} of {spell_size(one.bytes)}"
        yield f"{name_of(one.place)}: generation {one.generation} was deleted by force: {what}"


def kept_lines(report: "ClearingReport") -> Iterator[str]:
    from archiver.backup.compacted.clearing.alarms import name_of

    for kept in report.kept:
        yield f"{name_of(kept.place)}: generation {kept.generation} stays: {'; '.join(kept.why)}"
