"""Spells commands for users to paste into a POSIX shell, which takes all words literally, whatever their source."""

import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Final

from archiver.process.output.text import printable

_CONFIG_NAME: Final = re.compile(r"[a-z0-9._-]+", re.ASCII)
# Kafka's tools take several configs in one word: a comma, a bracket or an equals sign in a value would make others of it.
_CONFIG_VALUE: Final = re.compile(r"[A-Za-z0-9._+-]+", re.ASCII)


def spell_command(words: Iterable[str]) -> str:
    """Spell a command. Characters that act on terminals are escaped, which changes the word (see `can_be_typed`)."""
    return shlex.join(map(printable, words))


def can_be_typed(words: Iterable[str]) -> bool:
    """Return whether a command prints unchanged: no word has a character that must be escaped."""
    return all(printable(word) == word for word in words)


def can_be_config(name: str, value: str) -> bool:
    """Return whether a topic config is safe on a command line: its name and value are untrusted."""
    return _CONFIG_NAME.fullmatch(name) is not None and _CONFIG_VALUE.fullmatch(value) is not None


def spell_configs(configs: Mapping[str, str]) -> str:
    """Spell configs as one word for Kafka's tools. Raises ValueError for a config that they would misread."""
    for name, value in configs.items():
        if not can_be_config(name, value):
            raise ValueError(f"{name}={value!r} is no config that can be set on a command line")
    return ",".join(f"{name}={value}" for name, value in sorted(configs.items()))
