"""The object store of a Python worker, kept open for all its tasks."""

from functools import lru_cache

from archiver.config.model import StorageConfig
from archiver.store.patient import PatientStore
from archiver.store.port import ObjectStore
from archiver.store.s3 import S3Store


def store_of(storage: StorageConfig) -> ObjectStore:
    """Open a store, or return the one that this worker has: a client takes longer to make than a small partition to read."""
    return _open_once(storage.model_dump_json())


def patient_store_of(storage: StorageConfig) -> ObjectStore:
    """Return it for a task that reads many objects, and would begin again with the first."""
    return PatientStore(store_of(storage))


@lru_cache(maxsize=4)
def _open_once(storage: str) -> ObjectStore:
    return S3Store(StorageConfig.model_validate_json(storage))  # the driver has warned of what there is to warn of
