"""How the plan of a topic's restore stands in the archive: one control fact has the whole plan, or names the pieces of a large plan (docs/format.md §8)."""

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Final

import numpy as np

from archiver.archive.control import FACT_FORMAT, Fact, encode_fact, read_fact
from archiver.archive.handle import Archive
from archiver.archive.layout import MOST_PARTITION
from archiver.archive.parts import PART_COLUMNS, Chosen, FactsOfParts, ObjectPart, ObjectParts
from archiver.archive.planned_copies import copies_from_fact, copies_to_fact
from archiver.archive.segment_facts import PartFacts
from archiver.codec.selection import FIRST_LONG, Selection
from archiver.errors import NotWholeError
from archiver.process.ahead import run_ahead
from archiver.process.columns import Chain, Numbers, Texts, narrow, same
from archiver.process.failpoints import reach
from archiver.process.json_values import as_list, as_number, as_object, as_text, as_texts, as_truth
from archiver.restore.plan import PartitionPlan, TopicPlan
from archiver.store.port import ObjectKind

_MOST_WHOLE: Final = 5_000  # parts of a topic that its fact has itself: two megabytes
_PIECE: Final = 20_000  # parts of one fact: two megabytes, too, as columns
_READS_AT_ONCE: Final = 8
_DIGITS: Final = 24
_LONGEST_NUMBER: Final = 22  # a long and what is between two
_LONGEST_DIGEST: Final = 32
_NUMBERS: Final = re.compile(r"-?[0-9]{1,19}(?: -?[0-9]{1,19})*", re.ASCII)
_MOST_CONFIG: Final = 1 << 20
_MOST_PROBLEM: Final = 16 << 20  # characters: each damaged object of a partition is named
_PIECE_NAME: Final = re.compile(rf"(0|[1-9][0-9]*)-[0-9a-f]{{{_DIGITS}}}", re.ASCII)
PLAN: Final = "plan"  # the stream, of a target


def plan_to_fact(archive: Archive, stream: str, plan: TopicPlan) -> Fact:
    """Return the fact of a plan, which is put last: until then its pieces, which are put here, mean nothing.

    A piece is named after its content. So a run that was killed between two pieces puts the same pieces again, and a run
    that plans otherwise puts others.
    """
    is_large = sum(len(one.parts) for one in plan.partitions) > _MOST_WHOLE

    def parts_of(partition: PartitionPlan) -> Fact:
        if not is_large:
            return _rows(partition.parts, partition.facts)
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
    """Spell the numbers of a column as one text for a fact; where all numbers are the same, that number once."""
    numbers = column.astype(np.int64)
    return " ".join(map(str, (numbers[:1] if (numbers == numbers[0]).all() else numbers).tolist()))


def _put_piece(archive: Archive, stream: str, partition: int, piece: Fact) -> str:
    content = encode_fact({"format": FACT_FORMAT, **piece})
    name = f"{partition}-{_digest_of(content)}"
    archive.store.put_if_absent(archive.layout.fact_key(f"{stream}/{name}", 0), content, {}, kind=ObjectKind.FACT)
    reach("piece.noted")
    return name


# --- and back


def plan_from_fact(archive: Archive, stream: str, fact: Fact) -> TopicPlan:
    """Read a plan, with the pieces that its fact names. Raises NotWholeError."""
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
    """What was to be restored into a target, without the objects: those of a large plan take minutes to read."""

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
    """Return the key of the last object that was planned for a partition, of all pieces reading only the last. Raises NotWholeError."""
    try:
        if "pieces" in partition:
            names = _pieces_of({"partitions": [partition]})[-1:]
            parts = _read_piece(archive, stream, names[0])[0] if names else ()
        else:
            parts = [_part(*as_list(part)) for part in as_list(partition["parts"])[-1:]]
        return parts[-1].object_key if parts else None
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise NotWholeError(f"control/{stream}: not a plan of a restore ({error!r:.300}); use another --id") from error


def _configs(found: object) -> dict[str, str]:
    return {name: as_text(value, _MOST_CONFIG) for name, value in as_object(found).items()}


_Piece = tuple[Sequence[ObjectPart], FactsOfParts]


