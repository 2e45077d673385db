"""The object store S3: sends requests, and explains the store's refusals to a user."""

import contextlib
import logging
import math
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import IO, TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import urlencode

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionClosedError,
    ConnectionError,  # noqa: A004 - botocore's own
    CredentialRetrievalError,
    EndpointConnectionError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    PartialCredentialsError,
    SSLError,
)
from urllib3.exceptions import HTTPError

from archiver.config.model import Sse, StorageConfig
from archiver.errors import (
    ArchiverError,
    StoreError,
    StoreLacksError,
    StoreNameError,
    StoreTemporaryError,
    UsageError,
)
from archiver.process.output.logs import warn_once
from archiver.process.output.mask import without_users
from archiver.process.values.loopback import leaves_in_clear
from archiver.store.client import LateRequestError, S3Clients, sending_by
from archiver.store.port import (
    MOST_PUT_BYTES,
    Body,
    ListedObject,
    ObjectInfo,
    ObjectKind,
    ObjectStore,
    ReadBuffer,
    refuse_larger,
)

if TYPE_CHECKING:
    from mypy_boto3_s3.type_defs import DeleteTypeDef, ListObjectsV2RequestTypeDef

log = logging.getLogger(__name__)

Value = TypeVar("Value")

_READ_TIMEOUT_S = 60
_ATTEMPTS = 4  # of botocore; an error that is left after them is raised
_DELETE_PAGE = 1000  # S3's limit
_CONFLICT_ATTEMPTS = 10

_TEMPORARY_CODES = frozenset(
    {
        "InternalError",
        "OperationAborted",
        "RequestTimeout",
        "ServiceUnavailable",
        "SlowDown",
        "SlowDownRead",
        "SlowDownWrite",
        "Throttling",
        "ThrottlingException",
        "XMinioServerNotInitialized",
    }
)
# botocore's errors for lost bytes: a retry may help. All other BotoCoreErrors are final.
_BROKEN_WIRE = (ConnectionError, HTTPClientError, IncompleteReadError, CredentialRetrievalError, HTTPError, OSError)
_PIECE_BYTES = 256 * 1024  # of a body, read at once into a buffer
_ANY_ERROR = (ClientError, BotoCoreError, HTTPError, OSError)
_REFUSED_NAMES = frozenset({"KeyTooLongError", "XMinioInvalidObjectName"})
_REFUSED_CREDENTIALS = frozenset({"InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken"})
_REFUSALS = frozenset(
    {400, 401, 403}
)  # statuses that refused credentials may have; the answer to a HEAD has nothing but its status
# The permission that an operation needs, for the message when it is denied.
_PERMISSIONS = {
    "PutObject": "s3:PutObject",
    "GetObject": "s3:GetObject",
    "HeadObject": "s3:GetObject",
    "DeleteObjects": "s3:DeleteObject",
}
# The permission on the KMS key, where objects are encrypted with one.
_KEY_PERMISSIONS = {"PutObject": "kms:GenerateDataKey", "GetObject": "kms:Decrypt"}


