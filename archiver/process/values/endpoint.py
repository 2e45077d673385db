"""Splits endpoints into host and port, and http addresses into their parts."""

import re
from typing import Final

_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/?#@\[\]]+)(?::([0-9]{1,5}))?")
_URL: Final = re.compile(r"(https?)://([^/?#@\s]+)([/?][^#@\s\x00-\x20\x7f]*)?")
_LAST_PORT: Final = 65535


def split_host(text: str) -> tuple[str, int | None] | None:
    """Return the host of `host` or `host:port`, and its port, if any; None: the text is neither, or the port is too high."""
    found = _HOST.fullmatch(text)
    if found is None:
        return None
    port = None if found[2] is None else int(found[2])
    return None if port is not None and port > _LAST_PORT else (found[1], port)


def port_of(text: str) -> int | None:
    """Return the port of `host:port`; None: the text is not of this form, or the port is too high."""
    found = split_host(text)
    return None if found is None else found[1]


def split_url(text: str) -> tuple[str, str, int | None, str] | None:
    """Return scheme, host, port and the rest of an http address without a user's name; None: the text is no such address."""
    found = _URL.fullmatch(text)
    host = split_host(found[2]) if found is not None else None
    if found is None or host is None or host[1] == 0:
        return None
    return found[1], *host, found[3] or ""
