"""Where it is kept what was made once so that later starts are quick: beside the code, or in the user's cache.

It is code, and runs as we do: nobody else may have a hand in it (docs/decisions/0035-code-that-is-kept-is-ours.md).
"""

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from archiver.process.tampering import exposure

_FOR_THE_USER: Final = 0o700
_NOT_FOR_OTHERS_TO_WRITE: Final = 0o755


@dataclass(frozen=True, slots=True, kw_only=True)
class CachePlace:
    """A folder or a file, which may be there or not."""

    path: Path
    mode: int  # of folders; files have what is left without the right to enter
    trusted: frozenset[int] = frozenset()  # whose code we run anyway, beside our own and root's

    def exposure(self, within: Sequence[Path] = ()) -> str:
        """Say who else could change it, or these files that it has; empty: nobody."""
        return exposure(self.path, *within, trusted=self.trusted)

    def make(self, folder: Path) -> bool:
        """Make a folder of it, where that is missing. Tells whether something can be put there that stays ours alone."""
        if exposure(folder, trusted=self.trusted):
            return False
        try:
            for missing in [one for one in reversed((folder, *folder.parents)) if not one.exists()]:
                missing.mkdir(exist_ok=True)
                missing.chmod(self.mode)
            with tempfile.TemporaryFile(dir=folder):
                return not exposure(folder, trusted=self.trusted)
        except OSError:
            return False

    @contextmanager
    def making_files(self) -> Iterator[None]:
        """Have others do no more with files that are made within the block than with the folder. Other threads' are, too."""
        before = os.umask(0o777 & ~self.mode)
        try:
            yield
        finally:
            os.umask(before)


def cache_places(code: Path, name: str) -> list[CachePlace]:
    """Return both places of that name, for what belongs to this folder of code, whether they are there or not.

    Beside the code it is for whoever may read that: an image makes it as another user. Who owns the code, or a folder
    above it, can run code as us anyway.
    """
    beside = CachePlace(
        path=code / "__pycache__" / name,
        mode=code.stat().st_mode & _NOT_FOR_OTHERS_TO_WRITE | _FOR_THE_USER,
        trusted=frozenset(one.stat().st_uid for one in (code, *code.parents)),
    )
    try:
        return [beside, CachePlace(path=home_cache() / name, mode=_FOR_THE_USER)]
    except RuntimeError:  # a user without a home
        return [beside]


def home_cache() -> Path:
    """Return the user's. RuntimeError for one without a home."""
    return Path.home() / ".cache" / "kafka-archiver"
