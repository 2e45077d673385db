"""Masks possible secrets in displayed texts: users in addresses, queries, tokens."""

import re
from typing import Final

MASK: Final = "********"
_WORDS: Final = (
    "tokens?|auth|authentication|authorization|credentials?|realm|scheme"  # which may follow "Bearer" in prose
)
_NAMES: Final = "secret|password|passwd|pwd|token|assertion|signature|credential|api_?key"


def without_users(text: str) -> str:
    """Mask the user part of URLs in a foreign text: it may contain a password."""
    # The pattern begins at the begin of a word: tried at each letter, 60 KB without an @ held up all threads for 20 s.
    return re.sub(r"(?<![^\s\"'`])([A-Za-z][A-Za-z0-9+.-]*://)?[^\s\"'`]+@", rf"\g<1>{MASK}@", text)


def without_query(url: str) -> str:
    """Cut an address at ? or #: the rest may be a key."""
    found = re.search(r"[?#]", url)
    return url if found is None else f"{url[: found.end()]}{MASK}"


def without_secrets(text: str) -> str:
    """Mask secrets in a foreign text: users and queries of URLs, and values that are named or look like tokens."""
    without_keys = re.sub(r"(\?|(?<=\S)#)[^\s\"'<>()]+", rf"\g<1>{MASK}", without_users(text))
    without_tokens = re.sub(rf"(?i)\b(bearer|basic)(\s+)(?!(?:{_WORDS})\b)\S+", rf"\1\2{MASK}", without_keys)
    named = re.sub(
        rf"(?i)({_NAMES})(\w{{0,20}}[\"']?\s{{0,3}}=\s{{0,3}}|\w{{0,20}}[\"']\s{{0,3}}:\s{{0,3}})[\"']?[^\s\"',;&]+",
        rf"\1\2{MASK}",
        without_tokens,
    )
    return re.sub(r"\beyJ[\w-]{8,}(?:\.[\w-]*)*", MASK, named)
