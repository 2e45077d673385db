"""The options of the data source, parsed and checked. Needs no Spark."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from pydantic import ValidationError

from archiver.archive.format.layout import is_instance, is_topic_name
from archiver.codec.selection import FIRST_LONG, LAST_LONG, TopicSelection, parse_offsets, parse_partitions
from archiver.config.load import load_config
from archiver.config.model import StorageConfig
from archiver.config.quantities import parse_time_ms
from archiver.errors import UsageError

Value = TypeVar("Value")

DEFAULT_COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers")
MORE_COLUMNS: Final = ("timestampMs",)  # only where it is named
OPTIONS: Final = (
    "url", "endpoint", "region", "index", "config", "topic", "partitions", "offsets", "from", "until", "life", "instance", "history", "columns",
    "onDamage", "verify", "minPartitions", "pushFilters",
)  # fmt: skip
# In place of a topic's name: the positions of consumer groups. No topic can have this name.
POSITIONS: Final = "@groups"
POSITION_COLUMNS: Final = (
    "group", "topic", "life", "partition", "state", "offset", "leaderEpoch", "metadata", "committed", "removed", "lag", "source",
)  # fmt: skip
POSITION_OPTIONS: Final = ("url", "endpoint", "region", "index", "config", "topic", "until", "columns", "onDamage")


class OnDamage(StrEnum):
    """The reaction of a read to damage."""

    FAIL = "fail"
    SKIP = "skip"


class Verify(StrEnum):
    """The comparison of an object with its facts: record counts only, or every byte."""

    COUNTS = "counts"
    DIGEST = "digest"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanOptions:
    """The options of a read: place, selection, and checks."""

    storage: StorageConfig
    topic: str
    columns: tuple[str, ...]
    life: int | None
    instance: str | None  # whose copies of a compacted topic are read; None: by its role logs
    is_history: bool  # reads `topics/`, ignoring role logs
    wanted: TopicSelection
    on_damage: OnDamage
    verify: Verify
    min_tasks: int | None
    pushes_filters: bool

    @property
    def is_hashed(self) -> bool:
        """Whether an object's bytes are checked before its first record; a skipped object is skipped whole."""
        return self.verify is Verify.DIGEST or self.on_damage is OnDamage.SKIP


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionOptions:
    """The options of a read of group positions: time, archive, and checks."""

    storage: StorageConfig
    columns: tuple[str, ...]
    as_of_ms: int
    on_damage: OnDamage


def wants_positions(given: Mapping[str, str]) -> bool:
    """Return whether a user asks for the positions of groups instead of a topic."""
    return any(name.lower() == "topic" and text.strip() == POSITIONS for name, text in given.items())


def parse_position_options(given: Mapping[str, str], storage: StorageConfig | None = None) -> PositionOptions:
    """Parse the options of the table of positions, as `parse_options` those of a topic's."""
    options = {name.lower(): text.strip() for name, text in given.items()}
    _refuse_unknown(options, POSITION_OPTIONS, f" for {POSITIONS}")
    return PositionOptions(
        storage=storage or _storage(options),
        columns=_parsed(options, "columns", partial(_parse_columns, known=POSITION_COLUMNS), POSITION_COLUMNS),
        as_of_ms=_parsed(options, "until", parse_time_ms, LAST_LONG),
        on_damage=_parsed(options, "onDamage", _one_of(OnDamage), OnDamage.FAIL),
    )


