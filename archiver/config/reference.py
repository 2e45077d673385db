"""Generates docs/configuration.md from the model, and lists the effective values for `config show`."""

import json
import re
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from archiver.config.kafka_keys import KAFKA_KEYS, shown
from archiver.config.model import ArchiverConfig
from archiver.config.quantities import (
    parse_duration_ms,
    parse_size_bytes,
    parse_start,
    spell_exact_duration,
    spell_exact_size,
    spell_time,
)
from archiver.config.section import Section, item_section_of, section_of

_HEAD: Final = ("| key | takes (default) | |", "| --- | --- | --- |")
Spelled = str | list[str] | list[dict[str, "Spelled"]]
_SPELLED: Final[Mapping[object, Callable[[int], str]]] = {
    parse_size_bytes: spell_exact_size,
    parse_duration_ms: spell_exact_duration,
    parse_start: spell_time,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRow:
    """One key in the reference."""

    key: str
    kind: str
    default: str  # empty: the key is required
    meaning: str


def keys(model: type[Section] = ArchiverConfig, parent: str = "") -> Iterator[KeyRow]:
    """Yield every key that takes a value, in the order of the model."""
    for name, info in model.model_fields.items():
        dotted = f"{parent}{info.validation_alias or name}"
        section = section_of(info)
        if section is not None:
            yield from keys(section, f"{dotted}.")
            continue
        is_mapping = get_origin(info.annotation) is get_origin(Mapping[str, str])
        yield KeyRow(
            key=f"{dotted}.*" if is_mapping else dotted,
            kind=_kind(info),
            default="" if info.is_required() else spell(info, info.get_default()) or "none",
            meaning=info.description or "",
        )
        item = item_section_of(info)
        if item is not None:
            yield from keys(item, f"{dotted}[].")


def _parsers(info: FieldInfo) -> set[object]:
    optional = [item for one in get_args(info.annotation) for item in getattr(one, "__metadata__", ())]
    return {getattr(item, "func", None) for item in (*info.metadata, *optional)}


def _kind(info: FieldInfo) -> str:
    parsers = _parsers(info)
    if parse_size_bytes in parsers:
        return "size"
    if parse_duration_ms in parsers:
        return "duration"
    if parse_start in parsers:
        return "earliest, latest, or a time"
    return _kind_of(info.annotation)


def _kind_of(annotation: Any) -> str:  # noqa: ANN401 - a type is any object
    origin = get_origin(annotation)
    if origin is Literal:
        return ", ".join(map(str, get_args(annotation)))
    if origin in (Union, types.UnionType):
        return _kind_of(next(one for one in get_args(annotation) if one is not type(None)))
    if origin is tuple:
        item = get_args(annotation)[0]
        return "list of mappings" if isinstance(item, type) and issubclass(item, Section) else "list"
    if origin is not None and hasattr(annotation, "__metadata__"):
        return _kind_of(get_args(annotation)[0])
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return ", ".join(annotation)
    names: dict[object, str] = {int: "number", float: "number", str: "text", Path: "path", bool: "true or false"}
    return names.get(annotation, "text")


def spell(info: FieldInfo, value: object) -> str:
    """Return a value in the spelling of the file."""
    if value is None:
        return ""
    if isinstance(value, bool | float):
        return str(value).lower().removesuffix(".0")
    if isinstance(value, int):
        parsers = _parsers(info)
        return next((write for parse, write in _SPELLED.items() if parse in parsers), str)(value)
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]" if value else ""
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {text}" for name, text in value.items())
    return str(value)


def effective(config: Section, parent: str = "") -> Iterator[tuple[str, Spelled]]:
    """Return every key with a value, with its effective value; secrets are masked."""
    for name, info in type(config).model_fields.items():
        dotted = f"{parent}{info.validation_alias or name}"
        value = getattr(config, name)
        if isinstance(value, Section):
            yield from effective(value, f"{dotted}.")
        elif isinstance(value, Mapping):
            for key, text in value.items():
                yield f"{dotted}.{key}", shown(key, text)
        elif isinstance(value, tuple):
            sections = [dict(effective(one)) for one in value if isinstance(one, Section)]
            yield dotted, sections or list(map(str, value))
        elif value is not None:
            yield dotted, spell(info, value)


def shown_config(config: ArchiverConfig, group: str) -> dict[str, Spelled]:
    """Return the effective values of a configuration, including the group that is derived from the address by default."""
    return {"backup.group": group} | dict(effective(config))


def yaml_lines(found: Mapping[str, Spelled]) -> Iterator[str]:
    """Write the values of `effective` as a configuration file: equivalent, except for masked values."""
    for key, value in found.items():
        name = key if re.fullmatch(r"[A-Za-z_][\w.-]*", key, re.ASCII) else json.dumps(key, ensure_ascii=False)
        yield f"{name}: {json.dumps(value, ensure_ascii=False).replace('${', '$${')}"


def reference_page() -> str:
    """Return all of docs/configuration.md."""
    rows = [_row(row.key, row.kind, row.default, row.meaning) for row in keys() if row.key != "kafka.*"]
    kafka = [_row(f"kafka.{key.name}", key.takes, key.default, key.describe()) for key in KAFKA_KEYS]
    return "\n".join([
        "# Configuration",
        "",
        "Every key of `archive.yaml`, and of a restore's `target.yaml`, which has only the section `kafka`. `archiver config reference` prints this page.",
        "",
        "- Dotted and nested spelling of a key are the same. An unknown key is an error, with the line and a suggestion.",
        "- A size is like `64MiB` or `1.5GB`, a duration like `5min`, `45s` or `7d`, a time like `2026-11-20T14:00:00Z`.",
        "- `${NAME}` in a value is the environment variable NAME, `${file:PATH}` the content of a file without line ends at its end; `$${` is the text `${`, and any other `${` is an error. Aliases (`&`, `*`) are taken, merge keys (`<<`) are not.",
        "- `archiver config show` prints the values in effect, with secrets masked.",
        "",
        *_HEAD,
        *rows,
        "",
        "## kafka",
        "",
        "The names are librdkafka's. A key that one of the two Kafka clients cannot honour is refused. A secret is never shown.",
        "",
        *_HEAD,
        *kafka,
        "",
    ])  # fmt: skip


def _row(key: str, takes: str, default: str, meaning: str) -> str:
    is_absent = default == "none" and default not in takes
    shown = ", required" if not default else "" if is_absent else f" (`{default}`)"
    return f"| `{key}` | {takes}{shown} | {meaning} |"
