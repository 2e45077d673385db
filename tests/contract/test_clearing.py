"""A clearing of copies deletes on real stores what it is to delete, and what the store denies blocks nothing else."""

from dataclasses import replace

import pytest

from archiver.archive.copies import role_entries as entries
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.archive.format.store_clock import epoch_ms
from archiver.backup.compacted.clearing import clearing_run
from archiver.backup.compacted.clearing.clearing_rules import NO_LOG, ClearingRules
from archiver.backup.compacted.clearing.clearing_run import ClearingReport, clear_copies
from archiver.backup.compacted.clearing.clearing_survey import ClearingSurvey
from archiver.store.port import ObjectKind, ObjectStore
from tests.contract.conftest import FaultyStore
from tests.support.faulty_s3 import Fault
from tests.support.standing_copies import PLACE, StandingCopies, copy_of, put_here

OTHER = replace(PLACE, partition=4)
DELAY_MS = 3_600_000


def put_copies(store: ObjectStore) -> None:
    """Two partitions, in each of which b2 is read, and a0 no more."""
    made = StandingCopies()
    for place in (PLACE, OTHER):
        log = entries.switch(entries.begin(None, 0, "a", has_history=False), 1, copy_of("a0", 5))
        made.note(3, entries.switch(entries.begin(log, 2, "b", has_history=False), 3, copy_of("b2", 6)), 0, place)
        made.fill("a0", [(at, at + 1) for at in range(5)], place)
        made.fill("b2", [(at, at + 1) for at in range(6)], place)
    for key, one in made.store.objects.items():
        assert store.put_if_absent(key, one.body, one.metadata, kind=ObjectKind.SEGMENT)


def clear(store: ObjectStore, later_ms: int = 0) -> ClearingReport:
    archive = Archive(store, Layout("p"))
    survey = ClearingSurvey(
        archive,
        ClearingRules(delay_ms=DELAY_MS),
        0,
        lambda places: dict.fromkeys(places, NO_LOG),
        catalog=put_here(archive),
    )
    newest_ms = max(
        epoch_ms(item.last_modified) for item in store.list("p/")
    )  # of entries and of what proves the copies
    return clear_copies(survey, [PLACE, OTHER], newest_ms + DELAY_MS + later_ms)


def left_of(store: ObjectStore) -> list[tuple[int, str]]:
    """Of both partitions, how many objects of which generation are there."""
    counts = dict[str, int]()
    for item in store.list("p/compacted/"):
        directory = item.key.rpartition("/")[0]
        counts[directory] = counts.get(directory, 0) + 1
    return [(count, directory.partition("compacted/")[2]) for directory, count in counts.items()]


B2 = [(6, f"b/topics/orders/partition={number}/generation=2") for number in (3, 4)]


def test_exactly_what_is_read_no_more_goes(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clearing_run, "_BATCH", 2)
    put_copies(store)
    assert not clear(store, later_ms=-DELAY_MS // 2).cleared
    report = clear(store)
    assert [(one.place, one.objects) for one in report.cleared] == [(PLACE, 5), (OTHER, 5)]
    assert left_of(store) == B2
    assert not clear(store).cleared


def test_what_the_store_denies_blocks_nothing_else(faulty: FaultyStore) -> None:
    put_copies(faulty.direct)
    with faulty.proxy.failing(Fault.DENIED, "POST", 1):
        report = clear(faulty.store)
    assert len(report.refused) == 1
    assert "grant s3:DeleteObject on it" in report.refused[0]
    assert [one.place for one in report.cleared] == [OTHER]
    clear(faulty.direct)
    assert left_of(faulty.direct) == B2
