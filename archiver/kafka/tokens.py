"""Tokens for SASL OAUTHBEARER: from an OpenID provider, or from a function of the user's; the same for both clients."""

import base64
import importlib
import json
import ssl
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from typing import cast

from archiver.errors import UsageError

_PATIENCE_S = 15.0
_SPARE_S = 60.0  # a token that expires sooner is not shown to anybody any more
_MOST_BYTES = 1 << 20

# What a function of the user's returns: a token, and when it expires, in milliseconds since the epoch.
Function = Callable[[], tuple[str, int]]


@dataclass(frozen=True, slots=True)
class Token:
    """What a broker takes for a password."""

    text: str = field(repr=False)
    expires_at_s: float  # since the epoch


@dataclass(frozen=True, slots=True)
class FunctionSource:
    """`module:function`, found where the program runs: also in a task of Spark."""

    name: str

    def fetch(self, _: float) -> Token:
        text, expires_at_ms = self.find()()
        return Token(text, expires_at_ms / 1000)

    def find(self) -> Function:
        """Import it. Raises UsageError."""
        module, colon, function = self.name.partition(":")
        if not (module and colon and function.isidentifier()):
            raise UsageError(f"{self.name!r} is not like module:function")
        try:
            found = getattr(importlib.import_module(module), function)
        except Exception as error:
            reason = str(error) or type(error).__name__
            raise UsageError(
                f"{self.name}: {reason}; is it installed beside the archiver, or on PYTHONPATH?"
            ) from error
        if not callable(found):
            raise UsageError(f"{self.name} is no function")
        return cast("Function", found)


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcSource:
    """An OpenID provider's token endpoint, asked with client credentials."""

    url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str = ""
    ca_location: str = ""

    def fetch(self, now_s: float) -> Token:
        form = {"grant_type": "client_credentials"} | ({"scope": self.scope} if self.scope else {})
        parts = (urllib.parse.quote(part, safe="") for part in (self.client_id, self.client_secret))
        credentials = base64.b64encode(":".join(parts).encode()).decode()
        request = urllib.request.Request(  # noqa: S310 - a URL of the configuration, which begins with http
            self.url,
            urllib.parse.urlencode(form).encode(),
            {"Authorization": f"Basic {credentials}", "Accept": "application/json"},
        )
        context = ssl.create_default_context(cafile=self.ca_location or None)
        try:
            with urllib.request.urlopen(request, timeout=_PATIENCE_S, context=context) as answer:  # noqa: S310
                found = json.loads(answer.read(_MOST_BYTES))
            return Token(str(found["access_token"]), now_s + float(found.get("expires_in", 300)))
        except urllib.error.HTTPError as error:
            kind = PermissionError if error.code < HTTPStatus.INTERNAL_SERVER_ERROR else OSError
            with error:  # it is the answer, and holds the connection
                raise kind(f"{self.url} answered {error.code} {error.reason}") from None
        except urllib.error.URLError as error:
            raise OSError(f"{self.url}: {error.reason}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise OSError(f"{self.url} answered no token: {error!r}") from error


Source = FunctionSource | OidcSource


class Tokens:
    """The token of a source, kept while it is good. Safe for many threads."""

    def __init__(
        self,
        source: Source,
        extensions: Mapping[str, str],
        *,
        clock: Callable[[], float] = lambda: datetime.now(UTC).timestamp(),
    ) -> None:
        self.extensions = dict(extensions)
        self._source = source
        self._clock = clock
        self._lock = threading.Lock()
        self._token: Token | None = None

    def current(self) -> Token:
        """Raises whatever the source raises."""
        with self._lock:
            now_s = self._clock()
            if self._token is None or self._token.expires_at_s - _SPARE_S < now_s:
                self._token = self._source.fetch(now_s)
            return self._token
