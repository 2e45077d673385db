"""The table of rights in docs/reference.md is that of the test which tries each of them, and no command is left out."""

import argparse
from collections.abc import Iterator

from archiver.cli.commands import build_parser
from tests.support import rights_table
from tests.support.pages import with_table
from tests.support.rights_table import CASES, COMMANDS, PAGE, Right

# Commands that come to no cluster and no store but their own.
_WITHOUT_RIGHTS = {"demo", "spark-env", "config", "version"}


def test_the_page_has_the_table() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert with_table(text, rights_table.MARK, rights_table.table()) == text, "make docs"


def test_no_row_is_left_out() -> None:
    rows = sum(1 + len(command.needs) for command in COMMANDS)
    assert len(CASES) == len({str(case) for case in CASES}) == rows
    assert {case.missing for case in CASES} == {None, *Right}
    # Each is tried with its rights alone in each run, but for those that start Spark or a service.
    assert {case.command.name for case in CASES if case.missing is None and case.is_long} == {
        "`query`",
        "`backup`",
        "… `--where`",
        "… `--latest-per-key`",
    }


def test_every_command_has_a_row() -> None:
    assert set(_commands(build_parser())) == {command.typed[0] for command in COMMANDS} | _WITHOUT_RIGHTS


def _commands(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices
