"""A copy that was found to have keys which Kafka no longer has: the next one is made due."""

import pytest

from archiver.archive.copies import role_entries as entries
from archiver.archive.copies.roles import EntryType, RoleEntry, read_newest_entry
from archiver.backup.compacted.work.outdated import make_next_due
from tests.support.standing_copies import PLACE, StandingCopies, copy_of, generation


def newest(stand: StandingCopies) -> tuple[int, RoleEntry]:
    found = read_newest_entry(stand.archive, PLACE)
    assert found is not None
    return found.number, found.entry


@pytest.mark.parametrize(
    ("whose", "is_sure", "is_noted"), [("a0", True, True), ("a0", False, False), ("b7", True, False)]
)
def test_the_copy_that_is_read_is_noted_as_unsure_once(whose: str, *, is_sure: bool, is_noted: bool) -> None:
    """Not one that is read no more, nor one that is unsure already."""
    stand = StandingCopies()
    begun = entries.begin(None, 0, "a", has_history=False)
    stand.note(0, begun, 0)
    stand.note(1, entries.switch(begun, 1, copy_of("a0", 20, is_sure=is_sure)), 0)
    for _ in range(2):
        assert make_next_due(stand.archive, PLACE.copy_key(generation(whose)))
    number, entry = newest(stand)
    assert (number, entry.type) == ((2, EntryType.UNSURE) if is_noted else (1, EntryType.SWITCH))
    assert (entry.broke, entry.holder) == (2 if is_noted else None, copy_of("a0", 20, is_sure=is_sure and not is_noted))
