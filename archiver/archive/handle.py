"""The archive as a value: a store, and where in it everything lies. What reads or writes the archive is given one."""

from typing import NamedTuple

from archiver.archive.layout import Layout
from archiver.config.model import StorageConfig
from archiver.store.port import ObjectStore
from archiver.store.s3 import open_store
from archiver.store.shared import store_of


class Archive(NamedTuple):
    """One archive."""

    store: ObjectStore
    layout: Layout


def open_archive(storage: StorageConfig) -> Archive:
    """Open the archive of a configuration, and warn where others on the way can read."""
    return Archive(open_store(storage), Layout(storage.prefix))


def archive_of(storage: StorageConfig) -> Archive:
    """Return the archive in a Python worker, whose store is kept open for all its tasks."""
    return Archive(store_of(storage), Layout(storage.prefix))
