"""Finds the partitions in a broker's log directory: their log files, checkpoints and ids, as a broker would find them at its start."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from archiver.archive.format.layout import MOST_OFFSET, is_topic_name
from archiver.errors import UsageError

_PARTITION: Final = re.compile(r"(?P<topic>.+)-(?P<partition>0|[1-9]\d{0,9})")
_NOT_IN_USE: Final = re.compile(
    r"(?P<topic>.+)-(?P<partition>0|[1-9]\d{0,9})\.[0-9a-f]{32}-(?P<state>delete|future|stray)"
)
_LOG: Final = re.compile(r"(?P<base>\d{20})\.log(?P<state>\.swap|\.cleaned|\.deleted)?")
_ID: Final = re.compile(r"[!-~]{0,255}")
_PARTITIONS: Final = range(2**31)
_NUMBER: Final = re.compile(r"[0-9]{1,19}")
_MOST_CHECKPOINT_BYTES: Final = 64 * 1024 * 1024
_METADATA: Final = "__cluster_metadata"
_META: Final = "meta.properties"
_PARTITION_META: Final = "partition.metadata"
_INDEX: Final = re.compile(r"(?P<base>\d{20})\.(?:index|timeindex)")
_CLEANED: Final = "cleaner-offset-checkpoint"
_REPLICATED: Final = "replication-offset-checkpoint"
_EPOCHS: Final = "leader-epoch-checkpoint"


class LogFile(NamedTuple):
    """One file of record batches."""

    path: Path
    base: int  # the offset in its name: no batch in it is below
    size: int


class Epoch(NamedTuple):
    """A leader epoch, and the first offset that was written in it."""

    number: int
    start: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFolder:
    """One replica of a partition."""

    path: Path
    topic: str
    partition: int
    topic_id: str  # empty: unknown
    files: tuple[LogFile, ...]  # by base
    epochs: tuple[Epoch, ...]
    replicated_to: int | None  # every replica had the records below when the broker last noted it; None: unknown
    cleaned_to: int  # the cleaner had compacted the records below
    lost: tuple[Path, ...]  # indexes whose log file is missing

    @property
    def stable_end(self) -> int:
        """The offset that compaction had not passed. Unknown counts as the last one of all: no archive reaches it."""
        unknown = self.replicated_to is None or self.lost
        return MOST_OFFSET if unknown else max(self.replicated_to or 0, self.cleaned_to)

    def loses_file(self, begin: int, end: int) -> bool:
        """Return whether a log file is missing whose base is between two offsets. Its index has its base as its name."""
        return any(begin <= int(index.stem) < end for index in self.lost)

    @property
    def size(self) -> int:
        return sum(one.size for one in self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirectory:
    """A broker's log directory. `skipped`: folders and files that are not part of a log in use, with the reason."""

    path: Path
    cluster_id: str  # empty: unknown
    folders: tuple[PartitionFolder, ...]
    skipped: tuple[str, ...]


def read_log_directory(path: Path, *, deleted: bool = False) -> LogDirectory:
    """Read the names and checkpoints in a log directory. `deleted`: topics that were being deleted, in place of those in use."""
    try:
        return _read(path, deleted=deleted)
    except OSError as error:
        raise UsageError(f"{error.filename or path}: cannot be read: {error.strerror}") from error


def _read(path: Path, *, deleted: bool) -> LogDirectory:
    if not path.is_dir():
        raise UsageError(f"{path}: is no directory; name a log directory of a broker (log.dirs)")
    skipped: list[str] = []
    noted = _noted_offsets(path / _REPLICATED), _noted_offsets(path / _CLEANED)
    folders: list[PartitionFolder] = []
    for folder in sorted(one for one in path.iterdir() if one.is_dir()):
        former, current = _NOT_IN_USE.fullmatch(folder.name), _PARTITION.fullmatch(folder.name)
        found = former if deleted and former and former["state"] == "delete" else None if deleted else current
        if former and not found:
            skipped.append(f"{folder}: {_WHY_SKIPPED[former['state']]}")
        elif found and found["topic"] == _METADATA:
            skipped.append(f"{folder}: the cluster's own metadata, which is no topic")
        elif found and is_topic_name(found["topic"]) and int(found["partition"]) in _PARTITIONS:
            folders.append(_read_folder(folder, found["topic"], int(found["partition"]), *noted, skipped))
    if not folders:
        raise UsageError(
            f"{path}: has no folder of a partition (such as orders-0); name a log directory of a broker (log.dirs)"
        )
    return LogDirectory(
        path=path,
        cluster_id=_id(path / _META, "=", "cluster.id"),
        folders=tuple(folders),
        skipped=tuple(skipped),
    )


