"""Starts the installed command."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

from archiver.process.running.children import start_child

COMMAND: Final = Path(sys.executable).with_name("archiver")


def start_command(
    arguments: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    stdout: int | IO[bytes],
    stderr: int,
    text: bool = False,
) -> subprocess.Popen[Any]:
    """Start `archiver` with an empty stdin, in a session of its own that ends with this process."""
    return start_child([str(COMMAND), *arguments], cwd=cwd, env=env, stdout=stdout, stderr=stderr, text=text)
