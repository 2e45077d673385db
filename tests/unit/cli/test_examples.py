"""The help of each command ends with two examples, and the program takes each of them."""

import shlex

import pytest

from archiver.cli.commands import build_parser
from archiver.cli.examples import EXAMPLES
from tests.unit.cli.test_help import parsers
from tests.unit.test_quick import commands

HELP = {parser.prog.removeprefix("archiver").lstrip(): parser.format_help() for parser in parsers(build_parser())}
LINES = sorted({line for lines in EXAMPLES.values() for line in lines})


def test_each_command_has_two_examples() -> None:
    assert EXAMPLES.keys() == commands() | {""}
    assert {len(set(lines)) for lines in EXAMPLES.values()} == {2}
    assert [line for name, lines in EXAMPLES.items() for line in lines if not line.startswith(name)] == []
    assert {name: HELP[name].splitlines()[-2:] for name in EXAMPLES} == {
        name: [f"  archiver {line}" for line in lines] for name, lines in EXAMPLES.items()
    }


@pytest.mark.parametrize("line", LINES)
def test_the_program_takes_an_example(line: str) -> None:
    words = shlex.split(line.partition(" >")[0])
    build_parser(words[0]).parse_args(words)  # ends the process with 2 for an unknown command or option
