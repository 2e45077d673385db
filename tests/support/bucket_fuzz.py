"""Mutates objects of a bucket that are no segments. Reading must give an error of ours, or what the rest of the archive has."""

import asyncio
import hashlib
import json
import random
import re
import struct
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import numpy as np
import zstandard

from archiver.archive.copies.archived_topic import CopyRange, CopyReading
from archiver.archive.copies.copied_topic import CopyChoice
from archiver.archive.copies.missing_copies import lost_entries
from archiver.archive.copies.moments import (
    MOST_MOMENTS,
    MomentNote,
    NotedLimits,
    clear_old_moments,
    put_moments,
    read_notes,
)
from archiver.archive.copies.roles import Generation, RolePlace, read_newest_entry
from archiver.archive.format.control import append_fact, encode_fact
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout, SegmentKey
from archiver.archive.index.index_file import SeenControl
from archiver.archive.index.index_generations import append_to_index, merge_index, read_index
from archiver.archive.index.inventory import Inventory, read_inventory
from archiver.archive.notes.cluster_metadata import ClusterPart, note_part, read_noted_parts
from archiver.archive.notes.topic_changes import record_branch, record_topic
from archiver.archive.notes.topics import (
    Branch,
    PartitionSource,
    list_newest_topic_facts,
    read_cluster,
    read_topic,
    read_topic_facts,
    read_topic_history,
    record_cluster,
)
from archiver.archive.reading.catalog import find_topic
from archiver.archive.reading.lost_control import lost_control_objects
from archiver.archive.restores.chosen_records import CHOSEN_DIGEST, CHOSEN_DIGITS, decode_chosen, encode_chosen
from archiver.archive.restores.offset_map import (
    OffsetMapFacts,
    OffsetMapWriter,
    check_offset_map,
    decode_offset_map,
    put_offset_map,
)
from archiver.archive.segments.entries import IndexEntry
from archiver.archive.segments.parts import FactsOfParts, ObjectPart
from archiver.archive.segments.segment_facts import PartFacts
from archiver.backup.compacted.clearing.alarms import AlarmKind, alarms_in
from archiver.backup.compacted.clearing.status import StatusReader
from archiver.backup.opening.history_return import take_back
from archiver.backup.opening.start_offsets import StartOffsets
from archiver.cli.compacted_status import status_lines, status_row
from archiver.codec.avro import decode_header, encode_block, encode_header
from archiver.codec.compression import BlockCodec
from archiver.codec.schemas import OFFSET_RUN
from archiver.codec.selection import ALL_RECORDS
from archiver.config.model import ArchiverConfig, PositionKeeping
from archiver.errors import ArchiverError, CorruptSegmentError
from archiver.groups.positions.keeper import PositionKeeper, PositionPolicy
from archiver.kafka.records.produce import ProducerIdentity
from archiver.kafka.topics.cluster_parts import NOTED, Part
from archiver.restore.plan import noted_plan
from archiver.restore.plan.claim_stream import partition_claims, topic_claims
from archiver.restore.plan.claims import Contents, PartitionClaim, TopicClaim, TopicContents
from archiver.restore.plan.request import RestoreRequest
from archiver.restore.plan.restore_notes import RestoreNotes
from archiver.restore.plan.restore_plan import PartitionPlan, TopicPlan
from archiver.store.port import ObjectKind
from archiver.upkeep.control_check import control_problem
from tests.support.case_limits import Peaks, WatchedStore, Weight
from tests.support.codec_fuzz import without_logs
from tests.support.copied_topic import complete_copy, role_entry
from tests.support.frames import frame_of
from tests.support.index_reader import (
    SKIPPED,
    Member,
    compress,
    expand,
    read_file,
    read_member,
    write_file,
    write_member,
)
from tests.support.json_mutations import bend
from tests.support.memory_store import MemoryStore, StoredObject
from tests.support.mutations import mutate
from tests.support.records import generate
from tests.support.segments import facts_of

Outcomes = Counter[str]
LAYOUT = Layout("p")
HUGE = 10 << 30
_MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
_LATER = datetime(2026, 2, 1, tzinfo=UTC)
_SHA256 = "archiver-sha256"


def weigh(rng: random.Random, store: WatchedStore, key: str) -> None:
    """Make an object larger than anybody has memory for; the listing may tell, or not, or be alone in telling."""
    size = len(store.objects[key].body)
    store.weights[key] = Weight(*rng.choice(((HUGE, HUGE), (size, HUGE), (HUGE, size))))


