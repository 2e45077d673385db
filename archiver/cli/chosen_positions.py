"""Options that select positions of consumer groups: time, groups, and topics."""

import argparse
from typing import TYPE_CHECKING

from archiver.cli.options import archive_config, pattern

if TYPE_CHECKING:
    from archiver.archive.format.handle import Archive
    from archiver.config.model import ArchiverConfig
    from archiver.groups.positions.shown import PositionFilter
    from archiver.kafka.login.settings import KafkaSettings
    from archiver.restore.groups.group_restore import GroupRequest


def add_chosen_positions(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--as-of", metavar="TIME", help="as of then (2026-11-20T14:00:00Z); default: the newest that is archived"
    )
    parser.add_argument("--groups", metavar="REGEX", default=".*", help="full-match regular expression (default: all)")
    parser.add_argument("--topics", metavar="REGEX", default=".*", help="the same, of the topics that positions are in")


def wanted_positions(options: argparse.Namespace) -> "PositionFilter":
    from archiver.codec.selection import LAST_LONG
    from archiver.config.quantities import parse_moment_ms
    from archiver.groups.positions.shown import PositionFilter

    return PositionFilter(
        as_of_ms=LAST_LONG if options.as_of is None else parse_moment_ms("--as-of", options.as_of),
        groups=pattern("--groups", options.groups),
        topics=pattern("--topics", options.topics),
    )


def add_restored_positions(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose the positions of a restore's topics."""
    parser.add_argument("--restore", required=True, metavar="ID", help="the restore that brought the topics back")
    add_chosen_positions(parser)
    add_group_renames(parser)
    add_groups_removed(parser)


def add_group_renames(parser: "argparse.ArgumentParser | argparse._ArgumentGroup") -> None:
    parser.add_argument(
        "--rename-group", action="append", default=[], metavar="OLD=NEW", help="the group's name on the target"
    )


def add_groups_removed(parser: "argparse.ArgumentParser | argparse._ArgumentGroup") -> None:
    parser.add_argument(
        "--groups-removed",
        choices=("set", "leave"),
        help="positions that were removed before then: set all to where the groups stood last, or none (default: those that may"
        " have been removed with their topic)",
    )


def check_files(options: argparse.Namespace) -> None:
    """Read the configuration and the target file before kernels are imported, which may compile them for 20 s. Raises UsageError."""
    from archiver.config.load import load_target

    archive_config(options)
    load_target(options.target)


def restored_positions(
    options: argparse.Namespace,
) -> "tuple[Archive, KafkaSettings, str, GroupRequest]":
    """Open what the options of `add_restored_positions` name: the archive, the target, the restore's id, and the wanted groups."""
    from archiver.archive.format.handle import open_archive
    from archiver.config.load import load_target
    from archiver.kafka.login.settings import KafkaSettings
    from archiver.restore.plan.request import check_restore_id

    asked, target = (
        group_request(archive_config(options), options, wanted_positions(options)),
        load_target(options.target),
    )
    kafka = KafkaSettings.of(target)
    return open_archive(asked.config.storage), kafka, check_restore_id(options.restore, "--restore"), asked


def group_request(config: "ArchiverConfig", options: argparse.Namespace, wanted: "PositionFilter") -> "GroupRequest":
    from archiver.restore.groups.group_restore import GroupRequest, parse_group_renames
    from archiver.restore.groups.removed_positions import Removed

    return GroupRequest(
        config=config,
        wanted=wanted,
        renames=parse_group_renames(options.rename_group),
        removed=Removed(options.groups_removed or Removed.AUTO),
    )
