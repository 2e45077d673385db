"""Which generations may go. What is read, and what may be read next, stays; so does whatever ends beyond the holder."""

from collections.abc import Iterable
from typing import NamedTuple

from archiver.archive.roles import CompleteCopy, Generation, RoleEntry


class Standing(NamedTuple):
    """A generation that a listing shows, and where its objects end."""

    generation: Generation
    end: int


def clearable(entry: RoleEntry, standing: Iterable[Standing], holder_end: int) -> tuple[Generation, ...]:
    """Return what is neither read nor to be read next, and ends where the holder has been. `holder_end`: the holder is whole to there.

    Only a copy makes others needless: while `topics/` holds, or nobody, all stay.
    """
    if not isinstance(entry.holder, CompleteCopy):
        return ()
    kept = {entry.holder.generation, entry.candidate}
    reached = max(entry.holder.position, holder_end)
    return tuple(one.generation for one in standing if one.generation not in kept and one.end <= reached)
