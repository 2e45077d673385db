"""What `make test` runs is there, and has an example of each command and each chapter of the proofs."""

import argparse
import re
from pathlib import Path

from archiver.cli.commands import build_parser
from tests.support.brokers import REPOSITORY

LINES = [
    (place.strip(), [name.strip() for name in examples.split(";")])
    for place, _, examples in (
        line.partition("#") for line in Path(REPOSITORY / "tests" / "quick.txt").read_text().splitlines()
    )
    if place.strip()
]
EXAMPLES = {name for _, examples in LINES for name in examples}


def test_every_test_of_the_list_is_there() -> None:
    for place, _ in LINES:
        file, _, name = place.partition("::")
        assert (REPOSITORY / file).exists(), file
        assert not name or f"\ndef {name}(" in (REPOSITORY / file).read_text(), place


def test_every_command_has_a_test_in_the_list() -> None:
    """A name that is listed and is neither a command nor a chapter would be a mistake, too."""
    assert commands() | chapters() == EXAMPLES - {""}


def commands() -> set[str]:
    found = set()
    (first,) = (action for action in build_parser("")._actions if isinstance(action.choices, dict))
    for name in first.choices or ():
        seconds = [action for action in build_parser(name)._actions if isinstance(action.choices, dict)]
        parser = seconds[0].choices[name]  # type: ignore[index]
        below = [action for action in parser._actions if isinstance(action.choices, dict)]
        found |= {f"{name} {way}" for action in below for way, one in action.choices.items() if not is_given_up(one)}
        found |= {name} if not any(action.required for action in below) else set()
    return found


def is_given_up(parser: argparse.ArgumentParser) -> bool:
    """It refuses, and names the command that replaces it."""
    return "no command any more" in (parser.description or "").lower()


def chapters() -> set[str]:
    """Worlds are fetched first, and what is broken on purpose is a test of the tests."""
    text = (REPOSITORY / "docs" / "proofs.md").read_text()
    found = {name.strip() for name in re.findall(r"^## (.*)$", text, re.MULTILINE)}
    return found - {"Worlds", "Broken builds"}
