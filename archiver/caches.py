"""Where it is kept what was made once so that later starts are quick: beside the code, or in the user's cache."""

import tempfile
from pathlib import Path


def cache_places(code: Path, name: str) -> list[Path]:
    """Return both places of that name, for what belongs to this folder of code, whether they are there or not."""
    places = [code / "__pycache__" / name]
    try:
        return [*places, home_cache() / name]
    except RuntimeError:  # a user without a home
        return places


def home_cache() -> Path:
    """Return the user's. RuntimeError for one without a home."""
    return Path.home() / ".cache" / "kafka-archiver"


def is_writable(directory: Path) -> bool:
    """Tell whether something can be put into a directory, which is made when absent."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            return True
    except OSError:
        return False
