"""Class data sharing: one JVM writes down what it has loaded, and later ones that map this file start in half the time."""

import logging
import mmap
import os
import tempfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from archiver.process.tampering import REMEDY, exposure

log = logging.getLogger(__name__)

# What the file cannot be used for, or a class that it cannot hold, is no message for anybody.
_QUIETLY = "-Xlog:disable"
_CHECKSUM_BYTES: Final = 4  # behind what the JVM has written, which reads no further


def options_to_read(file: Path, trusted: Collection[int] = ()) -> list[str]:
    """Return options for a JVM; none where others than `trusted` users may have changed the file, which is told.

    By another Java, or with other jars, a JVM starts as if there were no such file.
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
    """Give options for a JVM that ends by itself within the block. The file appears whole, or not at all."""
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
    """A JVM that maps a file that was cut dies, of one with other bits anything may come. To look takes 60 ms for 150 MB."""
    try:
        with (
            file.open("rb") as opened,
            mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content,
            memoryview(content) as whole,
            whole[:-_CHECKSUM_BYTES] as written,
            whole[-_CHECKSUM_BYTES:] as checksum,
        ):
            return _checksum(written) == checksum
    except (OSError, ValueError):  # it is not there, may not be read, or is empty
        return False


def _checksum(written: bytes | memoryview) -> bytes:
    return zlib.crc32(written).to_bytes(_CHECKSUM_BYTES, "big")
