"""Inspects one object (`inspect`): its header, facts and blocks, and whether they agree."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Final

from archiver.archive.format.control import PRESENT, decode_fact
from archiver.archive.format.handle import open_archive
from archiver.archive.format.layout import Layout, SegmentKey
from archiver.archive.segments.segment import open_segment
from archiver.archive.segments.segment_facts import (
    PREFIX_IN_HEADER,
    PREFIX_IN_METADATA,
    SegmentFacts,
    check_named,
)
from archiver.codec.avro import ContainerHeader, decode_header, split_blocks
from archiver.config.model import ArchiverConfig
from archiver.errors import CorruptSegmentError, NotWholeError, UsageError
from archiver.upkeep.control_check import control_problem
from archiver.upkeep.object_check import Level, check_content

MOST_BLOCKS: Final = 1000  # blocks that are listed one by one: our objects have a few hundred, a hostile one millions


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockRow:
    """One block of the file: its end, number of records, compressed size."""

    end: int
    records: int
    stored_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The result of one check; `problem` is empty on success. A check that would repeat a problem is left out."""

    what: str
    problem: str = ""
    was_made: bool = True

    @property
    def outcome(self) -> str:
        """The result in a word."""
        if not self.was_made:
            return "not looked at"
        return "DAMAGED" if self.problem else "ok"


@dataclass(slots=True, kw_only=True)
class Inspection:
    """The readable parts of an object; `blocks` are the first MOST_BLOCKS.

    A control fact has neither header nor blocks: `text` is its content.
    """

    size: int
    schema: str = ""
    codec: str = ""
    header: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    block_count: int = 0
    records: int = 0
    blocks: list[BlockRow] = field(default_factory=list)
    text: str = ""
    checks: Sequence[CheckResult] = ()


def take_apart(content: bytes, metadata: Mapping[str, str] | None, key: SegmentKey | None, name: str) -> Inspection:
    """Inspect a whole object. `key`: the parsed name; None: not one of ours.

    `metadata`: None for a file, which has none.
    """
    found = Inspection(size=len(content))
    found.metadata = {key: text for key, text in (metadata or {}).items() if key.startswith(PREFIX_IN_METADATA)}
    if key is None and content.lstrip()[:1] == b"{":  # JSON; a container file begins with its magic
        found.text = content.decode(errors="replace")
        found.checks = _made([("fact", lambda: decode_fact(content, name, PRESENT))])  # with the largest limit
        return found
    view = memoryview(content)
    steps: list[tuple[str, Callable[[], object]]] = [
        ("structure", lambda: _take_blocks(found, view, decode_header(view, name), name)),
        ("facts", lambda: _compare_facts(found, view, metadata, key, name)),
    ]
    if key is not None:
        steps.append(("records", lambda: check_content(open_segment(view, metadata or {}, name), key, Level.RECORDS)))
    found.checks = _made(steps)
    return found


def take_control_apart(content: bytes, metadata: Mapping[str, str], problem: str) -> Inspection:
    """Inspect an object without records. `problem`: the one that archiver.upkeep.control_check has found."""
    found = Inspection(size=len(content), metadata=metadata, checks=[CheckResult(what="control", problem=problem)])
    if content.lstrip()[:1] == b"{":
        found.text = content.decode(errors="replace")
    return found


class _NoFactsError(CorruptSegmentError):
    """Facts are missing; the records are readable, so further checks run."""


def _made(steps: Sequence[tuple[str, Callable[[], object]]]) -> list[CheckResult]:
    checks: list[CheckResult] = []
    goes_on = True
    for what, step in steps:
        if not goes_on:
            checks.append(CheckResult(what=what, was_made=False))
            continue
        try:
            step()
        except NotWholeError as error:
            checks.append(CheckResult(what=what, problem=str(error)))
            goes_on = isinstance(error, _NoFactsError)
        else:
            checks.append(CheckResult(what=what))
    return checks


def _take_blocks(found: Inspection, view: memoryview, header: ContainerHeader, name: str) -> None:
    found.schema, found.codec = header.schema, header.codec.value
    found.header = {key: text for key, text in header.metadata.items() if key.startswith(PREFIX_IN_HEADER)}
    for block in split_blocks(view, header, name):
        found.block_count += 1
        found.records += block.count
        if len(found.blocks) < MOST_BLOCKS:
            found.blocks.append(BlockRow(end=block.end, records=block.count, stored_bytes=len(block.payload)))


def _compare_facts(
    found: Inspection, view: memoryview, metadata: Mapping[str, str] | None, key: SegmentKey | None, name: str
) -> None:
    differing = _differing(found) if found.metadata else []
    if differing:
        raise CorruptSegmentError(
            f"{name}: object metadata and Avro header differ: {', '.join(differing)}; bring its older version back"
        )
    body = open_segment(view, metadata or {}, name)
    facts = body.facts
    if not body.is_of_ours:
        return  # v1.0 has no facts
    if facts is None:
        raise _NoFactsError(f"{name}: has no facts, neither in its metadata nor in its header")
    body.check_block_counts(found.records)
    if key is not None:
        check_named(facts, key.base, key.next, name)
    if metadata is not None and not found.metadata:
        raise _NoFactsError(
            f"{name}: has no archiver-* metadata, without which no reader uses it; copy it again, with its metadata (its Avro"
            " header has the same)"
        )


def _differing(found: Inspection) -> list[str]:
    """Return the facts that differ in metadata and header."""
    in_header = {name.removeprefix(PREFIX_IN_HEADER): text for name, text in found.header.items()}
    in_metadata = {name.removeprefix(PREFIX_IN_METADATA): text for name, text in found.metadata.items()}
    names = [item.name.replace("_", "-") for item in fields(SegmentFacts)]
    return [name for name in names if in_header.get(name) != in_metadata.get(name)]


def inspect_object(config: ArchiverConfig | None, place: str) -> Inspection:
    """Take an object apart: a file, an s3:// address, or a key of the configured archive."""
    name = place.rpartition("/")[2]
    path = Path(place)
    if path.is_file():
        return take_apart(path.read_bytes(), None, Layout.parse_segment_name(name), place)
    if config is None:
        raise UsageError(f"{place}: no such file; for an object give s3://BUCKET/KEY, or a key with -c or --url")
    bucket = f"s3://{config.storage.bucket}/"
    if place.startswith("s3://") and not f"{place}/".startswith(bucket):
        raise UsageError(f"{place}: is not in the bucket {config.storage.bucket} of the configuration; leave -c out")
    key = place.removeprefix(bucket)
    if not name or key.startswith("s3://") or not _is_utf8(key):
        raise UsageError(f"{place}: names no object; `archiver ls TOPIC --segments` shows their keys")
    store, layout = open_archive(config.storage)
    found = store.get(key)
    if found is None:
        is_outside = layout.prefix and not key.startswith(layout.root)
        whole = f"; keys of this archive begin with {layout.root}" if is_outside else ""
        raise UsageError(f"s3://{config.storage.bucket}/{key}: there is no such object{whole}")
    if not layout.prefix and not key.startswith(
        layout.control_root
    ):  # an address alone does not show where the prefix ends
        layout = Layout(key.partition("/control/")[0].strip("/"))
    if key.startswith(layout.control_root):
        return take_control_apart(*found, control_problem(layout, key, *found))
    return take_apart(*found, Layout.parse_segment_name(name), key)


def _is_utf8(text: str) -> bool:
    """Return whether a text of the command line can be sent in a request."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
