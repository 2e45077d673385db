"""`archiver groups`: its commands."""

import argparse

from archiver.cli import groups_apply, groups_fold, groups_rollback, groups_show, groups_translate
from archiver.cli.options import parser_of


def add_options(parser: argparse.ArgumentParser) -> None:
    ways = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, module, summary in (
        ("show", groups_show, "where consumer groups stood, by the archive alone"),
        ("translate", groups_translate, "where consumer groups are to stand on the target of a restore"),
        ("apply", groups_apply, "set groups of a target to where they stood, through the maps of a restore"),
        ("rollback", groups_rollback, "set groups of a target back to where they stood before they were set"),
        ("fold", groups_fold, "put together what older records of group positions still say"),
    ):
        module.add_options(parser_of(ways, name, summary))
