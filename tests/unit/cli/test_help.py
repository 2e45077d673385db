"""Every --help tells the exit codes: also of what only groups commands."""

import argparse
from collections.abc import Iterator

import pytest

from archiver.cli.commands import build_parser
from archiver.cli.main import main
from archiver.cli.options import EXIT_STATUS


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from parsers(below)


def test_every_help_tells_the_exit_codes() -> None:
    found = {parser.prog: parser.format_help() for parser in parsers(build_parser())}
    assert {"archiver", "archiver config", "archiver config show", "archiver spark-env"} <= found.keys()
    assert [name for name, text in found.items() if EXIT_STATUS not in text] == []


def test_every_help_says_what_the_command_does_in_a_sentence() -> None:
    said = [parser.description or "" for parser in parsers(build_parser())]
    assert [text for text in said if text[-1:] not in {".", "?"} or text[-2:-1] in {".", "?"}] == []


@pytest.mark.parametrize("group", ["config", "spark-env"])
def test_a_group_of_commands_has_a_help(group: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main([group, "--help"])
    assert left.value.code == 0
    assert "3  the archive or a comparison is not whole" in capsys.readouterr().out
