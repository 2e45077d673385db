"""The object store: a small port, and S3 behind it. The only user of boto3."""

import contextlib
import io
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import IO, TYPE_CHECKING, Any, Protocol, TypeVar, cast
from urllib.parse import urlencode

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, PartialCredentialsError

from archiver.config import Sse, StorageConfig
from archiver.errors import ArchiverError, StoreError, StoreTemporaryError, UsageError
from archiver.layout import Layout

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

Value = TypeVar("Value")
Body = bytes | io.RawIOBase

_CONNECT_TIMEOUT_S = 10
_READ_TIMEOUT_S = 60
_ATTEMPTS = 4  # botocore's own retries; what is left after them is for the caller
_CONNECTIONS = 32
_DELETE_PAGE = 1000  # S3's limit
_CONFLICT_ATTEMPTS = 10

_TEMPORARY_CODES = frozenset(
    {
        "InternalError",
        "OperationAborted",
        "RequestTimeout",
        "RequestTimeTooSkewed",
        "ServiceUnavailable",
        "SlowDown",
        "SlowDownRead",
        "SlowDownWrite",
        "Throttling",
        "ThrottlingException",
        "XMinioServerNotInitialized",
    }
)
# The permission that an operation needs, for the message when it is denied.
_PERMISSIONS = {
    "PutObject": "s3:PutObject",
    "GetObject": "s3:GetObject",
    "HeadObject": "s3:GetObject",
    "ListObjectsV2": "s3:ListBucket",
    "DeleteObjects": "s3:DeleteObject",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedObject:
    """One row of a listing."""

    key: str
    size: int
    last_modified: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """What is known of an object without its body."""

    size: int
    metadata: Mapping[str, str]
    last_modified: datetime


class ObjectStore(Protocol):
    """What the archiver needs of a store. Safe for many threads.

    Every method raises StoreTemporaryError when a retry may help, StoreError when it will not. Keys are whole keys.
    """

    def put_if_absent(self, key: str, body: Body, metadata: Mapping[str, str]) -> bool:
        """Create an object whole, or not at all. True: created. False: something is there, and was left as it is.

        A stream must be seekable; it is read from its start and not closed. After StoreTemporaryError the outcome is
        unknown: the same call again tells (False, if it had worked).
        """

    def get(self, key: str) -> tuple[bytes, Mapping[str, str]] | None:
        """Return body and metadata; None when there is no such object."""

    def head(self, key: str) -> ObjectInfo | None:
        """Return what is known of an object; None when there is no such object."""

    def list(self, prefix: str, start_after: str = "") -> Iterator[ListedObject]:
        """List keys that begin with the prefix and sort after `start_after`, in order."""

    def list_directories(self, prefix: str) -> Iterator[str]:
        """List the names directly below a prefix that ends with a slash and that have keys below them."""

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; those that are not there are no error."""


class S3Store:
    """One bucket of S3, or of what speaks its protocol."""

    def __init__(self, config: StorageConfig) -> None:
        self._bucket = config.bucket
        self._extra = _put_options(config)
        try:
            self._client: S3Client = boto3.session.Session().client(
                "s3",
                endpoint_url=config.endpoint,
                region_name=config.region or ("us-east-1" if config.endpoint else None),
                config=Config(
                    connect_timeout=_CONNECT_TIMEOUT_S,
                    read_timeout=_READ_TIMEOUT_S,
                    retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
                    max_pool_connections=_CONNECTIONS,
                    # The facts carry a SHA-256 of the body; the signature covers the bytes on the wire.
                    request_checksum_calculation="when_required",
                    response_checksum_validation="when_required",
                    s3={"addressing_style": "path" if config.endpoint else "auto"},
                ),
            )
        except (BotoCoreError, ValueError) as error:
            raise UsageError(f"storage: {error}") from error

    def put_if_absent(self, key: str, body: Body, metadata: Mapping[str, str]) -> bool:
        for _ in range(_CONFLICT_ATTEMPTS):
            if not isinstance(body, bytes):
                body.seek(0)
            try:
                self._client.put_object(
                    Bucket=self._bucket,
                    Key=key,
                    Body=cast("IO[bytes]", body),
                    Metadata=dict(metadata),
                    IfNoneMatch="*",
                    **self._extra,
                )
            except ClientError as error:
                if _status(error) == 412:
                    return False
                if _status(error) != 409:  # 409: another put of this key is under way
                    raise self._error("PutObject", key, error) from error
            except (BotoCoreError, OSError) as error:
                raise self._error("PutObject", key, error) from error
            else:
                return True
        raise StoreTemporaryError(f"s3://{self._bucket}/{key}: other writers of this key keep being under way (409)")

    def get(self, key: str) -> tuple[bytes, Mapping[str, str]] | None:
        def read() -> tuple[bytes, Mapping[str, str]]:
            answer = self._client.get_object(Bucket=self._bucket, Key=key)
            with contextlib.closing(answer["Body"]) as body:
                return body.read(), answer["Metadata"]

        return self._or_none("GetObject", key, read)

    def head(self, key: str) -> ObjectInfo | None:
        def read() -> ObjectInfo:
            answer = self._client.head_object(Bucket=self._bucket, Key=key)
            return ObjectInfo(
                size=answer["ContentLength"], metadata=answer["Metadata"], last_modified=answer["LastModified"]
            )

        return self._or_none("HeadObject", key, read)

    def list(self, prefix: str, start_after: str = "") -> Iterator[ListedObject]:
        for page in self._pages(prefix, start_after, ""):
            for item in page.get("Contents", []):
                yield ListedObject(key=item["Key"], size=item["Size"], last_modified=item["LastModified"])

    def list_directories(self, prefix: str) -> Iterator[str]:
        for page in self._pages(prefix, "", "/"):
            for item in page.get("CommonPrefixes", []):
                yield item["Prefix"][len(prefix) : -1]

    def _pages(self, prefix: str, start_after: str, delimiter: str) -> Iterator[Any]:
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=prefix, StartAfter=start_after, Delimiter=delimiter
        )
        try:
            yield from pages
        except (ClientError, BotoCoreError, OSError) as error:
            raise self._error("ListObjectsV2", prefix, error) from error

    def delete(self, keys: Iterable[str]) -> None:
        waiting = list(keys)
        for start in range(0, len(waiting), _DELETE_PAGE):
            page = waiting[start : start + _DELETE_PAGE]
            try:
                answer = self._client.delete_objects(
                    Bucket=self._bucket, Delete={"Objects": [{"Key": key} for key in page], "Quiet": True}
                )
            except (ClientError, BotoCoreError, OSError) as error:
                raise self._error("DeleteObjects", page[0], error) from error
            for failed in answer.get("Errors", []):
                raise self._failure("DeleteObjects", failed.get("Key", ""), failed.get("Code", ""), 0)

    def _or_none(self, operation: str, key: str, read: Callable[[], Value]) -> Value | None:
        try:
            return read()
        except ClientError as error:
            if _status(error) == 404 and _code(error) != "NoSuchBucket":
                return None
            raise self._error(operation, key, error) from error
        except (BotoCoreError, OSError) as error:
            raise self._error(operation, key, error) from error

    def _error(self, operation: str, key: str, error: Exception) -> ArchiverError:
        if isinstance(error, ClientError):
            return self._failure(operation, key, _code(error), _status(error))
        where = f"s3://{self._bucket}/{key}"
        if isinstance(error, NoCredentialsError | PartialCredentialsError):
            return StoreError(
                f"{where}: no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile or role"
            )
        return StoreTemporaryError(f"{where}: {operation}: {error}")

    def _failure(self, operation: str, key: str, code: str, status: int) -> ArchiverError:
        where = f"s3://{self._bucket}/{key}"
        if code in _TEMPORARY_CODES or status >= 500 or status == 429:
            return StoreTemporaryError(f"{where}: {operation}: the store answered {code} ({status})")
        if code == "NoSuchBucket":
            return StoreError(f"bucket {self._bucket} does not exist; create it, or correct storage.url")
        if status == 403:
            return StoreError(f"{where}: {operation} was denied ({code}); grant {_PERMISSIONS[operation]} on it")
        return StoreError(f"{where}: {operation}: the store answered {code} ({status})")


def _status(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _code(error: ClientError) -> str:
    return error.response.get("Error", {}).get("Code", "")


def _put_options(config: StorageConfig) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if config.sse is Sse.S3:
        options["ServerSideEncryption"] = "AES256"
    elif config.sse is Sse.KMS:
        options["ServerSideEncryption"] = "aws:kms"
        if config.kms_key_id:
            options["SSEKMSKeyId"] = config.kms_key_id
    if config.storage_class:
        options["StorageClass"] = config.storage_class
    if config.tags:
        options["Tagging"] = urlencode(dict(config.tags))
    return options


def open_store(config: StorageConfig) -> tuple[ObjectStore, str]:
    """Open the store of a configuration. Returns it and the prefix."""
    return S3Store(config), config.prefix


def probe_put_if_absent(store: ObjectStore, layout: Layout) -> None:
    """Refuse a store that overwrites: put a fixed key twice, and the second put must change nothing."""
    key = layout.probe_key
    store.put_if_absent(key, b"probe", {})
    token = uuid.uuid4().hex.encode()
    if store.put_if_absent(key, token, {}) or (store.get(key) or (token, {}))[0] == token:
        raise StoreError(
            f"{key}: the store does not honour If-None-Match: * on put (it overwrote an object); an archive there could be"
            " destroyed by a second writer. Use S3, MinIO or another store with conditional writes"
        )