def _pieces_of(fact: Fact) -> list[str]:
    """Return the names of the pieces that the fact of a plan names. Raises ValueError for what is no name of one of its partition."""
    names = [(partition["partition"], name) for partition in fact["partitions"] for name in partition.get("pieces", ())]
    for number, name in names:
        match = _PIECE_NAME.fullmatch(name)
        if match is None or match[1] != str(number):
            raise ValueError(f"{name!r:.300} is no piece of partition {number}")
    return [name for _, name in names]


def _read_pieces(archive: Archive, stream: str, fact: Fact) -> Callable[[], _Piece]:
    """Read pieces ahead. The returned function gives one piece after the other."""
    found = run_ahead(lambda name: _read_piece(archive, stream, name), _pieces_of(fact), _READS_AT_ONCE, "pieces")
    return lambda: next(found)


def _read_piece(archive: Archive, stream: str, name: str) -> _Piece:
    piece = read_fact(archive, f"{stream}/{name}", 0)
    if _digest_of(encode_fact(piece)) != name.rpartition("-")[2]:
        raise ValueError(f"piece {name} is not what it is named after")
    return _piece(piece)


def _digest_of(content: bytes) -> str:
    """Return the digest of a piece's content, after which the piece is named."""
    return hashlib.sha256(content).hexdigest()[:_DIGITS]


def _piece(fact: Fact) -> _Piece:
    if "parts" in fact:
        facts = FactsOfParts.of(tuple(_part_facts(*as_list(one)) for one in as_list(fact["facts"])))
        rows = tuple(_part(*as_list(part)) for part in as_list(fact["parts"]))
        if len(rows) != len(facts):
            raise ValueError(f"facts of {len(facts)} objects, and {len(rows)} objects")
        return rows, facts
    count = int(fact["objects"])
    if not 0 < count <= _PIECE:  # one number may stand for all
        raise ValueError(f"{count} objects in a piece")
    exact, *numbers = (_parsed(fact[name], count) for name in PartFacts._fields)
    columns = (_parsed(fact[name], count) for name in PART_COLUMNS)
    parts = ObjectParts(
        as_text(fact["stem"]), *columns, chosen=_chosen(fact["chosen"], count) if "chosen" in fact else None
    )
    return parts, FactsOfParts(exact.astype(bool), *numbers)


def _part(
    object_key: object,
    from_offset: object,
    until_offset: object = None,
    next_offset: object = None,
    chosen_key: object = None,
) -> ObjectPart:
    """Take what `_row_of` made of a part."""
    return ObjectPart(
        as_text(object_key),
        as_number(from_offset),
        None if until_offset is None else as_number(until_offset),
        None if next_offset is None else as_number(next_offset),
        None if chosen_key is None else as_text(chosen_key),
    )


def _part_facts(is_exact: object, *numbers: object) -> PartFacts:
    return PartFacts(as_truth(is_exact), *(as_number(one, FIRST_LONG) for one in numbers))


def _chosen(fact: Fact, count: int) -> Chosen:
    digests = as_text(fact["digests"], _LONGEST_DIGEST * count).split(" ")
    if len(digests) != count:
        raise ValueError(f"{len(digests)} digests of {count} objects")
    return Chosen(as_text(fact["stem"]), Texts.of(digests))


def _parsed(found: object, count: int) -> Numbers:
    text = as_text(found, _LONGEST_NUMBER * count)
    if _NUMBERS.fullmatch(text) is None:
        raise ValueError(f"no numbers: {text:.60}")
    numbers = list(map(int, text.split(" ")))
    if len(numbers) == 1:
        return same(numbers[0], count)
    if len(numbers) != count:
        raise ValueError(f"{len(numbers)} numbers of {count} objects")
    return narrow(np.array(numbers, np.int64))


def _partition(fact: Fact, read: Callable[[], _Piece]) -> PartitionPlan:
    pieces = [read() for _ in fact["pieces"]] if "pieces" in fact else [_piece(fact)]
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
    """Join the parts of several pieces to the one sequence that the plan had."""
    runs = groupby(pieces, lambda one: one.stem if isinstance(one, ObjectParts) else None)
    return Chain(_as_one(stem, list(run)) for stem, run in runs)


def _as_one(stem: str | None, run: Sequence[Sequence[ObjectPart]]) -> Sequence[ObjectPart]:
    if stem is None:
        return tuple(part for one in run for part in one)
    return ObjectParts.join([one for one in run if isinstance(one, ObjectParts)])
