"""Gets tokens for SASL OAUTHBEARER from an OpenID provider, or from a user's function, for both clients."""

import asyncio
import base64
import http.client
import importlib
import json
import re
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final, TypeVar, cast

from archiver.errors import KafkaError, KafkaTemporaryError, UsageError
from archiver.process.output.mask import without_query, without_secrets

Value = TypeVar("Value")

TOKEN_PATIENCE_S: Final = 10.0  # for a token; below the 15 s within which a signal ends the program
_GIVE_UP_S = 300.0  # a request that hangs for this long is abandoned, and another one is made
_SPARE_S = 60.0  # a token that expires sooner is not used any more
_LONGEST_LIFE_S = 365 * 86_400.0  # librdkafka computes with no date of any size
_MOST_BYTES = 1 << 20
_REDIRECT = ", a redirect, which is not followed: the client secret is for this address alone; correct the address"
_BUSY = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS}
_TEXT = re.compile(r"[\x21-\x7e]+")  # characters that librdkafka takes, and that do not end a field of a SASL message

# The result of a user's function: a token, and its expiry in milliseconds since the epoch.
Function = Callable[[], tuple[str, int]]


@dataclass(frozen=True, slots=True)
class Token:
    """A token, which brokers accept in place of a password."""

    text: str = field(repr=False)
    expires_at_s: float  # since the epoch


@dataclass(frozen=True, slots=True)
class FunctionSource:
    """`module:function`, imported in the running process: also in a task of Spark."""

    name: str

    def __str__(self) -> str:
        return self.name

    def fetch(self, _: float) -> Token:
        given: object = self.find()()
        match given:
            case (str(text), int() | float() as expires_at_ms):
                return Token(text, expires_at_ms / 1000)
            case _:
                raise TypeError(f"{self.name} returned no token with its expiry (ms since 1970)")

    def find(self) -> Function:
        """Import the function. Raises UsageError that omits the name: it may be a misplaced token or password."""
        module, colon, function = self.name.partition(":")
        if not (module and colon and function.isidentifier()):
            raise UsageError("is not like module:function")
        try:
            found = getattr(importlib.import_module(module), function, None)
        except BaseException as error:  # also SystemExit, of a program that is no module
            is_absent = isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}.")
            reason = "there is no such module" if is_absent else _error_text(error)
            raise UsageError(
                f"{reason}; is it installed beside the archiver, or in a folder that PYTHONPATH names in full?"
            ) from error
        if not callable(found):
            raise UsageError("its module has no function of that name")
        return cast("Function", found)


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcSource:
    """An OpenID provider's token endpoint, asked with client credentials."""

    url: str = field(repr=False)
    client_id: str
    client_secret: str = field(repr=False)
    scope: str = ""
    ca_location: str = ""
    proxy: str = field(default="", repr=False)

    def __str__(self) -> str:
        return without_query(self.url)

    def fetch(self, now_s: float) -> Token:
        form = {"grant_type": "client_credentials"} | ({"scope": self.scope} if self.scope else {})
        parts = (urllib.parse.quote(part, safe="") for part in (self.client_id, self.client_secret))
        credentials = base64.b64encode(":".join(parts).encode()).decode()
        request = urllib.request.Request(  # noqa: S310 - a URL of the configuration, which begins with http
            self.url,
            urllib.parse.urlencode(form).encode(),
            {"Authorization": f"Basic {credentials}", "Accept": "application/json"},
        )
        try:
            with self._opener().open(request, timeout=TOKEN_PATIENCE_S) as answer:
                found = json.loads(answer.read(_MOST_BYTES))
            text = found["access_token"]
            if not isinstance(text, str):
                raise TypeError  # noqa: TRY301 - reported below like any other value that is no token
            return Token(text, now_s + float(found.get("expires_in", 300)))
        except urllib.error.HTTPError as error:
            is_final = error.code < HTTPStatus.INTERNAL_SERVER_ERROR and error.code not in _BUSY
            kind = PermissionError if is_final else OSError
            with error:  # the error is the answer, and holds the connection; its reason may be any text
                raise kind(f"{self} answered {error.code}{_REDIRECT if 300 <= error.code < 400 else ''}") from None
        except urllib.error.URLError as error:
            raise OSError(f"{self}: {error.reason}") from None
        except http.client.HTTPException as error:
            raise OSError(f"{self} does not speak HTTP: {type(error).__name__}") from None
        except (
            ValueError,
            LookupError,
            TypeError,
            ArithmeticError,
            RecursionError,
        ):  # the text of these errors may quote a token
            raise OSError(
                f"{self} answered no token: expected JSON with access_token, and expires_in in seconds"
            ) from None

    def _opener(self) -> urllib.request.OpenerDirector:
        """Return an opener with the configured proxy or none: the environment's proxy was not meant to see a secret."""
        context = ssl.create_default_context(cafile=self.ca_location or None)
        return urllib.request.build_opener(
            urllib.request.HTTPSHandler(context=context),
            urllib.request.ProxyHandler({"https": self.proxy} if self.proxy else {}),
            _NoRedirects(),
        )


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: the client's secret would be sent to any host in an answer."""

    def redirect_request(self, *_: Any, **__: Any) -> None:  # noqa: ANN401 - seven of urllib's
        return None


