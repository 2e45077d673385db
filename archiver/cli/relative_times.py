"""Resolves relative times on the command line (`--from -2h`), before argparse takes them for options. Used by `main`."""

import re
import time
from collections.abc import Callable, Sequence
from typing import Final

_OPTIONS: Final = frozenset({"--from", "--until", "--since", "--as-of", "--now"})
_RELATIVE: Final = re.compile(r"-(\d{1,9}(?:\.\d{1,9})?(?:ms|s|min|h|d|w))", re.ASCII)
_LIKE_ONE: Final = re.compile(r"-\d\S*[a-zA-Z]\S*", re.ASCII)


def resolve_times(typed: Sequence[str], clock_s: Callable[[], float] = time.time) -> list[str]:  # noqa: TID251 - the clock
    """Return the words with each relative time as an absolute one: a printed command means the same when it is typed again."""
    found: list[str] = []
    for word in typed:
        is_value = bool(found) and found[-1] in _OPTIONS
        name, _, value = (f"{found[-1]}={word}" if is_value else word).partition("=")
        match = _RELATIVE.fullmatch(value) if name in _OPTIONS else None
        if match is None:
            if is_value and _LIKE_ONE.fullmatch(word):  # the command refuses it, and says what a time is like
                found[-1] = f"{name}={word}"
            else:
                found.append(word)
            continue
        from archiver.config.quantities import parse_duration_ms, spell_time

        moment = spell_time(round(clock_s() * 1000) - parse_duration_ms(match[1]))
        found[len(found) - is_value :] = [f"{name}={moment}"]
    return found
