"""Plans of sweeps that were shown, kept for an hour: so that what is agreed on is what was shown, and nothing else goes."""

import gzip
import hashlib
import io
import re
from collections.abc import Iterable
from typing import Final

from archiver.archive.handle import Archive
from archiver.errors import CorruptSegmentError, UsageError
from archiver.store.port import ObjectKind

KEPT_MS: Final = 3_600_000
_MOST_BYTES: Final = 512 << 20
_DIGEST: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)
_DIGITS: Final = 32


def digest_of(lines: Iterable[str]) -> str:
    """Name a plan by what it says: `lines`, its moment first, and then a line for each object that goes."""
    told = hashlib.sha256()
    for line in lines:
        told.update(f"{line}\n".encode())
    return told.hexdigest()[:_DIGITS]


def keep_plan(archive: Archive, lines: Iterable[str]) -> str:
    """Keep a plan. Returns its digest."""
    text = "".join(f"{line}\n" for line in lines)
    digest = digest_of(text.splitlines())
    archive.store.put_if_absent(_key(archive, digest), gzip.compress(text.encode(), mtime=0), {}, kind=ObjectKind.FACT)
    return digest


def read_plan(archive: Archive, digest: str) -> list[str]:
    """Read the lines of a plan. Whoever put it, it is what has this digest."""
    if _DIGEST.fullmatch(digest) is None:
        raise UsageError(f"--yes {digest}: a digest is 32 of 0-9 a-f; `archiver retention --dry-run` prints it")
    key = _key(archive, digest)
    found = archive.store.get(key, _MOST_BYTES)
    if found is None:
        raise UsageError(
            f"--yes {digest}: no such plan was kept; run `archiver retention --dry-run`, which prints a new one"
        )
    try:
        with gzip.open(io.BytesIO(found[0])) as unzipped:
            lines = unzipped.read(_MOST_BYTES).decode().splitlines()
    except (OSError, EOFError, ValueError) as error:
        raise CorruptSegmentError(f"{key}: is not a plan: {error}; make a new one with --dry-run") from error
    if digest_of(lines) != digest:
        raise CorruptSegmentError(f"{key}: is not the plan with this digest; make a new one with --dry-run")
    return lines


def _key(archive: Archive, digest: str) -> str:
    return f"{archive.layout.control_prefix('sweeps')}plans/{digest}.gz"