class S3Store:
    """One bucket of S3, or of a store with its protocol."""

    def __init__(
        self, config: StorageConfig, *, attempts: int = _ATTEMPTS, read_timeout_s: float = _READ_TIMEOUT_S
    ) -> None:
        self._bucket = config.bucket
        self._prefix = config.prefix
        self._encryption = _encryption_options(config)
        self._segment_options = _segment_options(config)
        self._renewing = threading.Lock()
        try:
            self._clients = S3Clients(config, attempts, read_timeout_s)
        except (BotoCoreError, ValueError) as error:
            raise UsageError(f"storage: {without_users(str(error))}") from error
        # From the configuration, $AWS_ENDPOINT_URL or a profile; else AWS.
        self._place = without_users(self._clients.patient.meta.endpoint_url)

    def warn_of_clear_text(self) -> None:
        if leaves_in_clear(self._clients.patient.meta.endpoint_url):
            token = " and the session token" if self._clients.has_session_token else ""
            warn_once(f"storage.endpoint: to {self._place} records{token} go in clear; take https")

    def put_if_absent(self, key: str, body: Body, metadata: Mapping[str, str], *, kind: ObjectKind) -> str | None:
        is_segment = kind is ObjectKind.SEGMENT
        options = self._encryption | (self._segment_options if is_segment else {})

        def put(clients: S3Clients) -> str:
            if not isinstance(body, bytes):
                body.seek(0)
            client, content = clients.once if is_segment else clients.patient, cast("IO[bytes]", body)
            answer = client.put_object(
                Bucket=self._bucket, Key=key, Body=content, Metadata=dict(metadata), IfNoneMatch="*", **options
            )
            return _etag(answer)

        for _ in range(1 if is_segment else _CONFLICT_ATTEMPTS):
            try:
                return self._ask(put)
            except ClientError as error:
                if _status(error) == 412:
                    return None
                if _status(error) != 409:  # 409: another put of this key is under way
                    raise self._error("PutObject", key, error, kind) from error
            except _ANY_ERROR as error:
                raise self._error("PutObject", key, error, kind) from error
        raise StoreTemporaryError(f"s3://{self._bucket}/{key}: other writers of this key keep being under way (409)")

    def _ask(self, ask: Callable[[S3Clients], Value]) -> Value:
        """Make a request. If it is refused, and credentials were replaced since they were read, make it once more with the new ones."""
        clients = self._clients
        try:
            return ask(clients)
        except ClientError as error:
            others = self._renewed(clients) if _status(error) in _REFUSALS else None
            if others is None:
                raise
        return ask(others)

    def _renewed(self, used: S3Clients) -> S3Clients | None:
        with self._renewing:
            if self._clients is used:
                others = used.renewed()
                if others is None:
                    return None
                log.info("s3://%s: credentials were replaced; going on with the new ones", self._bucket)
                self._clients = others
            return self._clients

    def now(self) -> datetime:
        below = f"{self._prefix}/" if self._prefix else ""
        try:
            answer: Mapping[str, Any] = self._ask(
                lambda clients: clients.patient.list_objects_v2(Bucket=self._bucket, Prefix=below, MaxKeys=1)
            )
        except _ANY_ERROR as error:
            raise self._error("ListObjectsV2", below, error) from error
        told = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date", "")
        try:
            found = parsedate_to_datetime(told)
        except ValueError:
            found = None
        if found is None or found.tzinfo is None:  # without a zone: two dates of two machines, one of them a proxy
            raise StoreError(f"s3://{self._bucket}: the store does not tell the time in its answers ({told[:80]!r})")
        return found

    def get(self, key: str, most_bytes: int = MOST_PUT_BYTES) -> tuple[bytes, Mapping[str, str]] | None:
        def read(clients: S3Clients) -> tuple[bytes, Mapping[str, str]]:
            answer = clients.patient.get_object(Bucket=self._bucket, Key=key)
            with contextlib.closing(answer["Body"]) as body:
                refuse_larger(key, answer.get("ContentLength", most_bytes), most_bytes)
                content = body.read(most_bytes + 1)  # the body may come in chunks, without a length
                refuse_larger(key, len(content), most_bytes)
                return content + body.read(), answer["Metadata"]  # reading to the end checks that all has come

        return self._or_none("GetObject", key, read)

    def get_into(self, buffer: ReadBuffer, key: str) -> tuple[memoryview, Mapping[str, str]] | None:
        def read(clients: S3Clients) -> tuple[memoryview, Mapping[str, str]]:
            answer = clients.patient.get_object(Bucket=self._bucket, Key=key)
            with contextlib.closing(answer["Body"]) as body:
                refuse_larger(key, answer["ContentLength"], MOST_PUT_BYTES)
                target, filled = buffer.of(answer["ContentLength"]), 0
                while piece := body.read(_PIECE_BYTES):  # reading to the end checks that all has come
                    target[filled : filled + len(piece)] = piece
                    filled += len(piece)
            return target.toreadonly(), answer["Metadata"]

        return self._or_none("GetObject", key, read)

    def get_range(self, key: str, start: int, stop: int) -> bytes | None:
        def read(clients: S3Clients) -> bytes:
            answer = clients.patient.get_object(Bucket=self._bucket, Key=key, Range=f"bytes={start}-{stop - 1}")
            with contextlib.closing(answer["Body"]) as body:
                return body.read()

        return self._or_none("GetObject", key, read)

    def head(self, key: str) -> ObjectInfo | None:
        def read(clients: S3Clients) -> ObjectInfo:
            answer = clients.patient.head_object(Bucket=self._bucket, Key=key)
            return ObjectInfo(
                size=answer["ContentLength"],
                etag=_etag(answer),
                metadata=answer["Metadata"],
                last_modified=answer["LastModified"],
                is_locked=_is_locked(answer),
            )

        return self._or_none("HeadObject", key, read)

    def list(self, prefix: str, start_after: str = "") -> Iterator[ListedObject]:
        for page in self._pages(prefix, start_after, ""):
            for item in page.get("Contents", []):
                yield ListedObject(
                    key=item["Key"], size=item["Size"], etag=_etag(item), last_modified=item["LastModified"]
                )

    def list_directories(self, prefix: str) -> Iterator[str]:
        for page in self._pages(prefix, "", "/"):
            for item in page.get("CommonPrefixes", []):
                yield item["Prefix"][len(prefix) : -1]

    def _pages(self, prefix: str, start_after: str, delimiter: str) -> Iterator[Any]:
        options: ListObjectsV2RequestTypeDef = {
            "Bucket": self._bucket,
            "Prefix": prefix,
            "StartAfter": start_after,
            "Delimiter": delimiter,
        }
        while True:
            try:
                page = self._ask(lambda clients: clients.patient.list_objects_v2(**options))
            except _ANY_ERROR as error:
                raise self._error("ListObjectsV2", prefix, error) from error
            yield page
            if not page.get("IsTruncated"):
                return
            options["ContinuationToken"] = page["NextContinuationToken"]

    def delete(self, keys: Iterable[str]) -> None:
        for error in self.delete_each(keys).values():
            raise error

    def delete_each(self, keys: Iterable[str], *, send_by_s: float = math.inf) -> Mapping[str, ArchiverError]:
        waiting, refused = list(keys), dict[str, ArchiverError]()
        with sending_by(send_by_s):
            for start in range(0, len(waiting), _DELETE_PAGE):
                refused |= self._delete_page(waiting[start : start + _DELETE_PAGE])
        return refused

    def _delete_page(self, keys: Sequence[str]) -> dict[str, ArchiverError]:
        page: DeleteTypeDef = {"Objects": [{"Key": key} for key in keys], "Quiet": True}
        try:
            answer = self._ask(lambda clients: clients.once.delete_objects(Bucket=self._bucket, Delete=page))
        except _ANY_ERROR as error:
            raise self._error("DeleteObjects", keys[0], error) from error
        failures = answer.get("Errors", [])
        return {one.get("Key", ""): self._failure("DeleteObjects", one.get("Key", ""), 0, one) for one in failures}

    def _or_none(self, operation: str, key: str, read: Callable[[S3Clients], Value]) -> Value | None:
        try:
            return self._ask(read)
        except ClientError as error:
            if _status(error) == 404 and _code(error) != "NoSuchBucket":
                return None
            raise self._error(operation, key, error) from error
        except _ANY_ERROR as error:
            raise self._error(operation, key, error) from error

    def _error(self, operation: str, key: str, error: Exception, kind: ObjectKind = ObjectKind.FACT) -> ArchiverError:
        if isinstance(error, ClientError):
            return self._failure(operation, key, _status(error), error.response.get("Error", {}), kind)
        where = f"s3://{self._bucket}/{key}"
        if isinstance(error, NoCredentialsError | PartialCredentialsError):
            return StoreError(
                f"{where}: no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile or role"
            )
        if isinstance(error, _BROKEN_WIRE):
            return self._broken(f"{where}: {operation}", error)
        return StoreError(f"{where}: {operation}: {without_users(str(error))}")

    def _broken(self, doing: str, error: Exception) -> ArchiverError:
        """Convert a connection error into an error that names what to check."""
        cause = type(error).__name__
        match error:
            case SSLError():
                return StoreError(
                    f"{doing}: no TLS with the store at {self._place}: {_tls_reason(error)}; check storage.endpoint, and"
                    " storage.ca-file where its certificate is of a private authority"
                )
            case EndpointConnectionError():
                why = f"no server listens at {self._place}; check storage.endpoint (or AWS_ENDPOINT_URL), and that the store runs"
            case ConnectionClosedError():
                why = (
                    f"{self._place} closed the connection without an answer; if it always does, is it http or https in"
                    " storage.endpoint?"
                )
            case HTTPClientError() if isinstance(error.kwargs.get("error"), LateRequestError):
                why = "was not sent: too much time had passed since it was decided on; this process, or the network, stood still"
            case HTTPClientError() if isinstance(error.kwargs.get("error"), ValueError):
                # Its text contains the header, which may be a token.
                return StoreError(
                    f"{doing}: a header of the request cannot be spelled; is there a line break, or a letter beyond ASCII, in"
                    " AWS_ACCESS_KEY_ID or AWS_SESSION_TOKEN?"
                )
            case _:
                why = without_users(str(error))  # the text contains the address, which may have a password in it
        return StoreTemporaryError(f"{doing}: {why}", cause=cause)

    def _failure(
        self, operation: str, key: str, status: int, answer: Mapping[str, Any], kind: ObjectKind = ObjectKind.FACT
    ) -> ArchiverError:
        """Turn a refusal into an error. `status` is 0 for one key of a delete."""
        where = f"s3://{self._bucket}/{key}"
        code = answer.get("Code", "")
        said = f"the store answered {code}{f' ({status})' if status else ''}: {answer.get('Message', '')}"
        if code == "RequestTimeTooSkewed":
            return StoreTemporaryError(
                f"{where}: {operation}: the clocks of this machine and of the store differ by more than 15 minutes; set this one"
                f" right ({said})",
                cause=code,
            )
        if code == "NotImplemented" or status == 501:
            return StoreLacksError(f"{where}: {operation}: {said}")
        if code in _REFUSED_NAMES:
            return StoreNameError(f"{where}: {operation}: the store takes no object of this name ({said})")
        if code in _TEMPORARY_CODES or status >= 500 or status == 429:
            return StoreTemporaryError(f"{where}: {operation}: {said}", cause=code or str(status))
        return StoreError(self._refusal(operation, key, code, said, kind))

    def _refusal(self, operation: str, key: str, code: str, said: str, kind: ObjectKind) -> str:
        where = f"s3://{self._bucket}/{key}: {operation}"
        if code == "NoSuchBucket":
            return f"bucket {self._bucket} does not exist; create it, or correct storage.url"
        if code in _REFUSED_CREDENTIALS:
            return f"{where}: the credentials were refused; correct them ({said})"
        if code in {"AccessDenied", "403"}:
            return f"{where} was denied; grant {_named_in(said) or self._rights_for(operation, kind)} ({said})"
        return f"{where}: {said}"

    def _rights_for(self, operation: str, kind: ObjectKind) -> str:
        """Return all rights that may be missing: S3 does not always name them, and tags and encryption need their own."""
        below = f" for {self._prefix}/*" if self._prefix else ""
        listing = f"s3:ListBucket on bucket {self._bucket}{below}"
        if operation == "ListObjectsV2":
            return listing
        needed = _PERMISSIONS[operation]
        if operation == "PutObject" and kind is ObjectKind.SEGMENT and "Tagging" in self._segment_options:
            needed += ", s3:PutObjectTagging (storage.tags)"
        needed += " on it"
        if operation == "HeadObject":  # without the right to list, S3 answers 403 for an object that does not exist
            return f"{needed}, and {listing}"
        has_key = operation in _KEY_PERMISSIONS and self._encryption.get("ServerSideEncryption") == "aws:kms"
        return f"{needed}, and {_KEY_PERMISSIONS[operation]} on its key (storage.sse)" if has_key else needed


