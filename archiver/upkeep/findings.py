"""The result of a `verify` task: amounts examined, and problems."""

from dataclasses import dataclass

from archiver.archive.layout import CopyKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What one task has found: how many objects or records it has examined, and their problems; `error`: why it could not examine all."""

    examined: int = 0
    problems: tuple[str, ...] = ()
    outdated: CopyKey | None = None  # a copy that has keys which Kafka no longer has
    error: str = ""
    exit_code: int = 0
