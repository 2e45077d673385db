"""Identifies this archiver by version and sources. Driver and executors of a job must have the same edition."""

import hashlib
from functools import cache
from pathlib import Path

from archiver import __version__


@cache
def edition() -> str:
    """Return the version and a digest of all sources. A packed copy of the sources has the same edition."""
    here = Path(__file__).parents[2]
    found = hashlib.sha256()
    for path in sorted(here.rglob("*.py")):
        found.update(f"{path.relative_to(here).as_posix()}\n".encode())
        found.update(path.read_bytes())
    return f"{__version__}+{found.hexdigest()[:12]}"