def put(store: MemoryStore, key: str, content: bytes, metadata: Mapping[str, str] | None = None) -> None:
    store.objects[key] = StoredObject(content, metadata or {}, _MOMENT)


# --- index files ---------------------------------------------------------------------------------------------------

_KEPT = ("kept", 0)  # the directory of a file that nobody touches
_FILE = LAYOUT.index_key(0, 0)


@cache
def _archive() -> tuple[MemoryStore, Inventory]:
    """Three topics; the first file of the index has two of them, and the second one the third."""
    store = MemoryStore()
    entries: dict[str, list[IndexEntry]] = {}
    for topic, partition, base in [(t, nr, at) for t in ("t", "u.v", "kept") for nr in (0, 1) for at in (0, 10, 20)]:
        key, facts = SegmentKey(topic=topic, partition=partition, base=base), facts_of(base, base + 10)
        etag = store.put_if_absent(
            LAYOUT.segment_key(key), f"{topic}{partition}{base}".encode(), facts.to_metadata(), kind=ObjectKind.SEGMENT
        )
        entries.setdefault(topic, []).append(IndexEntry(key, len(f"{topic}{partition}{base}"), etag or "", facts))
    append_to_index(Archive(store, LAYOUT), entries["t"] + entries["u.v"], SeenControl({"t": 3}, {"h": 5}))
    append_to_index(Archive(store, LAYOUT), entries["kept"])
    return store, read_inventory(Archive(store, LAYOUT))


def fuzz_index(rng: random.Random, peaks: Peaks, what: str) -> str:
    good, plain = _archive()
    store = WatchedStore(good)
    content = _mutated_index(rng, store.objects[_FILE].body)
    digest = {} if rng.random() < 0.5 else {_SHA256: hashlib.sha256(content).hexdigest()}
    put(store, _FILE, content, digest)
    if rng.random() < 0.04:
        weigh(rng, store, _FILE)
    if rng.random() < 0.04:
        _add_strange_files(rng, store)
    with peaks.watch(what, store):
        return rng.choice((_list_with, _look_into, _merge))(store, plain)


def _list_with(store: WatchedStore, plain: Inventory) -> str:
    found = read_inventory(Archive(store, LAYOUT))
    assert found.partitions.keys() >= plain.partitions.keys()  # of others it may lie that they are gone
    assert found.partitions[_KEPT] == plain.partitions[_KEPT]
    return "listed"


def _look_into(store: WatchedStore, _: Inventory) -> str:
    stored = store.objects[_FILE]
    problem = control_problem(LAYOUT, _FILE, stored.body, stored.metadata)
    index = read_index(Archive(store, LAYOUT))
    index.reach_beyond(lambda _: 5)
    for partition in (0, 1):
        index.not_whole(("t", 0), {partition: 30})
        index.remembered(SegmentKey(topic="t", partition=partition, base=10))
    is_told = _FILE in index.unreadable or not problem or "no archiver-sha256" in problem
    assert is_told, f"{problem} is not told by who reads it"
    return "refused" if index.unreadable else "read"


def _merge(store: WatchedStore, _: Inventory) -> str:
    damaged = read_index(Archive(store, LAYOUT)).unreadable
    if damaged:
        with suppress(CorruptSegmentError):
            merge_index(Archive(store, LAYOUT))
            raise AssertionError(f"{[*damaged]} are merged away")
        store.delete([*damaged])
    merge_index(Archive(store, LAYOUT))
    merged = read_index(Archive(store, LAYOUT))
    assert len(merged.of(_KEPT).entries) == 6
    assert not merged.unreadable
    return f"merged {len(merged.directories)} of 3"


def _mutated_index(rng: random.Random, content: bytes) -> bytes:
    header, members = read_file(content)
    kind = rng.random()
    if kind < 0.1:
        return mutate(rng, content)
    if kind < 0.35:  # the first line
        return _file_of(bend(rng, header), members)
    at = rng.randrange(len(members))
    if kind < 0.55:
        members[at] = _bent_line(rng, members[at])
    elif kind < 0.8:
        members[at] = _bent_columns(rng, read_member(members[at]))
    elif kind < 0.95:
        members[at] = compress(mutate(rng, expand(members[at])))
    elif kind < 0.97:
        members[at] = _bomb(rng, read_member(members[at]))
    else:
        members[at] = mutate(rng, members[at])
    for directory, member in zip(header["directories"], members, strict=True):
        directory[2] = len(member)
    return write_file(header, members)


