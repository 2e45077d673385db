"""Where an archive lies, and the names that come from it: of the group of its backups, and of whose commits are whose (decision 21)."""

import hashlib
import re
from typing import Final
from urllib.parse import urlsplit

from archiver.config.model import ArchiverConfig, StorageConfig
from archiver.store.client import configured_endpoint

_LEGIBLE_CHARACTERS: Final = 100
_MARK_DIGITS: Final = 8
_PORTS: Final = {"http": 80, "https": 443}


def archive_mark(storage: StorageConfig) -> str:
    """Return hex digits of an archive's address: its bucket and prefix, and the store, however that was told to us."""
    address = storage.url.removeprefix("s3://")
    return hashlib.sha256(f"{_plain(configured_endpoint(storage))} {address}".encode()).hexdigest()[:_MARK_DIGITS]


def group_of(config: ArchiverConfig) -> str:
    """Return the consumer group of an archive's backups: named by its address and its mark, where nothing else is said."""
    if config.backup.group is not None:
        return config.backup.group
    address = config.storage.url.removeprefix("s3://")
    legible = re.sub(r"[^A-Za-z0-9._-]+", "-", address)[:_LEGIBLE_CHARACTERS]
    return f"archiver-{legible}-{archive_mark(config.storage)}"


def _plain(endpoint: str) -> str:
    """Spell one endpoint in one way."""
    parts = urlsplit(endpoint.rstrip("/"))
    host, port = parts.hostname or "", parts.port
    where = host if port in {None, _PORTS.get(parts.scheme)} else f"{host}:{port}"
    return f"{parts.scheme}://{where}{parts.path}" if endpoint else ""
