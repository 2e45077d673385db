"""Reads and writes the note of a running drill: the names of its scratch topics. It is put before them, and deleted last."""

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from archiver.archive.format.fact_model import BoundedText, Item
from archiver.archive.format.handle import Archive
from archiver.archive.format.note_stream import NoteKind

DRILLS: Final = "drills"
# Also the id of its restore. The notes of this restore are deleted, so no other id may be read from a note.
_ID: Final = re.compile(r"drill-[0-9a-f]{12}", re.ASCII)
# No backup archives a name that begins with __, unless its configuration spells it out.
SCRATCH: Final = "__archiver-drill-"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillNote:
    """A drill that has not ended. `scratch`: the scratch topic of each archived topic."""

    target_cluster_id: BoundedText
    scratch: Mapping[BoundedText, Item[BoundedText]]

    def __post_init__(self) -> None:
        for name in self.scratch.values():
            if not name.startswith(SCRATCH):  # other writers may put such notes, and the topics are deleted
                raise ValueError(f"{name[:100]!r} is not the name of a scratch topic")


_KIND: Final = NoteKind(DrillNote, "a drill", "find out who put it, and delete it and the topics of that drill")


def new_drill_id() -> str:
    return f"drill-{secrets.token_hex(6)}"


def put_drill(archive: Archive, drill_id: str, note: DrillNote) -> None:
    _KIND.at(archive, f"{DRILLS}/{drill_id}").update(lambda _: note)


def read_drills(archive: Archive) -> dict[str, DrillNote]:
    """Read the notes of drills that have not ended, by id. Raises NotWholeError."""
    found = {stream.removeprefix(f"{DRILLS}/"): note for stream, note in _KIND.read_all(archive, DRILLS).items()}
    return {drill_id: note for drill_id, note in sorted(found.items()) if _ID.fullmatch(drill_id)}


def drill_prefix(archive: Archive, drill_id: str) -> str:
    return archive.layout.control_prefix(f"{DRILLS}/{drill_id}")
