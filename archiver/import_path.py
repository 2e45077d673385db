"""Removes the current folder from Python's module path at start, so that its files are never imported."""

import os
import sys


def leave_out_current_folder() -> None:
    """Remove the current folder, and relative ones, from the path of this process and its children; before other imports.

    `python -m` puts the current folder first, and calls itself "-m" until it has found its module. An empty or relative
    entry of PYTHONPATH is a place at or below the current folder: `PYTHONPATH=$PYTHONPATH:/more` has one by mistake
    if the variable was unset.
    """
    here = _current_folder()
    if sys.argv[:1] == ["-m"] and sys.path[0] == here:
        del sys.path[0]
    told = os.environ.get("PYTHONPATH")  # noqa: TID251 - before archiver.config.model can be imported
    if not told:
        return
    entries = told.split(os.pathsep)
    named = [os.path.normpath(entry) for entry in entries if os.path.isabs(entry)]  # noqa: PTH117 - pathlib is not imported yet
    unnamed = {os.path.normpath(f"{here}/{entry}") for entry in entries}.difference(named)
    sys.path[:] = [place for place in sys.path if place not in unnamed]
    os.environ["PYTHONPATH"] = os.pathsep.join(named)  # noqa: TID251 - as above


def _current_folder() -> str:
    try:
        return os.getcwd()  # noqa: PTH109 - as above
    except FileNotFoundError:  # deleted: nothing is found there
        return ""
