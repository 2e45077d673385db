"""Reads and writes the noted plan of a topic: one fact has all of it, or names the pieces of a large plan (docs/format.md §8)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Final

from archiver.archive.format.control import FACT_FORMAT, Fact, encode_fact
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import MOST_PARTITION
from archiver.archive.restores.finished_restores import PLAN
from archiver.archive.restores.noted_parts import (
    MOST_OF_PIECE,
    Piece,
    columns_to_fact,
    digest_of,
    part_of,
    piece_of,
    pieces_of,
    read_piece,
    rows_to_fact,
)
from archiver.archive.restores.planned_copies import copies_from_fact, copies_to_fact
from archiver.archive.segments.parts import FactsOfParts, ObjectPart, ObjectParts
from archiver.codec.selection import FIRST_LONG, Selection
from archiver.errors import NotWholeError
from archiver.process.running.ahead import run_ahead
from archiver.process.running.failpoints import reach
from archiver.process.values.columns import Chain
from archiver.process.values.json_values import as_list, as_number, as_object, as_text, as_texts, as_truth
from archiver.restore.plan.restore_plan import PartitionPlan, TopicPlan
from archiver.store.port import ObjectKind

_MOST_WHOLE: Final = 5_000  # parts of a topic within its fact: two megabytes
_PIECE: Final = MOST_OF_PIECE
_READS_AT_ONCE: Final = 8
_MOST_CONFIG: Final = 1 << 20
_MOST_PROBLEM: Final = 16 << 20  # characters: each damaged object of a partition is named


def plan_to_fact(archive: Archive, stream: str, plan: TopicPlan) -> Fact:
    """Put the pieces of a plan, and return its fact. That is put last: until then the pieces mean nothing.

    A piece is named after its content. So a run after a kill between two pieces puts the same pieces again, and a run
    that plans otherwise puts others.
    """
    is_large = sum(len(one.parts) for one in plan.partitions) > _MOST_WHOLE

    def parts_of(partition: PartitionPlan) -> Fact:
        if not is_large:
            return rows_to_fact(partition.parts, partition.facts)
        pieces = _pieces(partition)
        return {"pieces": [_put_piece(archive, stream, partition.partition, piece) for piece in pieces]}

    return {
        "source": plan.source,
        "life": plan.life,
        "target": plan.target,
        "final_configs": dict(plan.final_configs),
        "archived_retention": dict(plan.archived_retention),
        "appends": plan.appends,
        **({} if plan.repartition is None else {"repartition": plan.repartition}),
        "partitions": [{**_summary(partition), **parts_of(partition)} for partition in plan.partitions],
    }


def _summary(plan: PartitionPlan) -> Fact:
    return {
        "partition": plan.partition,
        "records": plan.records,
        "stored_bytes": plan.stored_bytes,
        "selection": asdict(plan.selection),
        "selection_digest": plan.selection_digest,
        "problem": plan.problem,
        "missing": list(plan.missing),
        **copies_to_fact(plan.copies),
    }


def _pieces(plan: PartitionPlan) -> Iterator[Fact]:
    begin = 0
    for block in Chain([plan.parts]).blocks:
        for start in range(0, len(block), _PIECE):
            some = block[start : start + _PIECE]
            facts = plan.facts[begin + start : begin + start + len(some)]
            yield (
                columns_to_fact(some, FactsOfParts.of(facts))
                if isinstance(some, ObjectParts)
                else rows_to_fact(some, facts)
            )
        begin += len(block)


def _put_piece(archive: Archive, stream: str, partition: int, piece: Fact) -> str:
    content = encode_fact({"format": FACT_FORMAT, **piece})
    name = f"{partition}-{digest_of(content)}"
    archive.store.put_if_absent(archive.layout.fact_key(f"{stream}/{name}", 0), content, {}, kind=ObjectKind.FACT)
    reach("piece.noted")
    return name


# --- reading


def plan_from_fact(archive: Archive, stream: str, fact: Fact) -> TopicPlan:
    """Read a plan with the pieces that its fact names. Raises NotWholeError."""
    try:
        if stream.split("/")[-2:] != [fact["target"], PLAN]:
            raise ValueError(f"of target {fact['target']!r:.300}")  # noqa: TRY301
        read = _read_pieces(archive, stream, fact)
        return TopicPlan(
            source=as_text(fact["source"]),
            life=as_number(fact["life"]),
            target=as_text(fact["target"]),
            final_configs=_configs(fact["final_configs"]),
            archived_retention=_configs(fact["archived_retention"]),
            appends=as_truth(fact["appends"]),
            repartition=None if fact.get("repartition") is None else as_number(fact["repartition"]),
            partitions=tuple(_partition(as_object(one), read) for one in as_list(fact["partitions"])),
        )
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise NotWholeError(f"control/{stream}: not a plan of a restore ({error!r}); use another --id") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanHeading:
    """The planned contents of a target without the objects: those of a large plan take minutes to read."""

    source: str
    life: int
    appends: bool
    repartition: int | None
    partitions: tuple[Fact, ...]  # as noted, numbered from 0


def heading_from_fact(stream: str, fact: Fact) -> PlanHeading:
    """Read the heading of a plan. Raises NotWholeError."""
    try:
        if stream.split("/")[-2:] != [fact["target"], PLAN]:
            raise ValueError(f"of target {fact['target']!r:.300}")  # noqa: TRY301
        partitions = tuple(as_object(one) for one in as_list(fact["partitions"]))
        if any(type(one["partition"]) is not int or one["partition"] != at for at, one in enumerate(partitions)):
            raise ValueError("partitions that are not in order")  # noqa: TRY301
        return PlanHeading(
            source=as_text(fact["source"]),
            life=as_number(fact["life"]),
            appends=as_truth(fact["appends"]),
            repartition=None if fact.get("repartition") is None else as_number(fact["repartition"]),
            partitions=partitions,
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise NotWholeError(f"control/{stream}: not a plan of a restore ({error!r:.300}); use another --id") from error


def last_object(archive: Archive, stream: str, partition: Fact) -> str | None:
    """Return the key of the last planned object of a partition. Reads only the last piece. Raises NotWholeError."""
    try:
        if "pieces" in partition:
            names = pieces_of({"partitions": [partition]})[-1:]
            parts = read_piece(archive, stream, names[0])[0] if names else ()
        else:
            parts = [part_of(*as_list(part)) for part in as_list(partition["parts"])[-1:]]
        return parts[-1].object_key if parts else None
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise NotWholeError(f"control/{stream}: not a plan of a restore ({error!r:.300}); use another --id") from error


def _configs(found: object) -> dict[str, str]:
    return {name: as_text(value, _MOST_CONFIG) for name, value in as_object(found).items()}


def _read_pieces(archive: Archive, stream: str, fact: Fact) -> Callable[[], Piece]:
    """Read pieces ahead. The returned function returns one piece after the other."""
    found = run_ahead(lambda name: read_piece(archive, stream, name), pieces_of(fact), _READS_AT_ONCE, "pieces")
    return lambda: next(found)


def _partition(fact: Fact, read: Callable[[], Piece]) -> PartitionPlan:
    pieces = [read() for _ in fact["pieces"]] if "pieces" in fact else [piece_of(fact)]
    return PartitionPlan(
        partition=as_number(fact["partition"], 0, MOST_PARTITION),
        records=as_number(fact["records"]),
        stored_bytes=as_number(fact["stored_bytes"]),
        selection=Selection(**{name: as_number(end, FIRST_LONG) for name, end in as_object(fact["selection"]).items()}),
        selection_digest=as_text(fact["selection_digest"]),
        problem=as_text(fact["problem"], _MOST_PROBLEM),
        missing=as_texts(fact["missing"], _MOST_PROBLEM),
        parts=_joined([parts for parts, _ in pieces]),
        facts=FactsOfParts.join([facts for _, facts in pieces]),
        copies=copies_from_fact(fact),
    )


def _joined(pieces: Sequence[Sequence[ObjectPart]]) -> Sequence[ObjectPart]:
    """Join the parts of several pieces into the one sequence of the plan."""
    runs = groupby(pieces, lambda one: one.stem if isinstance(one, ObjectParts) else None)
    return Chain(_as_one(stem, list(run)) for stem, run in runs)


def _as_one(stem: str | None, run: Sequence[Sequence[ObjectPart]]) -> Sequence[ObjectPart]:
    if stem is None:
        return tuple(part for one in run for part in one)
    return ObjectParts.join([one for one in run if isinstance(one, ObjectParts)])