def _named_in(said: str) -> str:
    """Return the missing right and its resource, if the store names them: AWS knows more, for example about a key."""
    named = re.search(r"is not authorized to perform: (\w+:\w+)(?: on resource: \"?([^\s\"]+))?", said)
    return "" if named is None else f"{named[1]} on {named[2]}" if named[2] else named[1]


def _tls_reason(error: Exception) -> str:
    """OpenSSL's own words, out of those that botocore and urllib3 put around them."""
    found = re.search(r"\[SSL: \w+\] ([^(]+?)(?: \(_ssl|\)|$)", str(error))
    return found[1] if found else str(error)


def _status(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _etag(answer: Mapping[str, Any]) -> str:
    return str(answer.get("ETag", "")).strip('"')


def _is_locked(answer: Mapping[str, Any]) -> bool:
    """Return whether Object Lock protects an object, as far as this user may know."""
    until: datetime | None = answer.get("ObjectLockRetainUntilDate")
    return answer.get("ObjectLockLegalHoldStatus") == "ON" or (until is not None and until > datetime.now(UTC))


def _code(error: ClientError) -> str:
    return error.response.get("Error", {}).get("Code", "")


def _encryption_options(config: StorageConfig) -> dict[str, Any]:
    if config.sse is Sse.S3:
        return {"ServerSideEncryption": "AES256"}
    if config.sse is not Sse.KMS:
        return {}
    key_id = {"SSEKMSKeyId": config.kms_key_id} if config.kms_key_id else {}
    return {"ServerSideEncryption": "aws:kms", **key_id}


def _segment_options(config: StorageConfig) -> dict[str, Any]:
    """Return storage class and tags, for segments only: cheaper classes bill a note of 300 bytes as 128 KB, and a lifecycle rule
    by tag could delete it.
    """
    options: dict[str, Any] = {}
    if config.storage_class:
        options["StorageClass"] = config.storage_class
    if config.tags:
        options["Tagging"] = urlencode(dict(config.tags))
    return options


def open_store(config: StorageConfig) -> ObjectStore:
    """Open the store of a configuration, and warn if others on the network can read."""
    store = S3Store(config)
    store.warn_of_clear_text()
    return store
