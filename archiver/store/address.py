"""Derives two names from an archive's address: the group of its backups, and the mark of its commits (decision 21)."""

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
    """Return hex digits of an archive's address: store, bucket and prefix, independent of the store's spelling."""
    address = storage.url.removeprefix("s3://")
    return hashlib.sha256(f"{_plain(configured_endpoint(storage))} {address}".encode()).hexdigest()[:_MARK_DIGITS]


def group_of(config: ArchiverConfig) -> str:
    """Return the consumer group of an archive's backups: the configured one, or one named by address and mark."""
    if config.backup.group is not None:
        return config.backup.group
    address = config.storage.url.removeprefix("s3://")
    legible = re.sub(r"[^A-Za-z0-9._-]+", "-", address)[:_LEGIBLE_CHARACTERS]
    return f"archiver-{legible}-{archive_mark(config.storage)}"


def _plain(endpoint: str) -> str:
    """Spell an endpoint in one way: lower case, no default port, no slash at its end."""
    parts = urlsplit(endpoint.rstrip("/"))
    host, port = parts.hostname or "", parts.port
    where = host if port in {None, _PORTS.get(parts.scheme)} else f"{host}:{port}"
    return f"{parts.scheme}://{where}{parts.path}" if endpoint else ""
