"""An archive in memory of one compacted topic, with copies and role logs: objects without bodies, by their facts alone."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from archiver.archive.copies.archived_topic import ArchivedTopic
from archiver.archive.copies.copied_topic import CopyChoice
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.archive.notes.topic_changes import record_topic
from archiver.archive.notes.topics import read_topic, record_cluster
from archiver.archive.reading.catalog import find_topic
from archiver.store.port import ObjectKind
from tests.support.copied_topic import copy_place, role_entry
from tests.support.memory_store import MemoryStore
from tests.support.segments import facts_of

T = "t"
Ranges = Sequence[tuple[int, int]]


class Bench:
    """An archive in memory that has objects without bodies."""

    def __init__(self, *, partitions: int = 1, effective: Mapping[str, str] | None = None) -> None:
        self.store = MemoryStore()
        self.archive = Archive(self.store, Layout())
        record_cluster(self.archive, "c")
        self.create("A", partitions, effective)

    def create(self, topic_id: str, partitions: int = 1, effective: Mapping[str, str] | None = None) -> None:
        record_topic(
            self.archive,
            topic=T,
            topic_id=topic_id,
            cluster_id="c",
            partitions=partitions,
            configs={},
            effective=effective,
        )

    def put(
        self, place: str, ranges: Ranges, partition: int, life: int, told: Mapping[int, Mapping[str, Any]] | None = None
    ) -> list[str]:
        """Put objects. `told`: by base, other facts than those of an object that lacks nothing."""
        known = read_topic(self.archive, T)
        assert known is not None
        keys = [f"{place}{T}+{partition}-{base:020}.data" for base, _ in ranges]
        for key, (base, following) in zip(keys, ranges, strict=True):
            facts = replace(facts_of(base, following), topic_id=known.lives[life].topic_id, cluster_id="c", unserved=0)
            facts = replace(facts, **(told or {}).get(base, {}))
            self.store.put_if_absent(key, key.encode(), facts.to_metadata(), kind=ObjectKind.SEGMENT)
        return keys

    def copy(
        self,
        instance: str,
        generation: int,
        ranges: Ranges,
        partition: int = 0,
        life: int = 0,
        told: Mapping[int, Mapping[str, Any]] | None = None,
    ) -> list[str]:
        return self.put(copy_place(T, partition, instance, generation, life), ranges, partition, life, told)

    def history(self, ranges: Ranges, partition: int = 0, life: int = 0) -> list[str]:
        return self.put(f"topics/{T}{f'@{life}' if life else ''}/partition={partition}/", ranges, partition, life)

    def entry(self, number: int, partition: int = 0, **said: Any) -> str:  # noqa: ANN401 - as role_entry has them
        key, content = role_entry(T, partition, number, **said)
        self.store.put_if_absent(key, content, {}, kind=ObjectKind.FACT)
        return key

    def find(self, life: int | None = None, **wished: Any) -> ArchivedTopic:  # noqa: ANN401 - as CopyChoice has them
        return find_topic(self.archive, T, life, choice=CopyChoice(**wished))

    def second(self) -> int:
        """The store's clock now, in milliseconds: the next put is a second later."""
        return max(int(one.last_modified.timestamp() * 1000) for one in self.store.objects.values())