_WHY_SKIPPED: Final = {
    "delete": "the topic was being deleted; --deleted imports such topics",
    "future": "a copy for another disk was not complete",
    "stray": "the broker no longer had this partition",
}


_Noted = Mapping[tuple[str, int], int]


def _read_folder(
    path: Path, topic: str, partition: int, replicated: _Noted, cleaned: _Noted, skipped: list[str]
) -> PartitionFolder:
    return PartitionFolder(
        path=path,
        topic=topic,
        partition=partition,
        topic_id=_id(path / _PARTITION_META, ":", "topic_id"),
        files=tuple(_log_files(path, skipped)),
        epochs=tuple(Epoch(*numbers) for numbers in _numbers(path / _EPOCHS, 2)),
        replicated_to=replicated.get((topic, partition)),
        cleaned_to=cleaned.get((topic, partition), 0),
        lost=tuple(_indexes_alone(path)),
    )


def _log_files(path: Path, skipped: list[str]) -> Iterator[LogFile]:
    """Yield the files of a log by base. Unfinished work of the cleaner is completed or dropped, as brokers do."""
    by_state: dict[str, list[LogFile]] = {"": [], ".swap": [], ".cleaned": [], ".deleted": []}
    for file in path.iterdir():
        found = _LOG.fullmatch(file.name)
        if found and file.is_file() and int(found["base"]) < MOST_OFFSET:
            by_state[found["state"] or ""].append(LogFile(file, int(found["base"]), file.stat().st_size))
    # A file behind the first that is being cleaned is part of a split that did not end.
    first_cleaned = min((one.base for one in by_state[".cleaned"]), default=None)
    swaps = [one for one in by_state[".swap"] if first_cleaned is None or one.base < first_cleaned]
    unused = [*by_state[".cleaned"], *by_state[".deleted"], *(one for one in by_state[".swap"] if one not in swaps)]
    skipped += [f"{one.path}: a file of the log cleaner, or one that was being deleted" for one in sorted(unused)]
    yield from sorted([*swaps, *by_state[""]], key=lambda one: (one.base, one not in swaps))


def _indexes_alone(path: Path) -> Iterator[Path]:
    """Yield the indexes of log files that are in no state there."""
    names = [file.name for file in path.iterdir()]
    bases = {found["base"] for name in names if (found := _LOG.fullmatch(name))}
    alone = {found["base"]: name for name in sorted(names) if (found := _INDEX.fullmatch(name))}
    yield from (path / name for base, name in alone.items() if base not in bases)


def is_swap(file: LogFile) -> bool:
    """Return whether a file replaces the plain files whose base is between its own and its last offset."""
    return file.path.suffix == ".swap"


def _noted_offsets(path: Path) -> _Noted:
    """Read a checkpoint: an offset for each partition."""
    found: dict[tuple[str, int], int] = {}
    for line in _checkpoint_lines(path):
        parts = line.split()
        if len(parts) == 3 and all(map(_NUMBER.fullmatch, parts[1:])) and int(parts[2]) < MOST_OFFSET:
            found[parts[0], int(parts[1])] = int(parts[2])
    return found


def _numbers(path: Path, count: int) -> Iterator[tuple[int, ...]]:
    for line in _checkpoint_lines(path):
        parts = line.split()
        if len(parts) == count and all(map(_NUMBER.fullmatch, parts)):
            yield tuple(map(int, parts))


def _checkpoint_lines(path: Path) -> Iterable[str]:
    """Return the lines behind a checkpoint's version and count; none if the file is missing, or of another version."""
    lines = _text(path).splitlines()
    return [one for one in lines[2:] if one.strip()] if lines and lines[0].strip() == "0" else []


def _id(path: Path, separator: str, name: str) -> str:
    """Return an id from a file of properties; empty if it has none."""
    pairs = (line.partition(separator) for line in _text(path).splitlines() if not line.startswith("#"))
    found = {key.strip(): value.strip() for key, _, value in pairs}.get(name, "")
    if _ID.fullmatch(found) is None:
        raise UsageError(f"{path}: {found[:100]!r} cannot be a {name}; bring the file back, or remove it")
    return found


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MOST_CHECKPOINT_BYTES).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
