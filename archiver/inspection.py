"""One object, taken apart (`inspect`): header, facts, blocks, and whether they agree."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from archiver.codec.avro import ContainerHeader, decode_header, split_blocks
from archiver.errors import NotWholeError
from archiver.facts import PREFIX_IN_HEADER, PREFIX_IN_METADATA, facts_from_header, facts_from_metadata
from archiver.layout import SegmentKey
from archiver.verify import Level, check_content


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockRow:
    """One block as it lies in the file: where it ends, how many records, how many bytes compressed."""

    end: int
    records: int
    stored_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One comparison; `problem` is empty when it went well."""

    what: str
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What an object is made of. Without a header nothing else can be told."""

    size: int
    schema: str
    codec: str
    header: Mapping[str, str]
    metadata: Mapping[str, str]
    blocks: Sequence[BlockRow]
    checks: Sequence[Check]

    @property
    def records(self) -> int:
        return sum(block.records for block in self.blocks)


def take_apart(content: bytes, metadata: Mapping[str, str], key: SegmentKey | None, name: str) -> Inspection:
    """Look at all of an object. `key`: what its name says, None for a name that is not one of ours."""
    view = memoryview(content)
    header: ContainerHeader | None = None
    blocks: list[BlockRow] = []
    problem = ""
    try:
        header = decode_header(view, name)
        for block in split_blocks(view, header, name):
            blocks += [BlockRow(end=block.end, records=block.count, stored_bytes=len(block.payload))]
    except NotWholeError as error:
        problem = str(error)
    checks = [Check(what="structure", problem=problem)]
    if header is not None:
        checks.append(_has_facts(header, metadata, name))
        if key is not None:
            checks += [
                Check(what=level.value, problem=_try(content, metadata, key, name, level))
                for level in (Level.COUNTS, Level.RECORDS)
            ]
    ours = {} if header is None else header.metadata
    return Inspection(
        size=len(content),
        schema="" if header is None else header.schema.name,
        codec="" if header is None else header.codec.value,
        header={key: text for key, text in ours.items() if key.startswith(PREFIX_IN_HEADER)},
        metadata={key: text for key, text in metadata.items() if key.startswith(PREFIX_IN_METADATA)},
        blocks=blocks,
        checks=checks,
    )


def _has_facts(header: ContainerHeader, metadata: Mapping[str, str], name: str) -> Check:
    try:
        known = facts_from_metadata(metadata, name) or facts_from_header(header.metadata, name)
    except NotWholeError as error:
        return Check(what="facts", problem=str(error))
    return Check(what="facts", problem="" if known else f"{name}: has none, neither in its metadata nor in its header")


def _try(content: bytes, metadata: Mapping[str, str], key: SegmentKey, name: str, level: Level) -> str:
    try:
        check_content(content, metadata, key, name, level)
    except NotWholeError as error:
        return str(error)
    return ""
