"""Makes absolute times of relative ones on the command line (`--from -2h`), before argparse takes them for options."""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

_OPTIONS: Final = frozenset({"--from", "--until", "--since", "--as-of", "--now"})
_RELATIVE: Final = re.compile(r"-(\d{1,9}(?:\.\d{1,9})?(?:ms|s|min|h|d|w))", re.ASCII)


def resolve_times(typed: Sequence[str], clock_s: Callable[[], float] = time.time) -> list[str]:  # noqa: TID251 - the clock
    """Return the words with each relative time as an absolute one: what is printed, to be typed again, means the same."""
    return list(_resolved(typed, clock_s))


def _resolved(typed: Sequence[str], clock_s: Callable[[], float]) -> Iterator[str]:
    words = iter(typed)
    for word in words:
        name, _, value = word.partition("=")
        following = ""
        if word in _OPTIONS:
            following = value = next(words, "")
        match = _RELATIVE.fullmatch(value) if name in _OPTIONS else None
        if match is not None:
            from archiver.config.quantities import parse_duration_ms, spell_time

            yield f"{name}={spell_time(round(clock_s() * 1000) - parse_duration_ms(match[1]))}"
        else:
            yield word
            if following:
                yield following