def _file_of(line: str, members: list[bytes]) -> bytes:
    packed = compress(f"{line}\n".encode("utf-8", "replace"))
    return b"".join([SKIPPED, struct.pack("<I", len(packed)), packed, *members])


def _bent_line(rng: random.Random, member: bytes) -> bytes:
    line, _, columns = expand(member).partition(b"\n")
    return compress(bend(rng, json.loads(line)).encode("utf-8", "replace") + b"\n" + columns)


def _bent_columns(rng: random.Random, member: Member) -> bytes:
    """Some numbers and texts that cannot be, or may just be."""
    for _ in range(rng.choice((1, 1, 3, 20))):
        row = rng.randrange(member.header["count"])
        if rng.random() < 0.8:
            column = member.numbers[rng.choice(sorted(member.numbers))]
            column[row] = rng.choice((-(2**63), -1, 0, 1, column[row] ^ 1, 10, 2**31, 2**62, 2**63 - 1))
        else:
            name = rng.choice(sorted(member.texts))
            width = member.header[name]
            member.texts[name][row] = rng.choice(("", "x", "\0x", "f" * width, "\xe9" * (width // 2)))
    return write_member(member)


def _bomb(rng: random.Random, member: Member) -> bytes:
    """A few kilobytes that could become gigabytes."""
    many = rng.choice((50_000, 200_000))
    line = json.dumps(member.header)
    bombs: Mapping[str, str] = {
        "lists": "[" + "[]," * many + "0]",
        "objects": "[" + "{}," * many + "0]",
        "names": "{" + '"a":1,' * many + '"b":0}',
        "blanks": " " * (8 * many) + "0",
        "text": '"' + "e" * (8 * many) + '"',
    }
    bomb = rng.choice([*sorted(bombs), "rows"])
    if bomb == "rows":
        return compress(json.dumps(member.header | {"count": many}).encode() + b"\n" + bytes(many * 248))
    name = rng.choice([*sorted(member.header), "other"])
    return compress(line.replace("{", f'{{"{name}":{bombs[bomb]},', 1).encode() + b"\n")


def _add_strange_files(rng: random.Random, store: WatchedStore) -> None:
    body = store.objects[_FILE]
    for number in rng.choice(((999_999,), range(100, 110), (500,))):
        store.objects[LAYOUT.index_key(0, number)] = replace(body, body=rng.choice((b"", b"x" * 40, body.body)))


# --- control facts -------------------------------------------------------------------------------------------------

_SOURCE = PartitionSource(topic="t", partition=0, life=0, topic_id="A", cluster_id="c")
_TARGETS = {"t": "A"}
_CLAIM = PartitionClaim(
    target_cluster_id="c",
    target_topic_id="A",
    start_offset=5,
    selection_digest="d" * 16,
    identity=ProducerIdentity(producer_id=7, epoch=1),
)
_JOINT = TopicClaim(
    target_cluster_id="c",
    target_topic_id="A",
    start_offsets=(0, 5),
    identities={0: ProducerIdentity(producer_id=7, epoch=1), 1: ProducerIdentity(producer_id=8, epoch=0)},
)


class _Pool:
    """Work at once, in this thread."""

    async def call(self, function: Callable[..., object], *args: object) -> object:
        return function(*args)


class _Keeper(PositionKeeper):
    async def _read(self, begun_ms: int) -> Mapping[str, Any]:
        groups = {"g": {"t": {"0": {"offset": 5, "leader_epoch": 1, "metadata": "[{"}}}}
        return {"format": 1, "cluster_id": "c", "time_ms": begun_ms, "duration_ms": 1, "groups": groups, "missing": []}


def _keep(store: MemoryStore, interval_ms: int) -> None:
    policy = PositionPolicy(keep=PositionKeeping.SNAPSHOT, interval_ms=interval_ms)
    keeper = _Keeper(
        cast("Any", None),
        policy,
        archive=Archive(store, LAYOUT),
        pool=cast("Any", _Pool()),
        cluster_id="c",
        clock_ms=lambda: 1_800_000_000_000,
    )
    asyncio.run(keeper.take_snapshot(interval_ms))


def _begin(store: MemoryStore) -> None:
    async def offset_at(*_: object) -> tuple[int, int]:
        return 5, 1

    sink = SimpleNamespace(archive=Archive(store, LAYOUT))
    client = SimpleNamespace(offset_at=offset_at)
    starts = StartOffsets(cast("Any", client), cast("Any", sink), cast("Any", _Pool()), "latest")

    async def run() -> None:
        await starts.note_present()
        for number in (0, 1):
            await starts.first(replace(_SOURCE, partition=number))

    asyncio.run(run())


def _read_topics(store: MemoryStore) -> None:
    for fact in read_topic_facts(Archive(store, LAYOUT), list_newest_topic_facts(Archive(store, LAYOUT))).values():
        if not isinstance(fact, ArchiverError):
            for life in fact.lives[:50]:
                fact.root(life.life)
                fact.lineage(life.life, 0)


def _write_topic_facts(store: MemoryStore) -> None:
    record_topic(Archive(store, LAYOUT), topic="t", topic_id="A", cluster_id="c", partitions=2, configs={"a": "b"})


def _write_claims(store: MemoryStore) -> None:
    stream = partition_claims(Archive(store, LAYOUT), "mine", "c", "t", 0)
    held = stream.put(_CLAIM)
    stream.note_skipped("A", "key")
    stream.note_verified("A", Contents(records=5, digest=9, bytes=3, leader_epoch=1))
    stream.forget_verified(stream.latest("A") or held)


def _write_joint_claims(store: MemoryStore) -> None:
    stream = topic_claims(Archive(store, LAYOUT), "mine", "c", "t")
    held = stream.put(_JOINT)
    stream.note_skipped("A", "key")
    stream.note_verified(
        "A", TopicContents(sources={0: Contents(5, 9)}, targets=(Contents(2, 3, 4, 5), Contents(3, 4)))
    )
    stream.forget_verified(stream.latest("A") or held)


def _notes(store: MemoryStore) -> RestoreNotes:
    return RestoreNotes(Archive(store, LAYOUT), "mine", "c")


def _read_claims(store: MemoryStore) -> None:
    for claims in _notes(store).claims(_TARGETS).values():
        for claim in claims.values():
            assert 0 <= claim.verified_end < 2**64
    for joint in _notes(store).topic_claims(_TARGETS).values():
        assert all(0 <= end < 2**64 for end in joint.verified_ends.values())


def _read_notes(store: MemoryStore) -> None:
    _notes(store).finished(_TARGETS)
    _notes(store).replaced(_TARGETS)
    assert all(0 < count < 2**15 for count in _notes(store).replicas_before(_TARGETS).values())
    RestoreNotes(Archive(store, LAYOUT), "other", "c").begun_by_others(_TARGETS)


_PROCESS = "0123456789abcdef"
_MOMENTS = f"moments/blue/{_PROCESS}"
_PLACE = RolePlace(topic="t", life=0, partition=0)
_INSTANCES = ArchiverConfig.model_validate({
    "kafka": {"bootstrap.servers": "127.0.0.1:1"},
    "topics": {"include": [".*"]},
    "storage": {"url": "s3://bucket/p"},
    "compacted": {"enabled": True, "instances": ["blue", "green"]},
})  # fmt: skip


def _read_moments(store: MemoryStore) -> None:
    """Of what is not told, a problem is."""
    problems: list[str] = []
    found = read_notes(Archive(store, LAYOUT), "blue", problems.append).heard
    assert len(found) <= MOST_MOMENTS
    if problems:
        raise CorruptSegmentError(problems[0])


def _write_moments(store: MemoryStore, number: int = 9) -> None:
    note = MomentNote(topic="t", life=0, partition=0, generation=1, at_ms=5, last_stable=9)
    limits = NotedLimits(length_ms=1, takeover_ms=2, margin_ms=None, clear_delay_ms=3, keep_generations=4)
    assert put_moments(Archive(store, LAYOUT), "blue", _PROCESS, number, [note], noted_ms=5, limits=limits)
    clear_old_moments(Archive(store, LAYOUT), "blue", _PROCESS, number, 2**41)


def _show_status(store: MemoryStore) -> None:
    """What cannot be read is an alarm, and keeps copies."""
    status = StatusReader(Archive(store, LAYOUT), _INSTANCES, 2**41, takes_noted=True).read(re.compile(".*"))
    alarms = list(alarms_in(status))
    for text in (*status_lines(status), json.dumps(status_row(status, alarms)), *(one.text for one in alarms)):
        assert len(text) < 1 << 16
    told = (one.text for one in alarms if one.kind in {AlarmKind.UNREADABLE, AlarmKind.IN_QUESTION})
    if found := next(told, ""):
        raise CorruptSegmentError(found)


Door = Callable[[MemoryStore], object]
_CHOICES = (
    CopyChoice(),
    CopyChoice(instance="green"),
    CopyChoice(as_of_ms=2**40),
    CopyChoice(pinned={"t": {0: CopyReading(stretches=(CopyRange(Generation(instance="blue", number=0), 0, 0),))}}),
)


def _find(choice: CopyChoice) -> Door:
    return lambda store: find_topic(Archive(store, LAYOUT), "t", choice=choice)


_TOPIC_DOORS: Sequence[Door] = (
    _write_topic_facts,
    _read_topics,
    lambda store: read_topic(Archive(store, LAYOUT), "t"),
    lambda store: read_topic_history(Archive(store, LAYOUT), "t"),
    lambda store: record_topic(
        Archive(store, LAYOUT), topic="t", topic_id="B", cluster_id="c", partitions=9, configs=None
    ),
    lambda store: record_branch(Archive(store, LAYOUT), topic="t", partition=1, parent=0, branch=Branch(offset=9)),
)
_CLAIM_DOORS: Sequence[Door] = (_read_claims, _write_claims)
_JOINT_DOORS: Sequence[Door] = (_read_claims, _write_joint_claims)
_DOORS: Mapping[str, Sequence[Door]] = {
    "cluster": (
        lambda store: read_cluster(Archive(store, LAYOUT)),
        lambda store: record_cluster(Archive(store, LAYOUT), "c"),
    ),
    "cluster-metadata/acls": (lambda store: read_noted_parts(Archive(store, LAYOUT), NOTED),),
    "cluster-metadata/quotas": (
        lambda store: read_noted_parts(Archive(store, LAYOUT), NOTED),
        lambda store: note_part(Archive(store, LAYOUT), ClusterPart(part=Part.QUOTAS)),
    ),
    "topics/t": _TOPIC_DOORS,
    "present": (_begin,),
    "starts/t/0": (_begin,),
    "group-positions/2027-01-15": (lambda store: _keep(store, 0), lambda store: _keep(store, 60_000)),
    "roles/t/0/0": (
        *map(_find, _CHOICES),
        _show_status,
        lambda store: read_newest_entry(Archive(store, LAYOUT), _PLACE),
        lambda store: take_back(Archive(store, LAYOUT), _PLACE, 2**62),
        lambda store: list(lost_entries(Archive(store, LAYOUT))),
    ),
    _MOMENTS: (_read_moments, _write_moments, _show_status),
    "restores/mine/t/0": _CLAIM_DOORS,
    "restores/mine/t/repartition": _JOINT_DOORS,
    "restores/mine/t/finished": (_read_notes,),
    "restores/mine/t/replaced": (_read_notes,),
}


@cache
def _facts() -> MemoryStore:
    """All streams, by the words of their writers."""
    store = MemoryStore()
    record_cluster(Archive(store, LAYOUT), "c")
    _write_topic_facts(store)
    record_branch(Archive(store, LAYOUT), topic="t", partition=0, parent=0, branch=Branch(offset=90, leader_epoch=3))
    topics = {"t": {"topic_id": "A", "ends": {"0": None, "1": [5, 1]}}}
    append_fact(Archive(store, LAYOUT), "present", lambda _: {"format": 1, "at_ms": 2**40, "topics": topics})
    _begin(store)
    _keep(store, 0)
    for number in range(2):
        held, replaced = complete_copy("blue", number, 10), complete_copy("green", 0, 8)
        key, content = role_entry("t", 0, number, holder=held, replaced=replaced, candidate=("blue", number))
        put(store, f"{LAYOUT.root}{key}", content)
    acl = ("DENY", "User:a", "*", "READ", "TOPIC", "t", "LITERAL")
    note_part(Archive(store, LAYOUT), ClusterPart(part=Part.ACLS, rows=(acl,)))
    note_part(
        Archive(store, LAYOUT), ClusterPart(part=Part.QUOTAS, rows=(('{"user": null}', "producer_byte_rate", "1.0"),))
    )
    _write_moments(store, 7)
    _write_claims(store)
    _write_joint_claims(store)
    _notes(store).note_replaced(_TARGETS, {"t": 3})
    _notes(store).note_finished(_TARGETS)
    return store


def fuzz_facts(rng: random.Random, peaks: Peaks, what: str) -> str:
    store = WatchedStore(_facts())
    stream = rng.choice(sorted(_DOORS))
    key = max(key for key in store.objects if LAYOUT.parse_fact(stream, key) is not None)
    put(store, key, _mutated_fact(rng, store.objects[key].body))
    if rng.random() < 0.03:
        weigh(rng, store, key)
    if rng.random() < 0.03:
        store.objects[LAYOUT.fact_key(stream, rng.choice((999_999, 500)))] = store.objects[key]
    with peaks.watch(f"{what}, {stream}", store):
        return _through(rng.choice((*_DOORS[stream], *_verify_doors(key))), store)


def _verify_doors(key: str) -> Sequence["Door"]:
    """What `verify` does with whatever control objects there are; it never raises."""

    def look(store: MemoryStore) -> None:
        control_problem(LAYOUT, key, store.objects[key].body, store.objects[key].metadata)

    return look, lambda store: lost_control_objects(Archive(store, LAYOUT), {})


def damage_of_copy(wrong: Mapping[str, object]) -> Mapping[int, Sequence[str]]:
    """Return what is told of the partitions of a copy whose newest fact has other values."""
    store = WatchedStore(_facts())
    append_fact(Archive(store, LAYOUT), "roles/t/0/0", lambda latest: {**(latest or {}), **wrong})
    damaged = find_topic(Archive(store, LAYOUT), "t").damaged
    return {partition: problems for partition, problems in damaged.items() if problems and partition == 0}


def problems_with(stream: str, wrong: Mapping[str, object]) -> list[ArchiverError]:
    """Return what each door of a stream says whose newest fact has other values."""
    found: list[ArchiverError] = []
    for door in _DOORS[stream]:
        store = WatchedStore(_facts())
        append_fact(Archive(store, LAYOUT), stream, lambda latest: {**(latest or {}), **wrong})
        newest = max(key for key in store.objects if LAYOUT.parse_fact(stream, key) is not None)
        changed = replace(store.objects.pop(newest), last_modified=_LATER)  # of moments that decides
        store.objects[LAYOUT.fact_key(stream, 0) if stream in {"cluster", "present"} else newest] = changed
        try:
            door(store)
        except ArchiverError as error:
            found.append(error)
    return found


def _through(door: Door, store: MemoryStore) -> str:
    try:
        door(store)
    except ArchiverError as error:
        return type(error).__name__
    return "read"


def _mutated_fact(rng: random.Random, content: bytes) -> bytes:
    kind = rng.random()
    if kind < 0.15:
        return mutate(rng, content)
    said = json.loads(content)
    said.pop("sha256", None)
    text = bend(rng, said)
    if kind < 0.25:
        return mutate(rng, text.encode())
    try:
        fact = json.loads(text)
        return encode_fact(fact) if isinstance(fact, dict) else text.encode()
    except (ValueError, RecursionError):
        return text.encode()


# --- plans ---------------------------------------------------------------------------------------------------------

_TERMS = RestoreRequest().terms
_PLAN = "restores/mine/t/plan"


def _plan(objects: int, *, is_chosen: bool) -> TopicPlan:
    stem = LAYOUT.segment_stem("t", 0, 0)

    def partition(number: int) -> PartitionPlan:
        parts = tuple(
            ObjectPart(
                f"{stem}{at:020}.data",
                at,
                None,
                at + 1,
                LAYOUT.chosen_key("mine", "t", number, f"{at:024x}") if is_chosen else None,
            )
            for at in range(objects)
        )
        facts = FactsOfParts.of([PartFacts(True, 1, 0, 9, 5, 6, 7) for _ in parts])
        return PartitionPlan(
            partition=number,
            records=objects,
            stored_bytes=objects,
            selection=ALL_RECORDS,
            selection_digest="d",
            problem="",
            missing=(),
            parts=parts,
            facts=facts,
        )

    return TopicPlan(
        source="t",
        life=0,
        target="t",
        final_configs={"a": "b"},
        archived_retention={},
        appends=False,
        partitions=(partition(0), partition(1)),
    )


@cache
def _planned(objects: int, *, is_chosen: bool) -> MemoryStore:
    store = MemoryStore()
    _notes(store).note_plans([_plan(objects, is_chosen=is_chosen)], _TARGETS, _TERMS)
    return store


def _read_plan(store: MemoryStore) -> None:
    for plan in _notes(store).plans(_TARGETS, _TERMS).values():
        for partition in plan.partitions:
            assert len(partition.parts) == len(partition.facts)
            for part, facts in zip(partition.parts, partition.facts, strict=True):
                assert len(str(part)) < 10_000
                assert max(facts) < 2**63


def _plan_again(store: MemoryStore) -> None:
    _notes(store).note_plans([_plan(4, is_chosen=False)], _TARGETS, _TERMS)


def fuzz_plans(rng: random.Random, peaks: Peaks, what: str) -> str:
    """With pieces or without, as rows or as columns."""
    with patch.object(noted_plan, "_MOST_WHOLE", 10), patch.object(noted_plan, "_PIECE", 4):
        good = _planned(rng.choice((2, 9)), is_chosen=rng.random() < 0.3)
        store = WatchedStore(good)
        key = rng.choice(sorted(store.objects))
        content = _mutated_fact(rng, _as_columns(rng, store.objects[key].body))
        key = _named_after(store, key, content) if rng.random() < 0.9 else key
        put(store, key, content)
        if rng.random() < 0.02:
            weigh(rng, store, key)
        with peaks.watch(what, store):
            return _through(rng.choice((_read_plan, _read_plan, _plan_again, *_verify_doors(key))), store)


def _named_after(store: WatchedStore, key: str, content: bytes) -> str:
    """Let the plan name a piece as a forger would: after its content. Returns its key."""
    folder, _, name = key.rpartition("/")
    before = folder.rpartition("/")[2]
    if "-" not in before:
        return key
    plan = LAYOUT.fact_key(_PLAN, 0)
    named = f"{before.partition('-')[0]}-{hashlib.sha256(content).hexdigest()[:24]}"
    said = json.loads(store.objects[plan].body.decode().replace(before, named))
    del said["sha256"], store.objects[key]
    put(store, plan, encode_fact(said))
    return f"{folder.removesuffix(before)}{named}/{name}"


def _as_columns(rng: random.Random, content: bytes) -> bytes:
    """Spell a piece as those of segments are: a text of numbers for each column."""
    said = json.loads(content)
    if "parts" not in said or rng.random() < 0.3:
        return content
    parts, facts = said.pop("parts"), said.pop("facts")
    columns = {"base": 0, "named_next": 0, "from_offset": 1, "until_offset": 2, "next_offset": 3}
    spelled = {
        name: " ".join(str(part[at] if at and part[at] else 5) for part in parts) for name, at in columns.items()
    }
    spelled |= {name: " ".join(str(int(one[at])) for one in facts) for at, name in enumerate(PartFacts._fields)}
    more = {"chosen": {"stem": "s", "digests": " ".join("0" * 24 for _ in parts)}} if rng.random() < 0.3 else {}
    return encode_fact({**said, "objects": len(parts), "stem": "stem", **spelled, **more})


# --- offset maps, and lists of chosen offsets ----------------------------------------------------------------------

_MAP = OffsetMapFacts(
    restore_id="mine",
    source_topic="t",
    source_life=0,
    source_partition=0,
    source_next=0,
    target_cluster_id="c",
    target_topic="t",
    target_topic_id="A",
    target_partition=0,
    target_next=0,
    records=0,
    runs=0,
)
_SYNC = bytes(range(16))


def fuzz_maps(rng: random.Random, peaks: Peaks, what: str) -> str:
    if rng.random() < 0.3:
        return _fuzz_chosen(rng, peaks, what)
    facts, content = _mutated_map(rng)
    store = WatchedStore()
    key = LAYOUT.offset_map_key(_MAP.key)
    metadata = {_SHA256: hashlib.sha256(content).hexdigest()} if rng.random() < 0.8 else {}
    store.objects[key] = StoredObject(content, metadata, _MOMENT)
    if rng.random() < 0.02:
        weigh(rng, store, key)
    doors: Sequence[Door] = (
        lambda _: decode_offset_map(content, metadata, key).translate(np.array([0, 7, 2**62])),
        lambda _: check_offset_map(content, metadata, _MAP.key, key),
        lambda one: put_offset_map(one, key, _collected([1, 2, 9]), replace(facts, runs=2, records=3)),
    )
    with peaks.watch(what, store), patch("archiver.archive.restores.offset_map.MOST_RUNS", 1 << 20, create=True):
        return _through(rng.choice((*doors, *_verify_doors(key))), store)


def _collected(offsets: Sequence[int]) -> OffsetMapWriter:
    writer = OffsetMapWriter(0)
    records = generate(5, len(offsets), big_bytes=10)
    writer.add(frame_of([replace(one, offset=at) for one, at in zip(records, offsets, strict=True)]))
    return writer


@cache
def _whole_map() -> tuple[OffsetMapFacts, bytes, bytes]:
    """Facts, the object, and what is in its one block."""
    writer = _collected([1, 2, 5, 9, 10, 30])
    facts = replace(
        _MAP,
        source_next=writer.source_next + 4,
        target_next=writer.target_next,
        records=writer.records,
        runs=writer.runs,
    )
    content = writer.finish(facts)
    header = decode_header(content, "k", (OFFSET_RUN,))
    return facts, content, bytes(content[header.size :])


def _mutated_map(rng: random.Random) -> tuple[OffsetMapFacts, bytes]:
    facts, content, _ = _whole_map()
    kind = rng.random()
    if kind < 0.25:
        return facts, mutate(rng, content)
    texts = facts.to_header()
    if kind < 0.6:
        name = rng.choice(sorted(texts))
        texts[name] = rng.choice(_ODD_TEXTS) if rng.random() < 0.9 else texts[rng.choice(sorted(texts))]
    codec = rng.choice((BlockCodec.NULL, BlockCodec.ZSTANDARD, BlockCodec.DEFLATE))
    runs = mutate(rng, bytes([2, 4, 4, 2, 6, 4, 38, 2])) if kind > 0.4 else bytes([2, 4, 4, 2, 6, 4, 38, 2])
    count = rng.choice((4, 4, 4, 0, 5, 2**20, 2**40))
    if rng.random() < 0.02:  # runs that are all alike take no room
        count = rng.choice((16_000, 500_000))
        runs = bytes([2, 2]) * count
        texts |= {
            "archiver.runs": str(rng.choice((40 * count, 10**5))),
            "archiver.records": str(2**40),
            "archiver.source-next": str(2**50),
        }
        texts |= {"archiver.target-next": str(2**50)}
    block = encode_block(np.frombuffer(runs, np.uint8), count, codec, 1, _SYNC)
    times = rng.choice((1, 1, 1, 2, 400)) if len(block) < 1000 else 1
    return facts, encode_header(codec, _SYNC, texts, OFFSET_RUN) + block * times


_ODD_TEXTS = (
    "", "0", "-1", "1", "5", "9" * 18, str(2**63 - 1), str(2**63), "9" * 5000, "1_0", " 5", "\u0665", "05", "x", "2", "k" * 3000,
    "a/b", "../x", "\0",
)  # fmt: skip


def _fuzz_chosen(rng: random.Random, peaks: Peaks, what: str) -> str:
    content = _mutated_choice(rng)
    key = LAYOUT.chosen_key("mine", "t", 0, hashlib.sha256(content).hexdigest()[:CHOSEN_DIGITS])
    digest = hashlib.sha256(content).hexdigest() if rng.random() < 0.95 else rng.choice(("", None))
    metadata = {} if digest is None else {CHOSEN_DIGEST: digest}
    store = WatchedStore()
    store.objects[key] = StoredObject(content, metadata, _MOMENT)
    with peaks.watch(what, store):
        doors = (lambda _: _use_choice(content, digest, key), *_verify_doors(key))
        return _through(rng.choice(doors), store)


def _use_choice(content: bytes, digest: str | None, key: str) -> None:
    found = decode_chosen(content, digest, key)
    assert len(found), "an empty list is no choice"
    assert found[0] >= 0
    assert (np.diff(found) > 0).all()


def _mutated_choice(rng: random.Random) -> bytes:
    offsets = np.cumsum([rng.choice((1, 1, 2, 500, 2**40)) for _ in range(rng.choice((1, 5, 2000)))])
    kind = rng.random()
    if kind < 0.3:
        return mutate(rng, encode_chosen(offsets))
    if kind < 0.32:
        return zstandard.compress(rng.choice((b"\1" + bytes(7), bytes(8))) * 2**19)
    steps = np.diff(offsets, prepend=0).astype("<i8").tobytes()
    return zstandard.compress(mutate(rng, steps) if kind < 0.9 else steps)


# --- running -------------------------------------------------------------------------------------------------------

KINDS: Mapping[str, Callable[[random.Random, Peaks, str], str]] = {
    "index": fuzz_index,
    "facts": fuzz_facts,
    "plans": fuzz_plans,
    "maps": fuzz_maps,
}


def run(kind: str, seed: int, count: int) -> tuple[Outcomes, Peaks]:
    """Try so many cases. Each has a seed of its own, which a failure tells."""
    outcomes, peaks = Outcomes(), Peaks()
    with without_logs():
        for number in range(count):
            what = f"{kind} {seed} {number}"
            try:
                outcomes[KINDS[kind](random.Random(what), peaks, what)] += 1
            except Exception as error:
                error.add_note(f"case {what}")
                raise
    return outcomes, peaks
