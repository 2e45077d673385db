"""The installed command, as a cycle runs it: an exit code that is not 0 ends the cycle."""

import contextlib
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from archiver.cli.main import main
from tests.support.round_trip import ArchiveSite

_COMMAND_S = 500.0  # a backup tries for five minutes


@dataclass(frozen=True, slots=True)
class Done:
    """What a command has printed."""

    arguments: Sequence[str]
    exit_code: int
    out: str
    said: str

    @property
    def json(self) -> Any:  # noqa: ANN401 - JSON
        return json.loads(self.out)


@dataclass(frozen=True, slots=True)
class Commands:
    """Of one archive. `run` starts the installed command; `run_here` is quicker: in this process, with tasks in place of Spark."""

    site: ArchiveSite

    def run(self, *arguments: str) -> Done:
        done = self.site.run(*arguments, timeout_s=_COMMAND_S)
        return _checked(Done(arguments, done.returncode, done.stdout, done.stderr))

    def run_here(self, *arguments: str) -> Done:
        out, said = io.StringIO(), io.StringIO()
        with (
            contextlib.chdir(self.site.folder),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(said),
        ):
            exit_code = main(arguments)
        return _checked(Done(arguments, exit_code, out.getvalue(), said.getvalue()))


def _checked(done: Done) -> Done:
    assert "Traceback" not in done.said, done.said
    command = " ".join(done.arguments)
    assert done.exit_code == 0, f"{command} ended with {done.exit_code}:\n{done.out}{done.said}"
    return done
