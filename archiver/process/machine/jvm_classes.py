"""Shares class data: one JVM dumps its loaded classes, and later JVMs that map the dump start in half the time."""

import logging
import mmap
import os
import tempfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from archiver.process.machine.tampering import REMEDY, exposure

log = logging.getLogger(__name__)

# Quiet: a user cannot mend an unusable file, or one without some class.
_QUIETLY = "-Xlog:disable"
_CHECKSUM_BYTES: Final = 4  # at the end of the file, behind what the JVM reads


def options_to_read(file: Path, trusted: Collection[int] = ()) -> list[str]:
    """Return options for a JVM to read the file; none, and a warning, if users other than `trusted` may change it.

    Another Java, or a JVM with other jars, ignores the file.
    """
    if not os.access(file, os.R_OK):
        return []
    exposed = exposure(file, trusted=trusted)
    if exposed:
        log.warning("kept classes in %s are not used: %s; %s", file, exposed, REMEDY)
        return []
    return [f"-XX:SharedArchiveFile={file}", _QUIETLY] if _is_whole(file) else []


@contextmanager
def options_to_write(file: Path, mode: int = 0o600) -> Iterator[list[str]]:
    """Yield options for a JVM to write the file when it ends, within the block. The file appears whole, or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{file.name}-", dir=file.parent) as folder:
        written = Path(folder) / file.name
        yield [f"-XX:ArchiveClassesAtExit={written}", _QUIETLY]
        if written.is_file():
            written.chmod(mode & 0o666)  # the JVM leaves it read-only
            with written.open("ab") as end:
                end.write(_checksum(written.read_bytes()))
            written.replace(file)


def _is_whole(file: Path) -> bool:
    """Check the CRC before a JVM maps the file: a truncated file crashes it, and changed bits may do anything. 60 ms for 150 MB."""
    try:
        with (
            file.open("rb") as opened,
            mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content,
            memoryview(content) as whole,
            whole[:-_CHECKSUM_BYTES] as written,
            whole[-_CHECKSUM_BYTES:] as checksum,
        ):
            return _checksum(written) == checksum
    except (OSError, ValueError):  # the file is missing, unreadable, or empty
        return False


def _checksum(written: bytes | memoryview) -> bytes:
    return zlib.crc32(written).to_bytes(_CHECKSUM_BYTES, "big")
