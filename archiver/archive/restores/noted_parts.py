"""Encodes and decodes the objects that a restore reads, in the fact of its plan or in pieces of a large plan (docs/format.md §8)."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from archiver.archive.format.control import Fact, encode_fact, read_fact
from archiver.archive.format.handle import Archive
from archiver.archive.segments.parts import PART_COLUMNS, Chosen, FactsOfParts, ObjectPart, ObjectParts
from archiver.archive.segments.segment_facts import PartFacts
from archiver.codec.selection import FIRST_LONG
from archiver.process.values.columns import Numbers, Texts, narrow, same
from archiver.process.values.json_values import as_list, as_number, as_object, as_text, as_truth

MOST_OF_PIECE: Final = 20_000  # the most parts of one fact: two megabytes, as columns
_DIGITS: Final = 24
_LEFT_OUT: Final = "rewrite"  # where it is 0 for all objects
_LONGEST_NUMBER: Final = 22  # a long and a separator
_LONGEST_DIGEST: Final = 32
_NUMBERS: Final = re.compile(r"-?[0-9]{1,19}(?: -?[0-9]{1,19})*", re.ASCII)
_PIECE_NAME: Final = re.compile(rf"(0|[1-9][0-9]*)-[0-9a-f]{{{_DIGITS}}}", re.ASCII)


def _row_of(part: ObjectPart) -> tuple[object, ...]:
    return part.object_key, part.from_offset, part.until_offset, part.next_offset, part.chosen_key


def rows_to_fact(parts: Sequence[ObjectPart], facts: Sequence[PartFacts]) -> Fact:
    return {"parts": list(map(_row_of, parts)), "facts": list(facts)}


def columns_to_fact(parts: ObjectParts, facts: FactsOfParts) -> Fact:
    return {
        "objects": len(parts),
        "stem": parts.stem,
        **{
            name: _spelled(column)
            for name, column in zip(PART_COLUMNS, parts.columns, strict=True)
            if name != _LEFT_OUT or column.any()
        },
        **{name: _spelled(column) for name, column in zip(PartFacts._fields, facts.columns, strict=True)},
        **(
            {}
            if parts.chosen is None
            else {"chosen": {"stem": parts.chosen.stem, "digests": " ".join(parts.chosen.digests)}}
        ),
    }


def _spelled(column: Numbers) -> str:
    """Spell the numbers of a column as one text for a fact; a single number if all are equal."""
    numbers = column.astype(np.int64)
    return " ".join(map(str, (numbers[:1] if (numbers == numbers[0]).all() else numbers).tolist()))


# --- decoding


def planned_objects(archive: Archive, stream: str, plan: Fact) -> Iterator[str]:
    """Yield the key of each object that a noted plan reads. A malformed plan raises MALFORMED errors (finished_restores)."""
    for partition in map(as_object, as_list(plan["partitions"])):
        if "pieces" in partition:
            names = pieces_of({"partitions": [partition]})
            parts = (part for name in names for part in read_piece(archive, stream, name)[0])
        else:
            parts = (part_of(*as_list(row)) for row in as_list(partition["parts"]))
        yield from (part.object_key for part in parts)


Piece = tuple[Sequence[ObjectPart], FactsOfParts]


def pieces_of(fact: Fact) -> list[str]:
    """Return the names of a plan's pieces. Raises ValueError for an invalid name, and for a piece of another partition."""
    names = [(partition["partition"], name) for partition in fact["partitions"] for name in partition.get("pieces", ())]
    for number, name in names:
        match = _PIECE_NAME.fullmatch(name)
        if match is None or match[1] != str(number):
            raise ValueError(f"{name!r:.300} is no piece of partition {number}")
    return [name for _, name in names]


def read_piece(archive: Archive, stream: str, name: str) -> Piece:
    piece = read_fact(archive, f"{stream}/{name}", 0)
    if digest_of(encode_fact(piece)) != name.rpartition("-")[2]:
        raise ValueError(f"piece {name} is not what it is named after")
    return piece_of(piece)


def digest_of(content: bytes) -> str:
    """Return the digest of a piece's content; the name of the piece contains it."""
    return hashlib.sha256(content).hexdigest()[:_DIGITS]


def piece_of(fact: Fact) -> Piece:
    if "parts" in fact:
        facts = FactsOfParts.of(tuple(_part_facts(*as_list(one)) for one in as_list(fact["facts"])))
        rows = tuple(part_of(*as_list(part)) for part in as_list(fact["parts"]))
        if len(rows) != len(facts):
            raise ValueError(f"facts of {len(facts)} objects, and {len(rows)} objects")
        return rows, facts
    count = int(fact["objects"])
    if not 0 < count <= MOST_OF_PIECE:  # a single number stands for all
        raise ValueError(f"{count} objects in a piece")
    exact, *numbers = (_parsed(fact[name], count) for name in PartFacts._fields)
    columns = (_parsed(fact[name] if name != _LEFT_OUT else fact.get(name, "0"), count) for name in PART_COLUMNS)
    parts = ObjectParts(
        as_text(fact["stem"]), *columns, chosen=_chosen(fact["chosen"], count) if "chosen" in fact else None
    )
    return parts, FactsOfParts(exact.astype(bool), *numbers)


def part_of(
    object_key: object,
    from_offset: object,
    until_offset: object = None,
    next_offset: object = None,
    chosen_key: object = None,
) -> ObjectPart:
    """Decode a row of `_row_of` into a part."""
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
