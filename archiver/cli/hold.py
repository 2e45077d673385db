"""`archiver hold`: records that no sweep may delete; its options, its runs, and its printers."""

import argparse
import getpass
from contextlib import closing
from threading import Event
from typing import TYPE_CHECKING, Any

from archiver.cli.options import add_archive, add_config, add_format, add_run, archive_config, parser_of
from archiver.cli.output import complain, print_json, print_line, print_lines
from archiver.cli.spelling import MOST_LISTED, left_out_lines, moment, table_lines
from archiver.errors import NotWholeError
from archiver.process.output.text import spell_count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from archiver.archive.format.handle import Archive
    from archiver.archive.notes.holds import Hold
    from archiver.upkeep.retention.planning.held import HeldObjects


def add_options(parser: argparse.ArgumentParser) -> None:
    ways = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    added = parser_of(ways, "add", "keep records from being swept")
    add_run(added, run_add)
    add_config(added)
    added.add_argument("name", metavar="NAME")
    added.add_argument(
        "--topics",
        metavar="NAMES",
        required=True,
        help="names of topics, separated by commas; * stands for any characters (no regular expression)",
    )
    added.add_argument("--from", dest="since", metavar="TIME", help="records from this time on (default: all)")
    added.add_argument("--until", metavar="TIME", help="records up to this time (default: all)")
    added.add_argument("--reason", metavar="TEXT", required=True)
    added.add_argument("--by", metavar="WHO", help="who wants it (default: this user)")
    added.add_argument(
        "--no-wait",
        action="store_true",
        help="do not wait until no delete from before can happen any more, nor look for what went meanwhile; say until when",
    )
    listed = parser_of(ways, "list", "which holds there are, and were")
    add_run(listed, run_list)
    add_archive(listed)
    add_format(listed)
    released = parser_of(ways, "release", "let sweeps delete what a hold kept")
    add_run(released, run_release)
    add_config(released)
    released.add_argument("name", metavar="NAME")
    released.add_argument("--reason", metavar="TEXT", help="why it may end; `hold list` shows it")
    released.add_argument("--by", metavar="WHO", help="who wants it (default: this user)")


def run_add(options: argparse.Namespace) -> int:
    from archiver.archive.format.store_clock import epoch_ms
    from archiver.archive.notes.holds import Hold
    from archiver.archive.notes.topics import list_known_topics
    from archiver.config.quantities import parse_moment_ms
    from archiver.errors import UsageError
    from archiver.upkeep.retention.planning.held import list_held

    archive = _archive(options)
    try:
        hold = Hold(
            name=options.name,
            topics=options.topics,
            from_ms=None if options.since is None else parse_moment_ms("--from", options.since),
            until_ms=None if options.until is None else parse_moment_ms("--until", options.until),
            reason=options.reason,
            by=options.by or getpass.getuser(),
            added_ms=epoch_ms(archive.store.now()),
        )
    except ValueError as error:
        raise UsageError(str(error)) from error
    before = None if options.no_wait else list_held(archive, hold)
    _put(archive, hold)
    for stem in hold.untouched_stems:
        complain(
            f"hold {hold.name}: {stem}.* holds topics that begin with '{stem}.', and not {stem}: no regular expression is"
            f" taken; to hold {stem} as well, add another hold, of {stem} or '{stem}*'"
        )
    gone = [] if before is None else _await_force(archive, hold, before, quiet=options.quiet)
    if not any(map(hold.matches, list_known_topics(archive))):
        print_line(f"hold {hold.name}: --topics matches no topic of the archive yet; it holds those that come")
    for line in _gone_lines(hold, gone):
        complain(line)
    return NotWholeError.exit_code if gone else 0


def _put(archive: "Archive", hold: "Hold") -> None:
    from archiver.archive.format.store_clock import epoch_ms
    from archiver.archive.notes.holds import DELETES_END_S, add_hold

    add_hold(archive, hold)
    until = moment(epoch_ms(archive.store.now()) + round(1000 * DELETES_END_S))
    print_line(f"hold {hold.name} is put; sweeps may still carry out what they decided on before, until {until}")


def _await_force(archive: "Archive", hold: "Hold", before: "HeldObjects", *, quiet: bool) -> list[str]:
    """Wait until a hold is in force. Returns the keys of covered objects that were deleted meanwhile."""
    from archiver.archive.notes.holds import DELETES_END_S
    from archiver.process.output.progress import Progress
    from archiver.process.running.silence import steady_s
    from archiver.upkeep.retention.planning.held import find_gone, list_held

    end_s = steady_s() + DELETES_END_S
    with closing(Progress("hold", quiet=quiet)) as progress:
        while (left_s := end_s - steady_s()) > 0:
            progress.report(f"in force in {left_s:.0f} s")
            Event().wait(min(left_s, 1.0))
    now = list_held(archive, hold)
    print_line(
        f"hold {hold.name} is in force: no sweep deletes these records from now on; its topics had"
        f" {spell_count(before.count, 'object')} before, and have {now.count:,} now"
    )
    return find_gone(hold, before, now, archive)


def _gone_lines(hold: "Hold", gone: list[str]) -> "Iterator[str]":
    if gone:
        what = spell_count(len(gone), "object that it covers was", "objects that it covers were")
        yield (
            f"hold {hold.name}: {what} deleted before it was in force, by a sweep that had begun; bring these back from the"
            " bucket's versions, if their records are needed:"
        )
    yield from gone[:MOST_LISTED]
    yield from left_out_lines(len(gone) - MOST_LISTED, "objects")


def run_list(options: argparse.Namespace) -> int:
    from archiver.archive.notes.holds import read_holds

    holds = read_holds(_archive(options)).values()
    if options.format == "json":
        print_json({"holds": [hold_row(hold) for hold in holds]})
        return 0
    names = ("name", "topics", "from", "until", "by", "added", "reason", "released", "released_by", "released_reason")
    rows = ([hold_row(hold)[name] or "" for name in names] for hold in holds)
    print_lines(table_lines([name.replace("_", " ") for name in names], rows))
    return 0


def run_release(options: argparse.Namespace) -> int:
    from archiver.archive.format.store_clock import epoch_ms
    from archiver.archive.notes.holds import release_hold

    archive = _archive(options)
    by, now_ms = options.by or getpass.getuser(), epoch_ms(archive.store.now())
    held = release_hold(archive, options.name, by=by, reason=options.reason, now_ms=now_ms)
    if held.released_ms != now_ms:
        print_line(f"hold {held.name} was released before: by {held.released_by}, {_moment(held.released_ms)}")
    else:
        print_line(f"hold {held.name} is released: the next sweep may delete what it kept")
    return 0


def hold_row(hold: "Hold") -> dict[str, Any]:
    return {
        "name": hold.name,
        "topics": hold.topics,
        "from": _moment(hold.from_ms),
        "until": _moment(hold.until_ms),
        "reason": hold.reason,
        "by": hold.by,
        "added": _moment(hold.added_ms),
        "released": _moment(hold.released_ms),
        "released_by": hold.released_by,
        "released_reason": hold.released_reason,
    }


def _moment(at_ms: int | None) -> str | None:
    return None if at_ms is None else moment(at_ms)


def _archive(options: argparse.Namespace) -> "Archive":
    from archiver.archive.format.handle import open_archive

    return open_archive(archive_config(options).storage)
