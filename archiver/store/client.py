"""Owns the S3 clients: opens them, signs requests, reads answers, renews replaced credentials. The only user of boto3."""

import base64
import contextlib
import io
import math
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Final, cast
from xml.etree import ElementTree as ET

import boto3.session
import botocore.session
from botocore.auth import AUTH_TYPE_MAPS, S3SigV4Auth
from botocore.awsrequest import AWSPreparedRequest, AWSRequest
from botocore.config import Config
from botocore.credentials import RefreshableCredentials
from botocore.exceptions import BotoCoreError
from botocore.loaders import Loader, create_loader
from botocore.session import Session
from botocore.utils import get_environ_proxies

from archiver.config.model import StorageConfig
from archiver.errors import UsageError
from archiver.process.output.mask import without_users
from archiver.process.running.silence import steady_s

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_CONNECT_TIMEOUT_S = 10
_ONCE_TIMEOUT_S = 30
_CONNECTIONS = 32
_PUT_SIGNATURE: Final = "archiver-put"


def configured_endpoint(config: StorageConfig) -> str:
    """Return the endpoint of the configuration, the environment or a profile; empty: AWS."""
    if config.endpoint is not None:
        return config.endpoint
    # Any region will do: the default endpoint is derived from it without a request.
    try:
        resolved: str = _open_session(config.profile).create_client("s3", region_name="us-east-1").meta.endpoint_url
    except (BotoCoreError, ValueError) as error:
        raise UsageError(f"storage: {without_users(str(error))}") from error
    return "" if resolved.endswith(".amazonaws.com") else resolved


class S3Clients:
    """Two clients of one session, which has read the credentials once. Thread-safe."""

    def __init__(self, config: StorageConfig, attempts: int, read_timeout_s: float) -> None:
        self._config, self._attempts, self._read_timeout_s = config, attempts, read_timeout_s
        self._session = _open_session(config.profile)
        self._opener = boto3.session.Session(
            botocore_session=self._session
        )  # one for both clients: each boto3 session adds its methods to the botocore session
        self._opening = threading.Lock()
        self._once: S3Client | None = (
            None  # opened with the first put of a segment: it takes 40 ms, and most commands put none
        )
        self.patient = self._open(attempts, read_timeout_s)
        self._origin = _origin_of(self._session)

    @property
    def has_session_token(self) -> bool:
        """Whether requests carry a session token, which is sent in clear text; a secret key never is."""
        found = self._session.get_credentials()
        return found is not None and bool(found.token)

    @property
    def once(self) -> "S3Client":
        """The client that never repeats a request, for requests that need a check before each attempt.

        A segment is put again by its writer, which waits without a thread, and checks whether other writers have continued
        in this partition while this process was stopped. A delete is repeated by the caller, who reads the holds again.
        """
        with self._opening:
            if self._once is None:
                self._once = self._open(1, min(self._read_timeout_s, _ONCE_TIMEOUT_S))
            return self._once

    def renewed(self) -> "S3Clients | None":
        """Read the credentials again. None: they have not changed, or are just being written."""
        try:
            origin = _origin_of(_open_session(self._config.profile))
            is_news = origin is not None and origin != self._origin
            return S3Clients(self._config, self._attempts, self._read_timeout_s) if is_news else None
        except (BotoCoreError, ValueError):
            return None

    def _open(self, attempts: int, read_timeout_s: float) -> "S3Client":
        """Open a client. It uses a proxy of the environment, as AWS's own tools do, but only for an https store: a proxy
        would read the traffic to another one.
        """
        made = self._make(attempts, read_timeout_s, proxies=None)
        endpoint = made.meta.endpoint_url
        if endpoint.lower().startswith("http://") and get_environ_proxies(endpoint):
            made = self._make(attempts, read_timeout_s, proxies={})
        made.meta.events.register("choose-signer.s3.PutObject", _choose_signature)
        made.meta.events.register("before-parse.s3.ListObjectsV2", read_rows)
        made.meta.events.register("before-send.s3.DeleteObjects", _time_body)
        return made

    def _make(self, attempts: int, read_timeout_s: float, *, proxies: dict[str, str] | None) -> "S3Client":
        config = self._config
        return self._opener.client(
            "s3",
            endpoint_url=config.endpoint,
            verify=None if config.ca_file is None else str(config.ca_file),
            region_name=config.region or ("us-east-1" if config.endpoint else None),
            config=Config(
                connect_timeout=_CONNECT_TIMEOUT_S,
                read_timeout=read_timeout_s,
                retries={"mode": "standard", "total_max_attempts": attempts},
                max_pool_connections=_CONNECTIONS,
                proxies=proxies,
                # `_PutSignature` sends a put's checksum. botocore would send another one, and over https in a trailer, which
                # not every store takes.
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
                s3={"addressing_style": "path" if config.endpoint else "auto"},
            ),
        )


