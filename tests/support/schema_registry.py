"""Schema registries that keep all they know in the topic `_schemas`: what tests ask of one, and what it tells."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

TOPIC = "_schemas"


@dataclass(frozen=True, slots=True)
class Reference:
    """A schema that another one names, by its subject and version there."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """All that a registry tells over its REST API."""

    subjects: Mapping[str, Mapping[int, tuple[int, str, tuple[Reference, ...]]]]  # subject -> version -> id, schema
    with_deleted: Mapping[str, tuple[int, ...]]  # subject -> versions, also the ones that were softly deleted
    ids: Mapping[int, str]  # id -> schema
    compatibility: Mapping[str, str]  # by subject; "" is the level of all that have none of their own


class Registry(Protocol):
    def register(self, subject: str, schema: str, *references: Reference) -> int:
        """Its id: a new one, or the one that it has."""
        ...

    def delete(self, subject: str, version: int | None = None, *, permanently: bool = False) -> None:
        """All its versions, or one. For good only what was deleted before."""
        ...

    def set_compatibility(self, level: str, subject: str = "") -> None: ...
    def told(self) -> Told: ...


def record_schema(name: str, **fields: object) -> str:
    """An Avro record whose fields have defaults: each version is compatible with each."""
    listed = [{"name": field, "type": "string", "default": default} for field, default in fields.items()]
    return json.dumps({"type": "record", "name": name, "fields": listed}, separators=(",", ":"))