def parse_options(given: Mapping[str, str], storage: StorageConfig | None = None) -> ScanOptions:
    """Parse a user's options; names in any case, as Spark has them. Raises UsageError.

    `storage` replaces the options for the archive's place.
    """
    options = {name.lower(): text.strip() for name, text in given.items()}
    _refuse_unknown(options, OPTIONS)
    parsed = partial(_parsed, options)
    from_ms, until_ms = parsed("from", parse_time_ms, FIRST_LONG), parsed("until", parse_time_ms, LAST_LONG)
    if from_ms > until_ms:
        raise UsageError("the range ends before it begins; see options from and until")
    instance, is_history = parsed("instance", _parse_instance, None), parsed("history", _parse_bool, False)
    if instance is not None and is_history:
        raise UsageError(
            "options instance and history: what an instance has copied is not the history; take one of them"
        )
    return ScanOptions(
        storage=storage or _storage(options),
        topic=_topic(options),
        columns=parsed("columns", _parse_columns, DEFAULT_COLUMNS),
        life=parsed("life", _parse_number, None),
        instance=instance,
        is_history=is_history,
        wanted=TopicSelection(
            partitions=parsed("partitions", parse_partitions, None),
            offsets=parsed("offsets", parse_offsets, None),
            from_ms=from_ms,
            until_ms=until_ms,
        ),
        on_damage=parsed("onDamage", _one_of(OnDamage), OnDamage.FAIL),
        verify=parsed("verify", _one_of(Verify), Verify.DIGEST),
        min_tasks=parsed("minPartitions", _parse_number, None),
        pushes_filters=parsed("pushFilters", _parse_bool, False),
    )


def _parsed(options: Mapping[str, str], name: str, parse: Callable[[str], Value], absent: Value) -> Value:
    text = options.get(name.lower())
    if text is None:
        return absent
    try:
        return parse(text)
    except ValueError as error:
        raise UsageError(f"option {name}: {error}") from error


def _refuse_unknown(options: Mapping[str, str], names: Sequence[str], where: str = "") -> None:
    unknown = sorted(options.keys() - {name.lower() for name in names})
    if unknown:
        raise UsageError(f"option {', '.join(unknown)}: there is no such option{where}; there are {', '.join(names)}")


def _storage(options: Mapping[str, str]) -> StorageConfig:
    path = options.get("config")
    places = {name: options[name] for name in ("url", "endpoint", "region", "index") if name in options}
    if path is not None and places:
        raise UsageError(f"option config: has the storage in it; leave {', '.join(places)} out")
    if path is not None:
        return load_config(Path(path)).storage
    if "url" not in places:
        raise UsageError("option url: is required (s3://bucket/prefix), or option config, the path of an archive.yaml")
    try:
        return StorageConfig.model_validate(places)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)[0]
        reason = str(found.get("ctx", {}).get("error") or found["msg"])
        raise UsageError(f"option {found['loc'][0] if found['loc'] else 'url'}: {reason}") from error


def _topic(options: Mapping[str, str]) -> str:
    topic = options.get("topic", "")
    if not is_topic_name(topic):
        raise UsageError(f"option topic: {topic!r} is not the name of a topic; name one")
    return topic


def _parse_instance(text: str) -> str:
    if not is_instance(text):
        raise ValueError(
            f"{text!r} is not the name of an instance: 1 to 64 of a-z A-Z 0-9 . _ -, and begins with a letter or a digit"
        )
    return text


def _parse_number(text: str) -> int:
    if not re.fullmatch(r"\d{1,9}", text, re.ASCII):
        raise ValueError(f"{text!r} is not a number")
    return int(text)


def _parse_bool(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise ValueError(f"{text!r} is neither true nor false")
    return text.lower() == "true"


def _one_of(words: type[Value]) -> Callable[[str], Value]:
    def parse(text: str) -> Value:
        try:
            return words(text.lower())  # type: ignore[call-arg]
        except ValueError:
            known = ", ".join(str(word) for word in words)  # type: ignore[attr-defined]
            raise ValueError(f"{text!r} is none of {known}") from None

    return parse


def _parse_columns(text: str, known: Sequence[str] = (*DEFAULT_COLUMNS, *MORE_COLUMNS)) -> tuple[str, ...]:
    names = {name.lower(): name for name in known}
    wanted = [part.strip() for part in text.split(",")]
    absent = [name for name in wanted if name.lower() not in names]
    if absent:
        raise ValueError(f"{', '.join(map(repr, absent))}: there are {', '.join(known)}")
    columns = tuple(names[name.lower()] for name in wanted)
    if len(set(columns)) < len(columns):
        raise ValueError(f"{text!r} names a column twice")
    return columns
