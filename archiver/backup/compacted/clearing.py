"""Which generations may go. What is read, and what may be read next, stays; so does whatever ends beyond the holder."""

from collections.abc import Iterable
from typing import NamedTuple

from archiver.archive.roles import CompleteCopy, Generation, RoleEntry


class Standing(NamedTuple):
    """A generation that a listing shows, and the highest `next` of its objects: behind a gap, too, for a tail may be read there."""

    generation: Generation
    end: int


def clearable(number: int, entry: RoleEntry, standing: Iterable[Standing], holder_end: int) -> tuple[Generation, ...]:
    """Return what is neither read nor to be read next, and ends where the holder has been. `holder_end`: the holder is whole to there.

    Only a copy makes others needless: while `topics/` holds, or nobody, all stay. What was begun after this entry, number
    `number`, stays as well: so nothing is lost where a process slept on the entry, and another copy holds by now.
    """
    if not isinstance(entry.holder, CompleteCopy):
        return ()
    kept = {entry.holder.generation, entry.candidate}
    reached = max(entry.holder.position, holder_end)
    going = (one for one in standing if one.generation not in kept and one.end <= reached)
    return tuple(one.generation for one in going if one.generation.number <= number)