TokenSource = FunctionSource | OidcSource


class Tokens:
    """Caches the token of a source while it is valid. Thread-safe.

    A source is foreign code and may hang: it is asked in a daemon thread, one at a time.
    """

    def __init__(
        self,
        source: TokenSource,
        extensions: Mapping[str, str],
        *,
        clock: Callable[[], float] = lambda: datetime.now(UTC).timestamp(),
        patience_s: float | None = None,
    ) -> None:
        self.extensions = dict(extensions)
        self._source = source
        self._clock = clock
        self._patience_s = TOKEN_PATIENCE_S if patience_s is None else patience_s
        self._lock = threading.Lock()
        self._asked: Future[Token] | None = None
        self._asked_at_s = 0.0  # by the monotonic clock

    def current(self) -> Token:
        """Return a token. Raises KafkaError, or KafkaTemporaryError if the source is down, or hangs."""
        asked, left_s = self._ask()
        try:
            return asked.result(left_s)
        except TimeoutError:
            raise self._hangs() from None

    async def current_soon(self) -> Token:
        """Return a token without blocking the event loop. May be cancelled at any time."""
        asked, left_s = self._ask()
        if asked.done():
            return asked.result()
        try:
            return await asyncio.wait_for(asyncio.wrap_future(asked), left_s)
        except TimeoutError:
            raise self._hangs() from None

    def _ask(self) -> tuple[Future[Token], float]:
        """Return the pending or new answer, and the seconds to wait for it."""
        with self._lock:
            now_s = time.monotonic()
            if self._asked is None or not self._will_do(self._asked, now_s - self._asked_at_s):
                self._asked, self._asked_at_s = _aside(self._fetch), now_s
            return self._asked, max(0.0, self._asked_at_s + self._patience_s - now_s)

    def _will_do(self, asked: Future[Token], since_s: float) -> bool:
        if not asked.done():
            return since_s < _GIVE_UP_S
        return asked.exception() is None and asked.result().expires_at_s - _SPARE_S >= self._clock()

    def _hangs(self) -> KafkaTemporaryError:
        return KafkaTemporaryError(
            f"there is no token: {self._source} has not given one for {time.monotonic() - self._asked_at_s:.0f} s; does it hang?"
        )

    def _fetch(self) -> Token:
        now_s = self._clock()
        try:
            token = self._source.fetch(now_s)
        except BaseException as error:  # noqa: BLE001 - code of the user's may raise anything, and call sys.exit()
            is_away = isinstance(error, OSError) and not isinstance(error, PermissionError)
            kind = KafkaTemporaryError if is_away else KafkaError
            raise kind(
                f"there is no token: {_error_text(error)}"
            ) from None  # without the cause: a traceback would show its text
        if not _TEXT.fullmatch(token.text):
            raise KafkaError(f"there is no token: what {self._source} gave is none: printable ASCII without blanks")
        lives_s = token.expires_at_s - now_s
        if not lives_s > 0:  # also if it is no number
            raise KafkaError(
                f"there is no token: {self._source} gave one that had expired {-lives_s:,.0f} s ago by the clock of this machine;"
                " is that clock right?"
            )
        return replace(token, expires_at_s=now_s + min(lives_s, _LONGEST_LIFE_S))


def _aside(work: Callable[[], Value]) -> "Future[Value]":
    """Call a function in a daemon thread, which does not keep the program from ending."""
    promised: Future[Value] = Future()
    promised.set_running_or_notify_cancel()  # cannot be cancelled: others may wait for the same answer

    def run() -> None:
        try:
            promised.set_result(work())
        except BaseException as error:  # noqa: BLE001 - it belongs to who waits
            promised.set_exception(error)

    threading.Thread(target=run, name="token", daemon=True).start()
    return promised


def _error_text(error: BaseException) -> str:
    """Return an error's text, if any; with its class if it is no Exception, such as SystemExit."""
    kind, text = type(error).__name__, without_secrets(str(error))
    return text if text and isinstance(error, Exception) else " ".join(filter(None, (kind, text)))
