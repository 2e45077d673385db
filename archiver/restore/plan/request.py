"""The request of a restore, parsed and checked: topics, records, targets, options, and the restore's id."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from archiver.archive.copies.copied_topic import CopyChoice, Pins
from archiver.archive.format.layout import is_restore_id, is_topic_name
from archiver.archive.reading.catalog import is_wanted
from archiver.codec.selection import LAST_LONG, WHOLE, TopicSelection
from archiver.errors import UsageError

_MOST_REPLICAS: Final = 2**15 - 1  # of the protocol
_MOST_PARTITIONS: Final = 10_000  # of one topic: each takes memory of every task
_MOST_BATCH_BYTES: Final = 16 * 1024 * 1024  # more gains nothing, and consumers may keep a whole batch in memory
_CONFIG_NAME: Final = re.compile(r"[a-z][a-z0-9._-]*")
RETENTION_KEYS: Final = ("retention.ms", "retention.bytes")
BATCH_BYTES: Final = 4_000_000  # uncompressed: each batch costs client and broker as much as 200 KB of records do
SENT_BATCH_BYTES: Final = 1_000_000  # compressed: below Kafka's default max.message.bytes


class Retention(StrEnum):
    """The final retention of a restored topic."""

    UNLIMITED = "unlimited"  # a broker deletes records older than its limit within minutes
    LARGEST = "largest"  # the largest that the cluster accepts, if it refuses unlimited
    ARCHIVED = "archived"


class Existing(StrEnum):
    """The treatment of an existing target topic that this restore did not create."""

    EMPTY = "empty"  # filled if it has no record, and treated as if this restore had created it
    APPEND = "append"  # records are added after the topic's own; its configs are left alone
    PURGE = "purge"  # deleted and created again


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreRequest:
    """The request. The same request is the same restore, whatever topics and records it finds."""

    topics: str | None = None  # a regular expression; None: all
    renames: Mapping[str, str] = field(default_factory=dict)
    patterns: tuple[tuple[str, str], ...] = ()  # regular expression and replacement, for names not in `renames`
    life: int | None = None  # None: the newest of each topic
    wanted: TopicSelection = WHOLE
    where: str = ""  # a predicate of Spark SQL over the columns of a record
    # Of each partition only the last record of each key, and all records without a key; None: if a copy is read.
    is_latest_per_key: bool | None = None
    instance: str | None = None  # of compacted topics, its newest complete copy
    is_history: bool = False  # of compacted topics, the history under `topics/`
    existing: Existing = Existing.EMPTY
    retention: Retention = Retention.UNLIMITED
    replication_factor: int | None = None  # None: the cluster's default
    # Configs of the finished topic; an empty value leaves the archived one out. Another value does not make another restore.
    target_configs: Mapping[str, str] = field(default_factory=dict)
    repartition: int | None = None  # into so many partitions, by key; None: as they were
    skips_damage: bool = False
    # Ways of execution: another value does not make another restore.
    first: str | None = None  # a regular expression: these topics before all others
    batch_bytes: int = BATCH_BYTES
    purges_unread: bool = False  # purges without reading the replacement first
    reads_again: bool = False  # compare also partitions that an earlier run has compared
    rate_bytes: int = 0  # a second, of all tasks together; 0: no limit

    def __post_init__(self) -> None:
        self.copy_choice({})
        for option, pattern in (("--topics", self.topics), ("--first", self.first)):
            _check_pattern(option, pattern)
        if self.replication_factor is not None and not 1 <= self.replication_factor <= _MOST_REPLICAS:
            raise UsageError(f"--replication-factor {self.replication_factor}: must be 1 to {_MOST_REPLICAS:,}")
        if self.repartition is not None and not 1 <= self.repartition <= _MOST_PARTITIONS:
            raise UsageError(f"--repartition {self.repartition}: must be 1 to {_MOST_PARTITIONS:,}")
        if self.purges_unread and self.existing is not Existing.PURGE:
            raise UsageError("--purge-unread: goes with --purge-target")
        if not 1 <= self.batch_bytes <= _MOST_BATCH_BYTES:
            raise UsageError(f"--batch-bytes {self.batch_bytes}: must be 1 to {_MOST_BATCH_BYTES:,}")
        for pattern, _ in self.patterns:
            _check_pattern("--rename-regex", pattern)
        partitions, offsets = self.wanted.partitions, self.wanted.offsets
        if partitions is not None and offsets is not None and partitions.isdisjoint(offsets):
            raise UsageError("--partitions and --offsets name no partition in common; nothing would be restored")

    def targets(self, names: Iterable[str]) -> dict[str, str]:
        """Choose topics of an archive; returns the target of each. Raises UsageError."""
        targets = {name: self._target_of(name) for name in sorted(names) if is_wanted(name, self.topics)}
        if not targets:
            raise UsageError(
                f"no archived topic matches {self.topics or 'anything'}; `archiver ls` shows what there is"
            )
        absent = self.renames.keys() - targets
        if absent:
            raise UsageError(f"--rename of {', '.join(sorted(absent))}: not among the topics that are restored")
        for pattern, _ in self.patterns:  # a topic that misses its rename may be purged, or appended to
            if not any(re.fullmatch(pattern, name) for name in targets):
                raise UsageError(f"--rename-regex {pattern}: matches none of the topics that are restored")
        doubled = sorted(name for name, count in Counter(targets.values()).items() if count > 1)
        if doubled:
            raise UsageError(f"two topics would be restored into {', '.join(doubled)}; rename one of them")
        _check_collisions(targets)
        return targets

    def _target_of(self, name: str) -> str:
        if name in self.renames:
            return self.renames[name]
        for pattern, replacement in self.patterns:
            match = re.fullmatch(pattern, name)
            if match is None:
                continue
            try:
                made = match.expand(replacement)
            except (re.error, IndexError) as error:
                raise UsageError(f"--rename-regex {pattern}={replacement}: {error}") from error
            if not is_topic_name(made):
                raise UsageError(f"--rename-regex {pattern}={replacement}: {made!r} cannot be a topic's name")
            return made
        return name

    @property
    def terms(self) -> dict[str, object]:
        """The options that decide on restored records and their retention: they must stay the same under one id."""
        return {
            "life": self.life,
            "wanted": _plain(self.wanted),
            "where": self.where,
            "latest_per_key": bool(self.is_latest_per_key),
            **({"every_record": True} if self.is_latest_per_key is False else {}),
            **({} if self.instance is None else {"instance": self.instance}),
            **({"history": True} if self.is_history else {}),
            "skips_damage": self.skips_damage,
            **({} if self.repartition is None else {"repartition": self.repartition}),
            **({} if self.retention is Retention.UNLIMITED else {"retention": self.retention}),
        }

    def takes_latest(self, *, is_copied: bool) -> bool:
        """Whether only the last record of each key is wanted of a topic; in a compacted one, the others are of no use."""
        return is_copied if self.is_latest_per_key is None else self.is_latest_per_key

    def chooses(self, *, is_copied: bool) -> bool:
        """Whether a topic's records must be read to choose the wanted ones."""
        return bool(self.where) or self.takes_latest(is_copied=is_copied)

    @property
    def is_chosen(self) -> bool:
        """Whether records of every topic must be read to choose the wanted ones."""
        return self.chooses(is_copied=False)

    def copy_choice(self, pinned: Pins) -> CopyChoice:
        """Return the copies to read of compacted topics; `pinned`: those planned before."""
        as_of_ms = self.wanted.until_ms if self.wanted.until_ms < LAST_LONG else None
        return CopyChoice(instance=self.instance, is_history=self.is_history, as_of_ms=as_of_ms, pinned=pinned)

    @property
    def keeps_replicas(self) -> bool:
        """Whether a purged topic is created again with as many replicas as it had."""
        return self.existing is Existing.PURGE and self.replication_factor is None

    @property
    def is_partial(self) -> bool:
        """Whether only some of a topic's records are wanted."""
        return self.is_chosen or self.wanted != WHOLE

    @property
    def sets_retention(self) -> bool:
        """Whether a topic's final retention may let brokers delete restored records."""
        return self.retention is Retention.ARCHIVED or any(map(self.target_configs.get, RETENTION_KEYS))

    def is_first(self, source: str) -> bool:
        """Return whether a topic is requested first, before larger topics."""
        return self.first is not None and re.fullmatch(self.first, source) is not None

    def notes(self, sources: Iterable[str]) -> list[str]:
        """Return the options without effect. Those that would change the restored records are refused instead."""
        found = []
        if self.first is not None and not any(map(self.is_first, sources)):
            found.append(f"--first {self.first}: matches none of the topics that are restored; the largest go first")
        if self.target_configs and self.existing is Existing.APPEND:
            found.append("--target-config: is not set on topics that records are appended to; they keep their configs")
        return found

    def default_id(self, archive_url: str, target_cluster_id: str) -> str:
        """Return the same id for the same command, so that running it again resumes."""
        own = {name: _plain(getattr(self, name)) for name in _OWN}
        text = json.dumps([archive_url, target_cluster_id, own], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


# Options that make another restore.
_OWN: Final = (
    "topics",
    "renames",
    "life",
    "patterns",
    "wanted",
    "where",
    "is_latest_per_key",
    "instance",
    "is_history",
    "existing",
    "retention",
    "replication_factor",
    "repartition",
    "skips_damage",
)


def _plain(value: object) -> object:
    if isinstance(value, TopicSelection):
        partitions = None if value.partitions is None else sorted(value.partitions)
        offsets = None if value.offsets is None else sorted([nr, *ends] for nr, ends in value.offsets.items())
        return [partitions, offsets, value.from_ms, value.until_ms]
    return value


def _check_collisions(targets: Mapping[str, str]) -> None:
    """Refuse targets that a cluster does not have side by side: in names of its metrics a dot becomes an underscore."""
    taken: dict[str, str] = {}
    for source, target in targets.items():
        other = taken.setdefault(target.replace(".", "_"), target)
        if other != target:
            raise UsageError(
                f"targets {other} and {target} are one name to Kafka, for which . and _ are the same in the names of metrics:"
                f" it does not create both; restore one under another name, such as with --rename {source}=NEW"
            )


def _check_pattern(option: str, pattern: str | None) -> None:
    if pattern == "":  # written by a script with an unset variable
        raise UsageError(f"{option}: is empty; give a regular expression, or leave it out")
    try:
        re.compile(pattern or "")
    except re.error as error:
        raise UsageError(f"{option} {pattern}: not a regular expression: {error}") from error


def parse_renames(texts: Iterable[str]) -> dict[str, str]:
    """Parse `OLD=NEW` pairs of --rename. Raises UsageError."""
    renames: dict[str, str] = {}
    for text in texts:
        old, equals, new = text.partition("=")
        if not (equals and old and new) or old in renames:
            raise UsageError(f"--rename {text}: must be OLD=NEW, each OLD once")
        if not is_topic_name(new):
            raise UsageError(f"--rename {text}: {new} cannot be a topic's name (1 to 249 of a-z A-Z 0-9 . _ -)")
        renames[old] = new
    return renames


def parse_patterns(texts: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Parse `REGEX=NEW` pairs of --rename-regex; NEW may name groups of it. Raises UsageError."""
    patterns: list[tuple[str, str]] = []
    for text in texts:
        pattern, equals, replacement = text.rpartition("=")
        if not (equals and pattern and replacement):
            raise UsageError(f"--rename-regex {text}: must be REGEX=NEW, such as '(.*)=copy.\\1'")
        patterns.append((pattern, replacement))
    return tuple(patterns)


def parse_target_configs(texts: Iterable[str]) -> dict[str, str]:
    """Parse `NAME=VALUE` and `NAME=` of --target-config. Raises UsageError."""
    configs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not _CONFIG_NAME.fullmatch(name) or name in configs:
            raise UsageError(
                f"--target-config {text}: must be NAME=VALUE, or NAME= to leave out the archived value; each NAME once"
            )
        configs[name] = value
    return configs


def check_restore_id(restore_id: str, option: str = "--id") -> str:
    """Return an id that can be part of a key. `option`: its source."""
    if not is_restore_id(restore_id):
        raise UsageError(
            f"{option} {restore_id}: must be 1 to 64 of a-z A-Z 0-9 . _ -, and begin with a letter or a digit"
        )
    return restore_id
