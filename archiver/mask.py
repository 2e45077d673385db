"""What must not be shown of a text that somebody wrote into the configuration."""

import re
from typing import Final

MASK: Final = "********"


def without_user(text: str) -> str:
    """For messages: what stands before an @ may hold a password, and behind a ? a signature."""
    before, at, rest = text.rpartition("@")
    return f"{MASK if before else ''}{at}{without_query(rest)}"


def without_users(text: str) -> str:
    """For messages of others: the same of every address in them."""
    # Looked for at the begin of a word alone: from each of its letters, 60 KB without an @ held up all threads for 20 s.
    return re.sub(r"(?<![^\s\"'`/])[^\s\"'`/]+@", f"{MASK}@", text)


def without_query(url: str) -> str:
    """What stands behind a ? may be a key."""
    place, mark, _ = url.partition("?")
    return f"{place}?{MASK}" if mark else place


def without_secrets(text: str) -> str:
    """For errors of code that is not ours: users in addresses, what stands behind a ?, and what looks like a token."""
    without_keys = re.sub(r"\?[^\s\"'<>()]+", f"?{MASK}", without_users(text))
    return re.sub(r"(?i)(?:(?<=bearer )|(?<=basic ))(?=\S*\d)\S+|\beyJ[\w-]{8,}(?:\.[\w-]*)*", MASK, without_keys)
