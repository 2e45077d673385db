"""Copies of compacted topics in a store in memory, their role logs, and restores that read them: put at any time, without a body."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from archiver.archive.copies.copy_catalog import CopyCatalog
from archiver.archive.copies.roles import CompleteCopy, Generation, RoleEntry, RolePlace, put_entry
from archiver.archive.format.control import encode_fact
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import CopyKey, Layout, offsets_name
from archiver.archive.segments.segment_facts import Hole, HoleCause
from tests.support.memory_store import MemoryStore, StoredObject
from tests.support.segments import facts_of

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
PLACE = RolePlace(topic="orders", life=0, partition=3)


def at_ms(moment_ms: int) -> datetime:
    return EPOCH + timedelta(milliseconds=moment_ms)


def generation(name: str) -> Generation:
    """`a7`: generation 7 of instance a."""
    return Generation(instance=name[0], number=int(name[1:]))


def copy_of(name: str, following: int, position: int | None = None, *, is_sure: bool = True) -> CompleteCopy:
    return CompleteCopy(
        generation=generation(name),
        next=following,
        position=following if position is None else position,
        is_sure=is_sure,
    )


def put_here(archive: Archive) -> CopyCatalog:
    """Return what a process knows that has put all objects of copies that stand."""
    catalog = CopyCatalog(archive)
    for item in archive.store.list(archive.layout.copies_root):
        copy = archive.layout.parse_copy(item.key)
        if copy is not None:
            catalog.note_put(copy, item.key, item.etag)
    return catalog


class StandingCopies:
    """An archive below a prefix, with a clock that tests set."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.layout = Layout("p")
        self.archive = Archive(self.store, self.layout)

    def prefix(self, name: str, place: RolePlace = PLACE) -> str:
        one = generation(name)
        return self.layout.copy_prefix(
            CopyKey(
                instance=one.instance,
                topic=place.topic,
                life=place.life,
                partition=place.partition,
                generation=one.number,
            )
        )

    def fill(
        self,
        name: str,
        spans: Iterable[tuple[int, int]],
        place: RolePlace = PLACE,
        *,
        begins: int = 0,
        damaged: Sequence[int] = (),
        lacking: Mapping[int, int] | None = None,
        put_ms: Mapping[int, int] | None = None,
        expired: Sequence[int] = (),
    ) -> list[str]:
        """Put objects; the one at base 0 tells that the log began at `begins`. `damaged`: bases of objects with broken facts.

        `lacking`: by base, the last stable offset of objects that lack a record; `put_ms`: when objects were put.
        `expired`: bases of objects that begin with a hole, of records that Kafka had no more.
        """
        keys = []
        for base, following in spans:
            facts = replace(facts_of(base, following), unserved=0, stable_end=following)
            if lacking and base in lacking:
                facts = replace(facts, unserved=1, stable_end=lacking[base])
            if base == 0 and begins:
                hole = Hole(first_offset=0, last_offset=begins - 1, cause=HoleCause.EXPIRED)
                facts = replace(
                    facts, first=begins, last=max(begins, following - 1), next=max(begins + 1, following), holes=(hole,)
                )
            if base in expired:
                hole = Hole(first_offset=base, last_offset=following - 2, cause=HoleCause.EXPIRED)
                facts = replace(facts, first=facts.last, holes=(hole,))
            metadata = facts.to_metadata()
            if base in damaged:
                metadata["archiver-next"] = "x"
            key = f"{self.prefix(name, place)}{place.topic}+{place.partition}-{offsets_name(base, None)}"
            self.put(key, b"x" * 10, metadata, (put_ms or {}).get(base, 0))
            keys.append(key)
        return keys

    def put(self, key: str, body: bytes, metadata: dict[str, str] | None = None, moment_ms: int = 0) -> None:
        self.store.objects[key] = StoredObject(body, metadata or {}, at_ms(moment_ms))

    def note(self, number: int, entry: RoleEntry, moment_ms: int, place: RolePlace = PLACE) -> None:
        put_entry(self.archive, place, number, entry)
        key = self.layout.fact_key(place.stream, number)
        self.store.objects[key] = replace(self.store.objects[key], last_modified=at_ms(moment_ms))

    def restore(
        self,
        restore_id: str,
        keys: Sequence[str],
        moment_ms: int,
        *,
        is_finished: bool = False,
        finished_id: str = "T",
    ) -> str:
        """Note the plan of a restore that reads these objects. Returns its key."""
        stream = f"restores/{restore_id}/target/plan"
        copies = {copy for key in keys if (copy := self.layout.parse_copy(key)) is not None}
        partitions = [
            {
                "partition": copy.partition,
                "copies": [[copy.instance, copy.generation, copy.life, 0, None]],
                "selection": {},
                "parts": [],
                "facts": [],
            }
            for copy in sorted(copies, key=str)
        ]
        of_target = {"format": 1, "target_cluster_id": "c", "target_topic_id": "T"}
        key = self.layout.fact_key(stream, 0)
        plan = {**of_target, "source": PLACE.topic, "appends": False, "partitions": partitions}
        self.put(key, encode_fact(plan), moment_ms=moment_ms)
        if is_finished:
            finished = {**of_target, "target_topic_id": finished_id}
            self.put(self.layout.fact_key(f"restores/{restore_id}/target/finished", 0), encode_fact(finished))
            claim = {**of_target, "start_offset": 0, "verified": {"records": 0}}
            for one in partitions:
                claimed = self.layout.fact_key(f"restores/{restore_id}/target/{one['partition']}", 0)
                self.put(claimed, encode_fact(claim))
        return key

    def standing(self, place: RolePlace = PLACE) -> set[str]:
        """Name the generations that have an object."""
        found = map(self.layout.parse_copy, self.store.objects)
        return {
            f"{one.instance}{one.generation}"
            for one in found
            if one and (one.topic, one.life, one.partition) == (place.topic, place.life, place.partition)
        }
