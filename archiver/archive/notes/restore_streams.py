"""Lists the notes of restores, and reads them: of each stream the note, or the error that says why it cannot be read.

The caller decides what a damaged note means: pins and sweeps keep objects, restores refuse.
"""

from collections.abc import Callable, Collection, Iterator
from typing import Final, NamedTuple, TypeVar

from archiver.archive.format.control import READS_AT_ONCE, RESTORES, Fact, Listed, read_fact
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import is_restore_id
from archiver.archive.format.store_clock import epoch_ms
from archiver.errors import NotWholeError
from archiver.process.running.workers import side_by_side

Decoded = TypeVar("Decoded")
_PARTS: Final = 4  # restores/<id>/<target>/<name>


class ListedNote(NamedTuple):
    """A listed note of a restore. Its stream is `restores/<restore_id>/<target>/<name>`."""

    stream: str
    restore_id: str
    target: str  # a topic; or the directory of the notes about groups
    name: str  # a piece of a plan has a name with a slash
    listed: Listed


def list_restore_notes(archive: Archive, parent: str = RESTORES) -> Iterator[ListedNote]:
    """Yield the notes of all restores, or those below a parent. Of a stream, the newest comes last."""
    for item in archive.store.list(archive.layout.control_prefix(parent)):
        stream, number = archive.layout.split_fact(item.key) or ("", 0)
        parts = stream.split("/", _PARTS - 1)
        if len(parts) == _PARTS and is_restore_id(parts[1]):
            listed = Listed(number, item.size, epoch_ms(item.last_modified))
            yield ListedNote(stream, parts[1], parts[2], parts[3], listed)


def read_each(
    archive: Archive, notes: Collection[ListedNote], decode: Callable[[str, Fact], Decoded]
) -> Iterator[tuple[ListedNote, Decoded | NotWholeError]]:
    """Read notes, several at a time. Yields each with the result of `decode`, or with the error of a note that is not whole."""

    def read(note: ListedNote) -> Decoded | NotWholeError:
        try:
            return decode(note.stream, read_fact(archive, note.stream, note.listed))
        except NotWholeError as error:
            return error

    return zip(notes, side_by_side(READS_AT_ONCE, read, notes, "notes"), strict=True)


def required(found: Decoded | NotWholeError) -> Decoded:
    """Return a result of `read_each`. Raises the error of a note that is not whole."""
    if isinstance(found, NotWholeError):
        raise found
    return found