def _origin_of(session: Session) -> tuple[object, object] | None:
    """Return a value that changes when the credentials are replaced; None without credentials.

    Credentials that renew themselves change regularly: for them the value covers only their source.
    """
    found = session.get_credentials()
    if found is None:
        return None
    own = None if isinstance(found, RefreshableCredentials) else found.get_frozen_credentials()
    return session.full_config, own


# --- signatures


class _PutSignature(S3SigV4Auth):
    """Signs a put, which takes the SHA-256 of its body, and sends this SHA-256 as the checksum, too.

    A bucket with Object Lock refuses a put without a checksum. Any other checksum costs 20 ms (CRC32) to 60 ms of CPU for 64 MiB.
    """

    def payload(self, request: AWSRequest) -> str:
        digest = super().payload(request)
        del request.headers[_CHECKSUM]
        request.headers[_CHECKSUM] = base64.b64encode(bytes.fromhex(digest)).decode()
        return digest

    def _should_sha256_sign_payload(self, request: AWSRequest) -> bool:  # noqa: ARG002 - even if a profile disables it
        return True


_CHECKSUM: Final = "x-amz-checksum-sha256"
AUTH_TYPE_MAPS[_PUT_SIGNATURE] = _PutSignature


def _choose_signature(signature_version: str, **_: object) -> Any:  # noqa: ANN401 - a name or nothing, which the stubs do not know
    """Choose `_PutSignature` for `v4` and `s3v4`, which are the same here; leave unsigned requests, and other signatures, alone."""
    return _PUT_SIGNATURE if signature_version in {"v4", "s3v4"} else None


# --- deletes that must not be sent late


class LateRequestError(Exception):
    """A request was not sent completely before its time was over: the store cannot have carried it out."""


_send_by_s: ContextVar[float] = ContextVar("send_by_s", default=math.inf)


@contextlib.contextmanager
def sending_by(moment_s: float) -> Iterator[None]:
    """Let the deletes of a block fail if their bodies are not sent by a moment of `steady_s`."""
    before = _send_by_s.set(moment_s)
    try:
        yield
    finally:
        _send_by_s.reset(before)


class _TimedBody(io.BytesIO):
    """A body that cannot be read once its time is over: neither a slow connect nor a stopped process sends it then."""

    def __init__(self, content: bytes, send_by_s: float) -> None:
        super().__init__(content)
        self._send_by_s = send_by_s

    def read(self, size: int | None = -1, /) -> bytes:
        if steady_s() > self._send_by_s:
            raise LateRequestError("its time was over before it was sent")
        return super().read(size)


def _time_body(request: AWSPreparedRequest, **_: object) -> None:
    if _send_by_s.get() < math.inf:
        request.body = _TimedBody(cast("bytes", request.body), _send_by_s.get())


# --- sessions


def _open_session(profile: str | None) -> Session:
    session = botocore.session.get_session()
    if profile is not None:  # it takes precedence over credentials in variables
        session.set_config_variable("profile", profile)
    session.register_component("data_loader", _loader(session.get_config_variable("data_path")))
    return session


@cache
def _loader(data_path: str | None) -> Loader:
    """Return botocore's loader, one for the process: it reads 1 MB of JSON about S3, which takes 0.12 s of CPU."""
    return create_loader(data_path)


# --- answers


def read_rows(response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: object) -> None:
    """Read the rows of a page of a listing, and take them out before botocore parses it: botocore takes three times as long."""
    if response_dict["status_code"] != 200:
        return
    try:
        page = ET.fromstring(response_dict["body"])  # noqa: S314 - what botocore would do with it
        namespace = page.tag.removesuffix("ListBucketResult")
        key, size, etag, time = (f"{namespace}{name}" for name in ("Key", "Size", "ETag", "LastModified"))
        rows = [
            {
                "Key": row.findtext(key),
                "Size": int(row.findtext(size, "")),
                "ETag": row.findtext(etag, ""),
                "LastModified": datetime.fromisoformat(row.findtext(time, "")),
            }
            for row in page.iterfind(f"{namespace}Contents")
        ]
    except (ET.ParseError, ValueError):
        return  # botocore parses the page and raises the error
    page[:] = [child for child in page if child.tag != f"{namespace}Contents"]
    response_dict["body"] = ET.tostring(page)
    customized_response_dict["Contents"] = rows
