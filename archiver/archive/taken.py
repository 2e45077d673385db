"""Groups of control objects that sweeps have deleted or are about to delete; counts include them (docs/format.md §14)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Final

from pydantic import Field

from archiver.archive.control import RESTORES, Fact, append_fact, latest_fact, list_numbers
from archiver.archive.fact_model import BoundedText, FactModel, Item, Number
from archiver.archive.handle import Archive
from archiver.archive.sweeps import SWEEPS
from archiver.errors import ArchiverError, CorruptSegmentError

_STREAM: Final = f"{SWEEPS}/taken"
MOST_NAMED: Final = 100_000  # restores that were taken, and groups that are being taken
_KEPT_FACTS: Final = 100
GROUP_PARTS: Final = 2  # `restores/<id>`, `group-positions/<day>`


def root_of(stream: str) -> str:
    """Return what the objects of a stream are counted under: its first part; of a restore also its id."""
    parts = stream.split("/", maxsplit=GROUP_PARTS)
    return "/".join(parts[:GROUP_PARTS]) if parts[0] == RESTORES else parts[0]


def group_of(stream: str) -> str:
    """Return the group of control objects that a stream belongs to: a group is deleted as a whole."""
    return "/".join(stream.split("/", maxsplit=GROUP_PARTS)[:GROUP_PARTS])


@dataclass(frozen=True, slots=True, kw_only=True)
class Taking:
    """A group that is being taken: how many objects it had when that was noted, and when that was."""

    objects: Number
    since_ms: Number


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """Deleted control objects by owner, and groups that are about to be deleted. The newest fact has all of them."""

    taken: Annotated[Mapping[BoundedText, Item[Number]], Field(max_length=MOST_NAMED)] = field(default_factory=dict)
    taking: Annotated[Mapping[BoundedText, Item[Taking]], Field(max_length=MOST_NAMED)] = field(default_factory=dict)

    def accounted(self, listed: Mapping[str, int], in_groups: Mapping[str, int]) -> Mapping[str, int]:
        """Return how many objects there ever were, by what they are counted under, of a listing that shows so many.

        Of a group that is being taken, all count that it had: no object of it can be lost any more.
        """
        counts = dict(listed)
        for root, count in self.taken.items():
            counts[root] = counts.get(root, 0) + count
        for group, one in self.taking.items():
            root = root_of(group)
            counts[root] = counts.get(root, 0) + max(0, one.objects - in_groups.get(group, 0))
        return counts


_FACT: Final = FactModel(Taken)


def read_taken(archive: Archive) -> Taken:
    """Read what sweeps have taken. Raises NotWholeError."""
    latest = latest_fact(archive, _STREAM)
    return Taken() if latest is None else _of_fact(archive, latest)


def note_taking(archive: Archive, group: str, objects: int, now_ms: int) -> None:
    """Write down that a group goes, before any object of it does. Of one that was noted before, the most objects count, and this moment."""

    def change(before: Taken) -> Taken:
        known = before.taking.get(group)
        most = objects if known is None else max(known.objects, objects)
        return replace(before, taking={**before.taking, group: Taking(objects=most, since_ms=now_ms)})

    _write(archive, change)


def note_taken(archive: Archive, group: str, left: int = 0) -> None:
    """Write down that no more of a group goes: `left` objects of it stay. Of two sweeps, the first counts what went."""

    def change(before: Taken) -> Taken:
        known = before.taking.get(group)
        if known is None:
            return before
        root, gone = root_of(group), max(0, known.objects - left)
        counts = {**before.taken, root: before.taken.get(root, 0) + gone} if gone else before.taken
        return Taken(taken=counts, taking={name: one for name, one in before.taking.items() if name != group})

    _write(archive, change)


def old_facts_of_taken(archive: Archive) -> list[str]:
    """Return the keys of old facts. Enough remain for readers that listed them some time ago."""
    return [archive.layout.fact_key(_STREAM, number) for number in list_numbers(archive, _STREAM)[:-_KEPT_FACTS]]


def _write(archive: Archive, change: Callable[[Taken], Taken]) -> None:
    def decide(latest: Fact | None) -> Fact | None:
        before = Taken() if latest is None else _of_fact(archive, latest)
        after = change(before)
        if after == before:
            return None
        # Readers would refuse it, and all of them would count as lost.
        if max(len(after.taken), len(after.taking)) > MOST_NAMED:
            raise ArchiverError(
                f"{archive.layout.control_prefix(_STREAM)}: would name more than {MOST_NAMED:,} restores"
            )
        return _FACT.write(after)

    append_fact(archive, _STREAM, decide)


def _of_fact(archive: Archive, fact: Fact) -> Taken:
    def refusal(why: str) -> CorruptSegmentError:
        return CorruptSegmentError(
            f"{archive.layout.control_prefix(_STREAM)}: its newest fact does not tell what sweeps have taken of the control"
            f" objects: {why}; bring its older version back"
        )

    return _FACT.read(fact, refusal)
