"""The plan of a topic's restore as control facts: one that names it whole, and for a large one pieces that it names (docs/format.md §8)."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Final

import numpy as np

from archiver.ahead import run_ahead
from archiver.columns import Chain, Numbers, Texts, narrow, same
from archiver.control import FORMAT, Fact, encode_fact, read_fact
from archiver.errors import NotWholeError
from archiver.facts import PartFacts
from archiver.failpoints import reach
from archiver.layout import Layout
from archiver.parts import PART_COLUMNS, Chosen, FactsOfParts, ObjectPart, ObjectParts
from archiver.restore import PartitionPlan, TopicPlan
from archiver.selection import Selection
from archiver.store import ObjectStore

_MOST_WHOLE: Final = 5_000  # parts of a topic that its fact has itself: two megabytes
_PIECE: Final = 20_000  # parts of one fact: two megabytes, too, as columns
_READS_AT_ONCE: Final = 8
_DIGITS: Final = 24


def plan_to_fact(store: ObjectStore, layout: Layout, stream: str, plan: TopicPlan) -> Fact:
    """Return the fact of a plan, which is put last: until then its pieces, which are put here, mean nothing.

    A piece is named after what it says. So who was killed between two of them puts the same ones again, and who
    plans otherwise puts others.
    """
    is_large = sum(len(one.parts) for one in plan.partitions) > _MOST_WHOLE

    def parts_of(partition: PartitionPlan) -> Fact:
        if not is_large:
            return _rows(partition.parts, partition.facts)
        pieces = _pieces(partition)
        return {"pieces": [_put_piece(store, layout, stream, partition.partition, piece) for piece in pieces]}

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
    }


def _row_of(part: ObjectPart) -> tuple[object, ...]:
    return part.object_key, part.from_offset, part.until_offset, part.next_offset, part.chosen_key


def _rows(parts: Sequence[ObjectPart], facts: Sequence[PartFacts]) -> Fact:
    return {"parts": list(map(_row_of, parts)), "facts": list(facts)}


def _pieces(plan: PartitionPlan) -> Iterator[Fact]:
    begin = 0
    for block in Chain([plan.parts]).blocks:
        for start in range(0, len(block), _PIECE):
            some = block[start : start + _PIECE]
            facts = plan.facts[begin + start : begin + start + len(some)]
            yield _columns(some, FactsOfParts.of(facts)) if isinstance(some, ObjectParts) else _rows(some, facts)
        begin += len(block)


def _columns(parts: ObjectParts, facts: FactsOfParts) -> Fact:
    return {
        "objects": len(parts),
        "stem": parts.stem,
        **{name: _spelled(column) for name, column in zip(PART_COLUMNS, parts.columns, strict=True)},
        **{name: _spelled(column) for name, column in zip(PartFacts._fields, facts.columns, strict=True)},
        **(
            {}
            if parts.chosen is None
            else {"chosen": {"stem": parts.chosen.stem, "digests": " ".join(parts.chosen.digests)}}
        ),
    }


def _spelled(column: Numbers) -> str:
    """Spell numbers, one behind the other; one alone where all are the same."""
    numbers = column.astype(np.int64)
    return " ".join(map(str, (numbers[:1] if (numbers == numbers[0]).all() else numbers).tolist()))


def _put_piece(store: ObjectStore, layout: Layout, stream: str, partition: int, piece: Fact) -> str:
    content = encode_fact({"format": FORMAT, **piece})
    name = f"{partition}-{hashlib.sha256(content).hexdigest()[:_DIGITS]}"
    store.put_if_absent(layout.fact_key(f"{stream}/{name}", 0), content, {})
    reach("piece.noted")
    return name


# --- and back


def plan_from_fact(store: ObjectStore, layout: Layout, stream: str, fact: Fact) -> TopicPlan:
    """Read a plan, with the pieces that its fact names. Raises NotWholeError."""
    try:
        read = _read_pieces(store, layout, stream, fact)
        return TopicPlan(
            source=str(fact["source"]),
            life=int(fact["life"]),
            target=str(fact["target"]),
            final_configs=dict(fact["final_configs"]),
            archived_retention=dict(fact["archived_retention"]),
            appends=bool(fact["appends"]),
            repartition=None if fact.get("repartition") is None else int(fact["repartition"]),
            partitions=tuple(_partition(one, read) for one in fact["partitions"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise NotWholeError(f"control/{stream}: not a plan of a restore ({error!r}); use another --id") from error


_Piece = tuple[Sequence[ObjectPart], FactsOfParts]


def _pieces_of(stream: str, fact: Fact) -> list[str]:
    """Return the streams of the pieces that the fact of a plan names; each has one fact."""
    return [f"{stream}/{name}" for partition in fact["partitions"] for name in partition.get("pieces", ())]


def _read_pieces(store: ObjectStore, layout: Layout, stream: str, fact: Fact) -> Callable[[], _Piece]:
    """Read ahead; what is returned tells one piece after the other."""
    found = run_ahead(
        lambda one: _piece(read_fact(store, layout, one, 0)), _pieces_of(stream, fact), _READS_AT_ONCE, "pieces"
    )
    return lambda: next(found)


def _piece(fact: Fact) -> _Piece:
    if "parts" in fact:
        facts = FactsOfParts.of(tuple(PartFacts(*one) for one in fact["facts"]))
        return tuple(ObjectPart(*part) for part in fact["parts"]), facts
    count = int(fact["objects"])
    exact, *numbers = (_parsed(fact[name], count) for name in PartFacts._fields)
    columns = (_parsed(fact[name], count) for name in PART_COLUMNS)
    parts = ObjectParts(
        str(fact["stem"]), *columns, chosen=_chosen(fact["chosen"], count) if "chosen" in fact else None
    )
    return parts, FactsOfParts(exact.astype(bool), *numbers)


def _chosen(fact: Fact, count: int) -> Chosen:
    digests = str(fact["digests"]).split(" ")
    if len(digests) != count:
        raise ValueError(f"{len(digests)} digests of {count} objects")
    return Chosen(str(fact["stem"]), Texts.of(digests))


def _parsed(text: str, count: int) -> Numbers:
    numbers = list(map(int, text.split(" ")))
    if len(numbers) == 1:
        return same(numbers[0], count)
    if len(numbers) != count:
        raise ValueError(f"{len(numbers)} numbers of {count} objects")
    return narrow(np.array(numbers, np.int64))


def _partition(fact: Fact, read: Callable[[], _Piece]) -> PartitionPlan:
    pieces = [read() for _ in fact["pieces"]] if "pieces" in fact else [_piece(fact)]
    return PartitionPlan(
        partition=int(fact["partition"]),
        records=int(fact["records"]),
        stored_bytes=int(fact["stored_bytes"]),
        selection=Selection(**fact["selection"]),
        selection_digest=str(fact["selection_digest"]),
        problem=str(fact["problem"]),
        missing=tuple(fact["missing"]),
        parts=_joined([parts for parts, _ in pieces]),
        facts=FactsOfParts.join([facts for _, facts in pieces]),
    )


def _joined(pieces: Sequence[Sequence[ObjectPart]]) -> Sequence[ObjectPart]:
    """Put pieces together, as they were before."""
    runs = groupby(pieces, lambda one: one.stem if isinstance(one, ObjectParts) else None)
    return Chain(_as_one(stem, list(run)) for stem, run in runs)


def _as_one(stem: str | None, run: Sequence[Sequence[ObjectPart]]) -> Sequence[ObjectPart]:
    if stem is None:
        return tuple(part for one in run for part in one)
    return ObjectParts.join([one for one in run if isinstance(one, ObjectParts)])
