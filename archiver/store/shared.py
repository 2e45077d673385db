"""Keeps the object store of a Python worker open for all its tasks."""

from functools import lru_cache

from archiver.config.model import StorageConfig
from archiver.store.patient import PatientStore
from archiver.store.port import ObjectStore
from archiver.store.s3 import S3Store


def store_of(storage: StorageConfig) -> ObjectStore:
    """Return this worker's store, opened at its first use: opening a client takes longer than reading a small partition."""
    return _open_once(storage.model_dump_json())


def patient_store_of(storage: StorageConfig) -> ObjectStore:
    """Return this worker's store, with retries, for a task that reads many objects: a failure would restart the task."""
    return PatientStore(store_of(storage))


@lru_cache(maxsize=4)
def _open_once(storage: str) -> ObjectStore:
    return S3Store(StorageConfig.model_validate_json(storage))  # no warnings here: the driver has given them
