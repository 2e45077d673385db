"""Notes an import and its input, so that only the same input continues it (docs/format.md §8)."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from archiver.archive.format.fact_model import BoundedText, Item, Number
from archiver.archive.format.handle import Archive
from archiver.archive.format.note_stream import NoteKind
from archiver.errors import UsageError

IMPORTS: Final = "imports"
_DIGESTED_BYTES: Final = 64 * 1024  # at each end of a file


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedFile:
    """A file of an import's input."""

    name: BoundedText
    size: Number
    sha256: BoundedText  # of its two ends


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportNote:
    """An import: its kind, the topic that it fills, and its input."""

    kind: BoundedText
    topic: BoundedText
    files: tuple[Item[ImportedFile], ...]


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


def is_same_import(archive: Archive, note: ImportNote) -> bool:
    """Return whether an earlier import of the same input filled this topic; False: none did. Raises UsageError for another input."""
    noted = IMPORT_NOTES.at(archive, _stream(note.topic)).read()
    if noted is None:
        return False
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


def _stream(topic: str) -> str:
    return f"{IMPORTS}/{topic}"


def _changed(noted: Iterable[ImportedFile], found: Iterable[ImportedFile]) -> str:
    former, present = {one.name: one for one in noted}, {one.name: one for one in found}
    names = sorted(name for name in former.keys() | present.keys() if former.get(name) != present.get(name))
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{names[0]}{more}" if names else "in another format"
