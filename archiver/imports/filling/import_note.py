"""Notes an import and its input, so that only the same input continues it, and positions of groups (docs/format.md §8)."""

import hashlib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from archiver.archive.format.control import Fact, append_fact, is_readable
from archiver.archive.format.fact_model import BoundedText, Item, Number
from archiver.archive.format.handle import Archive
from archiver.archive.format.note_stream import NoteKind
from archiver.archive.format.store_clock import machine_now_ms
from archiver.codec.selection import LAST_LONG
from archiver.errors import UsageError
from archiver.groups.positions.snapshots import Snapshot, SnapshotReader, snapshot_fact, stream_of, written_position

log = logging.getLogger(__name__)

IMPORTS: Final = "imports"
GroupOffsets = Mapping[str, Mapping[str, Mapping[int, int]]]  # by group, topic and partition
_DIGESTED_BYTES: Final = 64 * 1024  # at each end of a file


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedFile:
    """A file of an import's input."""

    name: BoundedText
    size: Number
    sha256: BoundedText  # of its two ends


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportNote:
    """An import: its kind, the topic that it fills, its input, and the options that change what is imported."""

    kind: BoundedText
    topic: BoundedText
    files: tuple[Item[ImportedFile], ...]
    options: tuple[Item[BoundedText], ...] = ()


IMPORT_NOTES: Final = NoteKind(ImportNote, "an import", "bring its older version back")


def describe_file(path: Path, name: str) -> ImportedFile:
    """Describe a file by its size and a digest of its two ends."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(0)
        digest = hashlib.sha256(file.read(_DIGESTED_BYTES))
        file.seek(max(0, size - _DIGESTED_BYTES))
        digest.update(file.read(_DIGESTED_BYTES))
    return ImportedFile(name=name, size=size, sha256=digest.hexdigest())


def refuse_too_many_files(note: ImportNote) -> None:
    """Raise UsageError if a note would be larger than readers take."""
    if not is_readable(IMPORT_NOTES.encode(note), _stream(note.topic)):
        raise UsageError(
            f"{note.topic}: has {len(note.files):,} files, more than the note of an import can name (about 150,000)"
        )


def is_same_import(archive: Archive, note: ImportNote) -> bool:
    """Return whether an earlier import of the same input filled this topic; False: none did.

    Raises UsageError for another input, or other options.
    """
    noted = IMPORT_NOTES.at(archive, _stream(note.topic)).read()
    if noted is None:
        return False
    if noted.options != note.options:
        former = " ".join(noted.options) or "none of its own"
        raise UsageError(
            f"{note.topic}: an earlier import of this topic had other options ({former}); give the same ones to continue it, or"
            " import into another name with --rename"
        )
    if noted != note:
        changed = _changed(noted.files, note.files)
        raise UsageError(
            f"{note.topic}: an earlier import filled this topic from other input ({changed}); import into another name"
            " with --rename, or bring the same files back to continue that import"
        )
    return True


def note_import(archive: Archive, note: ImportNote) -> None:
    """Note an import before its first object is put."""
    IMPORT_NOTES.at(archive, _stream(note.topic)).update(lambda noted: noted or note)


def note_positions(archive: Archive, cluster_id: str, positions: GroupOffsets) -> None:
    """Add positions to those of the newest snapshot, in a snapshot of now."""

    def decide(latest: Fact | None) -> Fact | None:
        newest = next(SnapshotReader(archive, LAST_LONG, log.warning).newest_first(), None)
        before, missing = ({}, ()) if newest is None else (_plain(newest), newest.missing)
        groups = _joined(before, positions)
        # After a lost answer, `latest` is ours. It is not the newest one if a writer's clock is ahead.
        if groups == before or (latest is not None and latest.get("groups") == groups):
            return None
        return snapshot_fact(cluster_id, machine_now_ms(), 0, groups, missing)

    append_fact(archive, stream_of(machine_now_ms()), decide)


def _plain(snapshot: Snapshot) -> dict[str, Any]:
    """Return the groups of a snapshot as it is written."""
    return {
        group: {
            topic: {
                str(partition): written_position(one.offset, one.leader_epoch, one.metadata)
                for partition, one in partitions.items()
            }
            for topic, partitions in topics.items()
        }
        for group, topics in snapshot.groups.items()
    }


def _joined(groups: Mapping[str, Any], positions: GroupOffsets) -> dict[str, Any]:
    """Return the groups of a snapshot with the positions in imported topics in place of their own there."""
    joined = {group: dict(topics) for group, topics in groups.items()}
    for group, topics in positions.items():
        for topic, partitions in topics.items():
            joined.setdefault(group, {})[topic] = {
                str(one): written_position(offset) for one, offset in partitions.items()
            }
    return joined


def _stream(topic: str) -> str:
    return f"{IMPORTS}/{topic}"


def _changed(noted: Iterable[ImportedFile], found: Iterable[ImportedFile]) -> str:
    former, present = {one.name: one for one in noted}, {one.name: one for one in found}
    names = sorted(name for name in former.keys() | present.keys() if former.get(name) != present.get(name))
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{names[0]}{more}" if names else "in another format"
