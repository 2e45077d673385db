"""Builds of the program that are changed on purpose: broken ones, and ones with shorter times.

An overlay is a package `archiver` that holds only the changed modules, and finds the others in the real one: the
kernels stay warm. Put its folder first on PYTHONPATH.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import archiver

_PACKAGE = Path(archiver.__file__).parent


@dataclass(frozen=True, slots=True)
class Change:
    """In a module (its path in the package), a text that occurs once becomes another."""

    module: str
    old: str
    new: str


# Trouble that lasts is told after four seconds, and not after fifteen: for tests that wait for it.
SOON_LASTING = Change("backup/partition/feed.py", "LASTING_FAILURE_S: Final = 15.0", "LASTING_FAILURE_S: Final = 4.0")


def make_overlay(folder: Path, changes: Sequence[Change]) -> Path:
    """Write the changed modules; returns the folder for PYTHONPATH."""
    package = folder / "archiver"
    for change in changes:
        target = package / change.module
        for part in (Path(change.module).parent, *Path(change.module).parent.parents):
            _overlay_package(package / part, _PACKAGE / part)
        text = (target if target.exists() else _PACKAGE / change.module).read_text()
        if text.count(change.old) != 1:
            raise ValueError(f"{change.module}: {text.count(change.old)} times, and not once: {change.old!r}")
        target.write_text(text.replace(change.old, change.new))
    return folder


def _overlay_package(folder: Path, real: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    beginning = (real / "__init__.py").read_text()
    (folder / "__init__.py").write_text(f"{beginning}\n__path__.append({str(real)!r})\n")
