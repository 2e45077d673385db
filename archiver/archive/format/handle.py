"""The archive as a value: a store and its layout. All readers and writers of the archive get this value."""

from typing import NamedTuple

from archiver.archive.format.layout import Layout
from archiver.config.model import StorageConfig
from archiver.store.patient import PatientStore
from archiver.store.port import ObjectStore
from archiver.store.s3 import open_store
from archiver.store.shared import patient_store_of, store_of


class Archive(NamedTuple):
    """An archive: its store, and the layout of its keys."""

    store: ObjectStore
    layout: Layout


def open_archive(storage: StorageConfig) -> Archive:
    """Open the archive of a configuration, and warn if its traffic is readable on the network."""
    return Archive(open_store(storage), Layout(storage.prefix))


def open_patient_archive(storage: StorageConfig) -> Archive:
    """Open the archive as `open_archive` does, for a command that must survive one failure among many requests."""
    store, layout = open_archive(storage)
    return Archive(PatientStore(store), layout)


def archive_of(storage: StorageConfig) -> Archive:
    """Return the archive in a Python worker, whose store is kept open for all its tasks."""
    return Archive(store_of(storage), Layout(storage.prefix))


def patient_archive_of(storage: StorageConfig) -> Archive:
    """Return the archive in a Python worker, for a task that reads many objects: its store retries failed requests."""
    return Archive(patient_store_of(storage), Layout(storage.prefix))
