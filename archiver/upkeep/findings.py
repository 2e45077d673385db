"""What a task that checks or compares a part of the archive found."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What a task that looks at things found; `error`: what kept it from looking at all of them."""

    examined: int = 0
    problems: tuple[str, ...] = ()
    error: str = ""
    exit_code: int = 0
