"""Deliberately broken builds, for the proof that the verdict would notice.

An overlay is a package `archiver` that holds only the changed modules, and finds the others in the real one: the
kernels stay warm. Put its folder first on PYTHONPATH.
"""

from collections.abc import Mapping, Sequence
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


BROKEN: Mapping[str, Sequence[Change]] = {
    "overwrite instead of put-if-absent": (
        Change("store.py", '                    IfNoneMatch="*",\n', ""),
        Change("store.py", "    if was_created or (found", "    if False and (found"),  # the probe would refuse to run
    ),
}


def make_overlay(folder: Path, changes: Sequence[Change]) -> Path:
    """Write the changed modules; returns the folder for PYTHONPATH."""
    package = folder / "archiver"
    package.mkdir(parents=True)
    beginning = (_PACKAGE / "__init__.py").read_text()
    (package / "__init__.py").write_text(f"{beginning}\n__path__.append({str(_PACKAGE)!r})\n")
    for change in changes:
        target = package / change.module
        text = (target if target.exists() else _PACKAGE / change.module).read_text()
        if text.count(change.old) != 1:
            raise ValueError(f"{change.module}: {text.count(change.old)} times, and not once: {change.old!r}")
        target.write_text(text.replace(change.old, change.new))
    return folder
