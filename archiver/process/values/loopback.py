"""Recognises loopback addresses: clear text to them never leaves this machine."""

import ipaddress
from urllib.parse import urlsplit


def is_loopback(host: str) -> bool:
    """Judge a name or an address by its spelling, without a query."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def leaves_in_clear(url: str) -> bool:
    """Return whether requests to a URL can be read on the network."""
    parts = urlsplit(url)
    return parts.scheme.lower() == "http" and not is_loopback(parts.hostname or "")
