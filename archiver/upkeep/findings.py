"""What a task found that checks or compares a part of the archive."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """How much a task examined, and what is wrong with it; `error`: why it could not examine all."""

    examined: int = 0
    problems: tuple[str, ...] = ()
    error: str = ""
    exit_code: int = 0
