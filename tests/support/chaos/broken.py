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


# The position goes through `newest_base`, as a negative number: the way is there already.
_POSITION_FROM_THE_COMMIT = (
    Change(
        "backup/opening/opener.py",
        "base = None if hint is None else hint.base\n",
        "base = None if hint is None else -1 - hint.offset\n",
    ),
    Change(
        "backup/opening/opener.py",
        "        if listed is None:\n",
        "        if newest_base is not None:\n"
        "            return ArchivedEnd(next=-1 - newest_base)\n"
        "        if listed is None:\n",
    ),
)
BROKEN: Mapping[str, Sequence[Change]] = {
    # What was fetched counts as durable: it is committed while it waits for its put.
    "commit before put": (
        *_POSITION_FROM_THE_COMMIT,
        Change(
            "backup/partition/partition_writer.py",
            "return self._base if self.holds_records else self.position\n",
            "return self.position\n",
        ),
    ),
    "overwrite instead of put-if-absent": (
        Change("store/s3.py", ', IfNoneMatch="*"', ""),
        Change("archive/segments/probe.py", "    if overwrites:\n", "    if False:\n"),  # the probe would refuse to run
    ),
    "position from the commit alone": _POSITION_FROM_THE_COMMIT,
}


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
