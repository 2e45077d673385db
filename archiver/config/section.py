"""Base of all sections of the configuration: the spelling of keys, and the kinds of values."""

import re
from collections.abc import Mapping
from typing import Annotated, Literal, get_args, get_origin

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, StringConstraints
from pydantic.fields import FieldInfo

from archiver.config.quantities import parse_duration_ms, parse_size_bytes, parse_start


def _compiles(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        reason = re.match(r"[^'\"]*", error.msg)  # a quoted part of the message is from the pattern, and is left out
        place = "" if error.pos is None else f" at position {error.pos}"
        raise ValueError(f"is not a regular expression: {reason[0].strip() if reason else ''}{place}") from None
    return pattern


Size = Annotated[int, BeforeValidator(parse_size_bytes)]
Duration = Annotated[int, BeforeValidator(parse_duration_ms)]
Pattern = Annotated[str, AfterValidator(_compiles)]
# "earliest", "latest", or milliseconds since the epoch
StartPoint = Annotated[Literal["earliest", "latest"] | int, BeforeValidator(parse_start)]
Text = Annotated[str, StringConstraints(min_length=1)]
KafkaProperties = Mapping[str, str]


class Section(BaseModel):
    """A part of the configuration. A key is the field's name with `-` for `_`, or the field's validation alias."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=lambda name: name.replace("_", "-"),
        populate_by_name=True,
        allow_inf_nan=False,
    )


def section_of(info: FieldInfo) -> type[Section] | None:
    """Return the model of a field that is a section; None for one that has a value."""
    return _as_section(info.annotation)


def item_section_of(info: FieldInfo) -> type[Section] | None:
    """Return the model of the items of a field that is a list of sections; None for any other."""
    return _as_section(get_args(info.annotation)[0]) if get_origin(info.annotation) is tuple else None


def _as_section(kind: object) -> type[Section] | None:
    return kind if isinstance(kind, type) and issubclass(kind, Section) else None
