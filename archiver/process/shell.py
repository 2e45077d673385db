"""Commands that a user may paste into a POSIX shell: whatever the words come from, the shell sees them as they are."""

import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Final

from archiver.process.text import printable

_CONFIG_NAME: Final = re.compile(r"[a-z0-9._-]+", re.ASCII)
# Kafka's tools take several configs in one word: a comma, a bracket or an equals sign in a value would make others of it.
_CONFIG_VALUE: Final = re.compile(r"[A-Za-z0-9._+-]+", re.ASCII)


def spell_command(words: Iterable[str]) -> str:
    """Spell a command. A character that acts on terminals is escaped, so that such a word is no longer what it was."""
    return shlex.join(map(printable, words))


def can_be_typed(words: Iterable[str]) -> bool:
    """Tell whether a command that is printed still says the same."""
    return all(printable(word) == word for word in words)


def can_be_config(name: str, value: str) -> bool:
    """Tell whether this can be what a config of a topic is set to on a command line: what Kafka holds may come from anybody."""
    return _CONFIG_NAME.fullmatch(name) is not None and _CONFIG_VALUE.fullmatch(value) is not None


def spell_configs(configs: Mapping[str, str]) -> str:
    """Spell the word with which Kafka's tools set configs. Raises ValueError for what they would take for something else."""
    for name, value in configs.items():
        if not can_be_config(name, value):
            raise ValueError(f"{name}={value!r} is no config that can be set on a command line")
    return ",".join(f"{name}={value}" for name, value in sorted(configs.items()))
