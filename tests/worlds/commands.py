"""The installed command, as a cycle runs it: an exit code that is not the wanted one ends the cycle."""

import contextlib
import io
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from archiver.cli.main import main
from tests.support.round_trip import ArchiveSite
from tests.worlds.world import Refusal, Step

_COMMAND_S = 500.0  # a backup tries for five minutes


class CommandError(Exception):
    """A command ended otherwise than it must."""

    def __init__(self, step: Step, done: "Done") -> None:
        super().__init__(f"{step}: {' '.join(done.arguments)} ended with {done.exit_code}:\n{done.out}{done.said}")
        self._step, self._done = step, done

    def is_of(self, refusal: Refusal | None) -> bool:
        """Whether it is what this world is known for."""
        found = (self._step, self._done.exit_code)
        return (
            refusal is not None
            and found == (refusal.step, refusal.exit_code)
            and re.search(refusal.says, self._done.said) is not None
        )


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

    def run(self, step: Step, *arguments: str, expected: int = 0) -> Done:
        done = self.site.run(*arguments, timeout_s=_COMMAND_S)
        return _checked(step, Done(arguments, done.returncode, done.stdout, done.stderr), expected)

    def run_here(self, step: Step, *arguments: str, expected: int = 0) -> Done:
        out, said = io.StringIO(), io.StringIO()
        with (
            contextlib.chdir(self.site.folder),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(said),
        ):
            exit_code = main(arguments)
        return _checked(step, Done(arguments, exit_code, out.getvalue(), said.getvalue()), expected)


def _checked(step: Step, done: Done, expected: int) -> Done:
    assert "Traceback" not in done.said, done.said
    if done.exit_code != expected:
        raise CommandError(step, done)
    return done
