"""Positions of groups in imported logs of `__consumer_offsets`: a removed one is never believed to be there."""

from collections.abc import Callable
from pathlib import Path

import pytest

from archiver.archive.format.handle import Archive
from archiver.archive.reading.catalog import find_topic
from archiver.codec.selection import LAST_LONG
from archiver.groups.log.archived_log import read_log
from archiver.groups.log.folds import Folds
from archiver.groups.log.lives import Root
from archiver.groups.positions.archived_position import State
from archiver.groups.positions.positions_as_of import positions_as_of
from archiver.imports.logs import log_import
from tests.support.commit_frames import commit_value, position_key
from tests.support.import_sites import ARCHIVE
from tests.support.log_directories import LogDirectory, flipped
from tests.support.memory_store import FIRST_MOMENT
from tests.support.records import Rec
from tests.support.reference_batch import batch_of, encode
from tests.unit.imports.test_log_import import Site

TOPIC = "__consumer_offsets"


def commit(at: int, group: str, offset: int | None) -> bytes:
    value = None if offset is None else commit_value(offset)
    return encode(batch_of([Rec(at, 1000 + at, 0, position_key(group, "orders", 0), value)]))


# Records 2 to 6 were compacted: others with the same keys follow. Group b was removed.
BEGIN = (commit(0, "b", 5), commit(1, "c", 7), commit(7, "a", 3))
REST = (commit(8, "b", None), commit(9, "a", 4))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setattr(log_import, "machine_now_ms", lambda: int(FIRST_MOMENT.timestamp() * 1000))
    site = Site(tmp_path)
    site.first = LogDirectory(tmp_path / "disk", TOPIC)
    site.first.write(0, *BEGIN)
    site.first.note_cluster("C1")
    return site


def positions(site: Site) -> dict[str, tuple[State, int]]:
    site.run(*(one for one in (site.first, site.second) if one.topic == TOPIC))
    archive = Archive(site.store, ARCHIVE)
    topic, told = find_topic(archive, TOPIC), list[str]()
    log = read_log(site.store, topic, 0, LAST_LONG, told.append, Folds(archive, {}, told.append))
    found = positions_as_of([log], {"orders": [Root(0, "", None)]})
    assert told == []
    return {one.group: (one.state, one.offset) for one in found}


def test_positions_of_a_whole_log_are_certain(site: Site) -> None:
    site.first.write(8, *REST)
    site.first.note_replicated(10)
    found = positions(site)
    assert found["a"] == (State.SET, 4)
    assert found["c"] == (State.SET, 7)  # in the compacted part
    assert found["b"][0] is State.REMOVED


def lose_the_last_file(site: Site) -> None:
    site.first.note_replicated(10)


def lose_a_file_but_its_index(site: Site) -> None:
    site.first.write(9, REST[1])
    site.first.note_replicated(10)
    (site.first.path / f"{TOPIC}-0" / f"{8:020}.index").touch()


def fill_from_another_replica(site: Site) -> None:
    """The other one's cleaner may have been further: it has the commit before a removal, or the removal, no more."""
    broken = flipped(commit(8, "b", None))
    site.first.write(8, broken, commit(9, "a", 4), commit(10, "e", 1))
    site.first.note_replicated(10)
    site.second = LogDirectory(site.first.path.parent / "other", TOPIC)
    site.second.write(7, commit(7, "a", 3), commit(8, "d", 1), commit(9, "a", 4))
    for one in (site.first, site.second):
        one.note_epochs((0, 0))


def lose_the_checkpoint(site: Site) -> None:
    site.first.write(8, REST[1])


@pytest.mark.parametrize(
    "lose", [lose_the_last_file, lose_a_file_but_its_index, fill_from_another_replica, lose_the_checkpoint]
)
def test_a_removed_position_is_not_believed_where_a_part_of_the_log_may_be_missing(
    site: Site, lose: Callable[[Site], None]
) -> None:
    lose(site)
    assert positions(site)["b"][0] is State.UNKNOWN
