"""Loads and checks a configuration from its file, or builds one from a bucket's address."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, TypeVar, get_origin

from pydantic import (
    ValidationError,
)

from archiver.config.environment import FILE_VARIABLE, named_file, variables
from archiver.config.kafka_keys import KeyGroup, names_of
from archiver.config.keyfile import ConfigKey, KeyFile
from archiver.config.model import ArchiverConfig, TargetConfig, WithKafka
from archiver.config.section import KafkaProperties, Section, item_section_of, section_of
from archiver.errors import UsageError

DEFAULT_FILE: Final = Path("archive.yaml")


def load_config(path: Path | None = None) -> ArchiverConfig:
    """Load `path` (-c), else $ARCHIVER_CONFIG, else ./archive.yaml. Raises UsageError with the cause and the line."""
    return _load(ArchiverConfig, path or _default_file())


def load_with_optional_storage(path: Path | None = None) -> tuple[ArchiverConfig, bool]:
    """Load a configuration that need not name a bucket yet. Returns whether it does; if not, its storage must not be used."""
    return _load_optional(path or _default_file())


def load_target(path: Path) -> TargetConfig:
    """Load the configuration of a restore's target cluster."""
    return _load(TargetConfig, path)


def config_from_url(url: str) -> ArchiverConfig:
    """Make a configuration for commands that only read an archive. The endpoint is from the AWS chain ($AWS_ENDPOINT_URL)."""
    return _validate(ArchiverConfig, {"storage": {"url": url}}, lambda _: "--url")


def config_of_bucket(url: str) -> ArchiverConfig:
    """Make a configuration for an object from its address.

    If the default configuration file is of the same bucket, its endpoint and other store settings are used.
    """
    by_url = config_from_url(url)
    found = found_file()
    if found is None:
        return by_url
    config = _load(ArchiverConfig, found)
    if config.storage.bucket != by_url.storage.bucket:
        return by_url
    return config.model_copy(update={"storage": config.storage.model_copy(update={"url": by_url.storage.url})})


def _default_file() -> Path:
    found = found_file()
    if found is None:
        raise UsageError(f"no configuration: give -c FILE, set ${FILE_VARIABLE}, or write ./{DEFAULT_FILE}")
    return found


def found_file() -> Path | None:
    """Return the default configuration file: $ARCHIVER_CONFIG, or ./archive.yaml if it exists."""
    named = named_file()
    if named:
        return Path(named)
    return DEFAULT_FILE if DEFAULT_FILE.exists() else None


Model = TypeVar("Model", bound=Section)


def _load_optional(path: Path) -> tuple[ArchiverConfig, bool]:
    entries = _entries_of(ArchiverConfig, path)
    tree = entries.tree()
    return _made(ArchiverConfig, entries, {"storage": {"url": "s3://none"}, **tree}), "storage" in tree


def _load(model: type[Model], path: Path) -> Model:
    entries = _entries_of(model, path)
    return _made(model, entries, entries.tree())


def _entries_of(model: type[Section], path: Path) -> KeyFile:
    entries = KeyFile(path, list(_keys_of(model)), variables())
    entries.read()
    return entries


def _made(model: type[Model], entries: KeyFile, tree: Mapping[str, object]) -> Model:
    made = _validate(model, tree, entries.place_of)
    if isinstance(made, WithKafka):
        made._place_of = entries.place_of  # noqa: SLF001 - of our own
    return made


def _keys_of(model: type[Section], path: tuple[str, ...] = ()) -> Iterator[ConfigKey]:
    for name, info in model.model_fields.items():
        below = (*path, str(info.validation_alias or name))
        section = section_of(info)
        is_mapping = get_origin(info.annotation) is get_origin(KafkaProperties)
        if name == "kafka":  # known keys of the mapping come before the mapping itself
            for key in names_of(*KeyGroup):
                yield ConfigKey(
                    f"{name}.{key}", (name, key), is_mapping=False, is_section=False, is_known_of_mapping=True
                )
        item = item_section_of(info)
        yield ConfigKey(
            ".".join(below),
            below,
            is_mapping=is_mapping,
            is_section=section is not None,
            item_keys=() if item is None else tuple(_keys_of(item)),
        )
        if section is not None:
            yield from _keys_of(section, below)


def _validate(model: type[Model], tree: Mapping[str, object], place_of: Callable[[str], str]) -> Model:
    try:
        return model.model_validate(tree)
    except ValidationError as error:
        # The message has no values: those under kafka may be secrets.
        found = error.errors(include_url=False, include_input=False)
    lines = [f"{place_of(_dotted(model, item['loc'], item['type']))}: " for item in found]
    raise UsageError("\n".join(line + _reason(dict(item)) for line, item in zip(lines, found, strict=True)))


def _dotted(model: type[Section], location: Iterable[int | str], kind: str) -> str:
    """Return the dotted name of a key; for a missing section, that of the required key in it. `key[2]` is an item of a list."""
    names: list[str] = []
    for part in location:
        if isinstance(part, str):
            names.append(part)
        elif names:
            names[-1] += f"[{part}]"
    info = model.model_fields.get(names[0]) if len(names) == 1 else None
    below = None if info is None else section_of(info)
    if kind == "missing" and below is not None:
        names += [name for name, one in below.model_fields.items() if one.is_required()][:1]
    return ".".join(names)


def _reason(item: Mapping[str, object]) -> str:
    if item["type"] == "missing":
        return "is required"
    if item["type"] == "tuple_type":
        return "must be a list, such as [orders, payments]"
    if item["type"] == "model_type":
        return "must be a mapping of keys to values"
    context = item.get("ctx")
    cause = context.get("error") if isinstance(context, dict) else None
    return str(cause or item["msg"])
