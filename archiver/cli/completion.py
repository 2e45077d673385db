"""`archiver completion`: prints the script with which a shell completes commands and options."""

import argparse
from collections.abc import Mapping

from archiver.cli.options import add_run
from archiver.cli.output import write


def add_options(parser: argparse.ArgumentParser) -> None:
    add_run(parser, run)
    parser.add_argument("shell", choices=("bash", "zsh"), help="the shell that reads the script")


def run(options: argparse.Namespace) -> int:
    import shtab

    from archiver.cli.commands import build_parser

    parser = build_parser()
    _complete_paths(parser, {"FILE": shtab.FILE, "OBJECT": shtab.FILE, "DIRECTORY": shtab.DIRECTORY})
    write(shtab.complete(parser, options.shell))
    return 0


def _complete_paths(parser: argparse.ArgumentParser, completions: Mapping[str, object]) -> None:
    """Let shells complete files and directories, in the arguments of a parser and of its commands."""
    for action in parser._actions:  # noqa: SLF001 - shtab reads them, too
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for below in action.choices.values():
                _complete_paths(below, completions)
        elif action.metavar in completions:
            action.complete = completions[str(action.metavar)]  # type: ignore[attr-defined]
