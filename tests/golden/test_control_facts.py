"""The bytes of each kind of control fact, as 0.1.0 writes them: the files of `facts-1` are never made again (docs/format.md §8)."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from archiver.archive.copies.role_entries import begin, history, switch, unsure
from archiver.archive.copies.roles import CompleteCopy, Generation, RolePlace, put_entry
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.archive.notes.topic_changes import record_branch, record_topic
from archiver.archive.notes.topics import Branch, PartitionSource, record_cluster
from archiver.archive.segments.parts import FactsOfParts, ObjectPart
from archiver.archive.segments.segment_facts import PartFacts
from archiver.backup.opening.start_offsets import StartOffsets
from archiver.codec.selection import Selection
from archiver.config.model import PositionKeeping
from archiver.groups.positions import keeper
from archiver.groups.positions.keeper import PositionKeeper, PositionPolicy
from archiver.kafka.brokers.cluster import PartitionOffsets, TopicDescription, TopicPartition
from archiver.kafka.groups.group_positions import GroupPosition, Positions
from archiver.kafka.records.produce import ProducerIdentity
from archiver.restore.plan.claim_stream import partition_claims, topic_claims
from archiver.restore.plan.claims import Contents, PartitionClaim, TopicClaim, TopicContents
from archiver.restore.plan.request import RestoreRequest
from archiver.restore.plan.restore_notes import RestoreNotes
from archiver.restore.plan.restore_plan import PartitionPlan, TopicPlan
from tests.support.memory_store import MemoryStore

LAYOUT = Layout("p")
NOW_MS = 1_800_000_000_000

EXPECTED = Path(__file__).parent / "facts-1"


class _Pool:
    """Work at once, in this thread."""

    async def call(self, function: Callable[..., object], *args: object) -> object:
        return function(*args)


def _write_topic(archive: Archive) -> None:
    """Cut back, created again, and cut back in two partitions."""

    def settle(topic_id: str) -> None:
        record_topic(
            archive,
            topic="t",
            topic_id=topic_id,
            cluster_id="c",
            partitions=12,
            configs={"retention.ms": "5", "a": "é"},
        )

    settle("A")
    record_branch(archive, topic="t", partition=0, parent=0, branch=Branch(offset=90, leader_epoch=3))
    settle("B")
    record_branch(archive, topic="t", partition=10, parent=2, branch=Branch(offset=5, leader_epoch=4))
    record_branch(archive, topic="t", partition=2, parent=2, branch=Branch(offset=0))


class _LateStart:
    """Brokers with a topic of three partitions."""

    async def describe_topics(self, _: object) -> Mapping[str, TopicDescription]:
        return {"u": cast("Any", SimpleNamespace(topic_id="U", partitions=[0, 1, 10]))}

    async def offsets_each(
        self, _: object
    ) -> tuple[Mapping[TopicPartition, PartitionOffsets], Mapping[TopicPartition, Exception]]:
        found = {
            ("u", 0): SimpleNamespace(last_stable=7, leader_epoch=2),
            ("u", 10): SimpleNamespace(last_stable=0, leader_epoch=-1),
        }
        return cast("Any", found), {}

    async def offset_at(self, *_: object) -> tuple[int, int]:
        return 5, 1


def _write_starts(archive: Archive) -> None:
    starts = StartOffsets(
        cast("Any", _LateStart()), cast("Any", SimpleNamespace(archive=archive)), cast("Any", _Pool()), "latest", clock_ms=lambda: NOW_MS
    )  # fmt: skip

    async def run() -> None:
        await starts.note_present()
        await starts.first(PartitionSource(topic="u", partition=1, life=0, topic_id="U", cluster_id="c"))

    asyncio.run(run())


def _write_positions(archive: Archive) -> None:
    async def positions(_: object) -> tuple[dict[str, Positions], dict[str, Exception]]:
        found = {
            "g": {
                ("t", 0): GroupPosition(offset=5, leader_epoch=1, metadata="[{"),
                ("t", 10): GroupPosition(offset=0),
                ("u", 1): GroupPosition(offset=2**40, metadata="é"),
            },
            "idle": {},
        }
        return found, {"secret": Exception("denied"), "hidden": Exception("denied")}

    async def sees_all(_: object) -> bool:
        return True

    policy = PositionPolicy(keep=PositionKeeping.SNAPSHOT, interval_ms=1000)

    async def same() -> str:
        return "c"

    taker = PositionKeeper(
        cast("Any", SimpleNamespace(cluster_id=same)), policy, archive=archive, pool=cast("Any", _Pool()), cluster_id="c", clock_ms=lambda: NOW_MS
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keeper, "positions_each", positions)
        patch.setattr(keeper, "sees_all_groups", sees_all)
        asyncio.run(taker.take_snapshot())


def _write_roles(archive: Archive) -> None:
    """A role log through two turns: what holds, begins, is unsure, and gives way to the history."""
    place = RolePlace(topic="t", life=0, partition=3)
    first = begin(None, 0, "blue", has_history=True)
    blue = CompleteCopy(generation=Generation(instance="blue", number=0), next=10, position=12, is_sure=True)
    held = switch(first, 1, blue)
    doubted = unsure(held, 2, "blue")
    second = begin(doubted, 3, "green", has_history=True)
    for number, entry in enumerate((first, held, doubted, second, history(second, 4, "plain"))):
        put_entry(archive, place, number, entry)


def _write_claim(archive: Archive) -> None:
    stream = partition_claims(archive, "mine", "c", "t", 0)
    identity = ProducerIdentity(producer_id=7, epoch=1)
    claim = PartitionClaim(
        target_cluster_id="c", target_topic_id="A", start_offset=5, selection_digest="d1", identity=identity
    )
    held = stream.put(claim)
    stream.note_skipped("A", "p/t/é")
    stream.note_verified("A", Contents(records=5, digest=9, bytes=None))
    stream.forget_verified(stream.latest("A") or held)
    stream.note_verified("A", Contents(records=5, digest=2**63 - 1, bytes=3, leader_epoch=1))


def _write_joint_claim(archive: Archive) -> None:
    stream = topic_claims(archive, "mine", "c", "t")
    identities = {nr: ProducerIdentity(producer_id=7 + nr, epoch=nr) for nr in (0, 2, 10)}
    stream.put(TopicClaim(target_cluster_id="c", target_topic_id="A", start_offsets=(0, 5), identities=identities))
    stream.note_skipped("A", "p/t/x")
    sources = {0: Contents(5, 9, 20), 2: Contents(0, 0), 10: Contents(1, 2**62, 0)}
    stream.note_verified("A", TopicContents(sources=sources, targets=(Contents(2, 3, 4, 5), Contents(4, 4))))


def _plan() -> TopicPlan:
    parts = (ObjectPart("p/t/0", 0), ObjectPart("p/t/10", 12, 20, 25, "p/chosen/1"))
    whole = PartitionPlan(
        partition=0,
        records=18,
        stored_bytes=900,
        selection=Selection(first_offset=3),
        selection_digest="d" * 64,
        parts=parts,
        facts=FactsOfParts.of([PartFacts(True, *range(len(PartFacts._fields) - 1)), PartFacts(False, *range(len(PartFacts._fields) - 1))]),
        problem="",
        missing=("p/t/5 is gone",),
    )  # fmt: skip
    return TopicPlan(
        source="t",
        life=1,
        target="copy",
        partitions=(whole,),
        final_configs={"retention.ms": "5"},
        archived_retention={"a": "b"},
        appends=False,
        repartition=4,
    )


def _write_notes(archive: Archive) -> None:
    notes = RestoreNotes(archive, "mine", "c")
    notes.note_plans([_plan()], {"copy": "A"}, RestoreRequest().terms)
    notes.note_replaced({"copy": "A", "other": ""}, {"copy": 3})
    notes.note_finished({"copy": "A"})


WRITERS: Sequence[Callable[[Archive], None]] = (
    lambda archive: record_cluster(archive, "c"),
    _write_topic,
    _write_starts,
    _write_positions,
    _write_roles,
    _write_claim,
    _write_joint_claim,
    _write_notes,
)


def written() -> MemoryStore:
    store = MemoryStore()
    for write in WRITERS:
        write(Archive(store, LAYOUT))
    return store


def test_facts_are_written_byte_for_byte_as_ever() -> None:
    written_now = {key.removeprefix("p/control/"): found.body for key, found in written().objects.items()}
    assert written_now.keys() == {path.relative_to(EXPECTED).as_posix() for path in EXPECTED.rglob("*.json")}
    for name, content in written_now.items():
        assert content.decode() == (EXPECTED / name).read_bytes().decode(), name
