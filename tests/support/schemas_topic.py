"""A small registry of ours, whose records in `_schemas` are in the form that Confluent documents: by key what holds now, null for what is gone.

Confluent's own cannot be had from the registries that tests fetch from; Apicurio (tests.support.apicurio) can, but gives each
of its records another key, so that a cleaner of brokers finds nothing to remove.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from tests.support.brokers import Broker
from tests.support.kafka_topics import producer_of
from tests.support.schema_registry import TOPIC, Reference, Registry, Told

_READ_S = 30.0


@contextmanager
def documented_form(broker: Broker, _folder: Path) -> Iterator[Registry]:
    yield _SchemasTopic(broker.bootstrap)


class _SchemasTopic:
    """Knows what it has read at its start, and what it has written since."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = producer_of(bootstrap)
        self._schemas: dict[tuple[str, int], dict[str, Any]] = {}
        self._levels: dict[str, str] = {}
        self._newest_id = 0
        for key, value in _records(bootstrap):
            self._apply(key, value)
        self._put({"keytype": "NOOP", "magic": 0}, None)  # as Confluent's does at its start

    def register(self, subject: str, schema: str, *references: Reference) -> int:
        named = [{"name": one.name, "subject": one.subject, "version": one.version} for one in references]
        same = [one for one in self._schemas.values() if (one["schema"], one["references"]) == (schema, named)]
        for one in same:
            if one["subject"] == subject and not one["deleted"]:
                return int(one["id"])
        version = max((number for name, number in self._schemas if name == subject), default=0) + 1
        number = int(same[0]["id"]) if same else self._newest_id + 1
        value = {"subject": subject, "version": version, "id": number, "references": named}
        self._put(_schema_key(subject, version), {**value, "schema": schema, "deleted": False})
        return number

    def delete(self, subject: str, version: int | None = None, *, permanently: bool = False) -> None:
        versions = [number for name, number in self._schemas if name == subject and version in {None, number}]
        if permanently:
            for number in versions:
                assert self._schemas[subject, number]["deleted"], "deleted for good before it was deleted"
                self._put(_schema_key(subject, number), None)
        elif version is None:
            key = {"keytype": "DELETE_SUBJECT", "subject": subject, "magic": 0}
            self._put(key, {"subject": subject, "version": max(versions)})
        else:
            self._put(_schema_key(subject, version), {**self._schemas[subject, version], "deleted": True})

    def set_compatibility(self, level: str, subject: str = "") -> None:
        key = {"keytype": "CONFIG", "subject": subject or None, "magic": 0}
        self._put(key, {"compatibilityLevel": level})

    def told(self) -> Told:
        subjects: dict[str, dict[int, tuple[int, str, tuple[Reference, ...]]]] = {}
        with_deleted: dict[str, tuple[int, ...]] = {}
        for (subject, version), one in sorted(self._schemas.items()):
            with_deleted[subject] = (*with_deleted.get(subject, ()), version)
            if not one["deleted"]:
                references = tuple(Reference(**named) for named in one["references"])
                subjects.setdefault(subject, {})[version] = (one["id"], one["schema"], references)
        ids = {one["id"]: one["schema"] for one in self._schemas.values()}
        return Told(subjects=subjects, with_deleted=with_deleted, ids=ids, compatibility=dict(self._levels))

    def _put(self, key: dict[str, Any], value: dict[str, Any] | None) -> None:
        self._producer.produce(TOPIC, None if value is None else json.dumps(value).encode(), json.dumps(key).encode())
        assert self._producer.flush(30) == 0
        self._apply(key, value)

    def _apply(self, key: dict[str, Any], value: dict[str, Any] | None) -> None:
        match key["keytype"]:
            case "SCHEMA" if value is None:
                self._schemas.pop((key["subject"], key["version"]), None)
            case "SCHEMA":
                assert value is not None
                self._schemas[key["subject"], key["version"]] = value
                self._newest_id = max(self._newest_id, value["id"])
            case "DELETE_SUBJECT" if value is not None:
                for (subject, version), one in self._schemas.items():
                    if subject == key["subject"] and version <= value["version"]:
                        self._schemas[subject, version] = {**one, "deleted": True}
            case "CONFIG" if value is not None:
                self._levels[key["subject"] or ""] = value["compatibilityLevel"]
            case other:
                assert (other, value) == ("NOOP", None), f"{key}: {value}"


def _schema_key(subject: str, version: int) -> dict[str, Any]:
    return {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}


def _records(bootstrap: str) -> Iterator[tuple[dict[str, Any], dict[str, Any] | None]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "registry", "enable.partition.eof": True})
    consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
    try:
        while True:
            message = consumer.poll(_READ_S)
            assert message is not None, f"{TOPIC} is not read to its end"
            if (error := message.error()) is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return
            key, value = message.key(), message.value()
            assert key is not None
            yield json.loads(key), None if value is None else json.loads(value)
    finally:
        consumer.close()
