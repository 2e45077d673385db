"""Folds that others may have put, or changed: each is reported, none is believed, and none ends the work."""

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from archiver.archive.format.control import decode_fact, encode_fact
from archiver.archive.format.layout import FoldKey, Layout
from archiver.archive.segments.segment_facts import TransactionRange
from archiver.groups.log import fold_object
from archiver.groups.log.fold_object import FOLD_DIGEST, FoldFacts, encode_fold, read_fold
from archiver.groups.log.folds import Folds, reaches_of
from archiver.groups.log.lives import Root
from archiver.groups.positions.archived_position import State
from archiver.groups.positions.positions_as_of import positions_as_of
from archiver.store.port import ObjectKind
from archiver.upkeep.control_check import check_control, control_problem
from tests.support.commit_frames import commit_value, frame_of, position_key
from tests.support.memory_store import StoredObject
from tests.support.offsets_archive import OffsetsArchive
from tests.support.records import Rec
from tests.unit.groups.test_folding import FIRST_MS, ROOTS, ROWS, Log, put_all

FACT = "control/group-folds/0/0/000000.json"


def archive_of() -> OffsetsArchive:
    return put_all(Log(ROWS, [2, 4, 5]), [1])


def told(archive: OffsetsArchive) -> tuple[list[tuple[str, int]], list[str]]:
    problems: list[str] = []
    log = archive.read(report=problems.append)
    return [(one.group, one.offset) for one in positions_as_of([log], ROOTS)], problems


def forge(archive: OffsetsArchive, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the fact as anybody with the right to put can: its own digest is good."""
    stored = archive.store.objects[FACT]
    fact = json.loads(json.dumps(dict(decode_fact(stored.body, FACT))))
    change(fact)
    archive.store.objects[FACT] = StoredObject(encode_fact(fact), {}, stored.last_modified)


def fold_of(archive: OffsetsArchive) -> str:
    (key,) = (key for key in archive.store.objects if key.endswith(".avro"))
    return key


TRUE = archive_of()
POSITIONS = told(TRUE)[0]


def test_a_fold_stands_only_for_times_at_which_all_its_commits_counted() -> None:
    archive = OffsetsArchive()
    rows = [(10, 0), (100, 1_000), (7, 1_500), (20, 9_000)]
    places = [("g", "x"), ("g", "x"), ("h", "x"), ("h", "x")]
    records = [
        Rec(at, FIRST_MS + ms, 0, position_key(*place, 0), commit_value(offset))
        for at, ((offset, ms), place) in enumerate(zip(rows, places, strict=True))
    ]
    archive.put(records[:3], 3, transactions=[TransactionRange(1, 1, 4_000)])
    assert archive.fold().facts.counts_ms == FIRST_MS + 5_000
    archive.put(records[3:], 4, base=3)

    def told(ms: int) -> list[tuple[str, State, int, int]]:
        found = positions_as_of([archive.read(FIRST_MS + ms)], {"x": [Root(0, "A", FIRST_MS)]})
        return [(one.group, one.state, one.offset, one.other_offset) for one in found]

    assert told(2_000) == [("g", State.AMBIGUOUS, 10, 100), ("h", State.SET, 7, -1)]
    assert archive.read(FIRST_MS + 2_000).fold_next == 0
    assert told(5_000) == [("g", State.SET, 100, -1), ("h", State.SET, 7, -1)]
    assert archive.read(FIRST_MS + 5_000).fold_next == 3


def test_the_archive_as_it_is_has_no_problem() -> None:
    assert told(TRUE)[1] == []
    assert TRUE.read().fold_next == 4
    assert check_control(TRUE.archive) == []


@pytest.mark.parametrize(
    ("change", "told_as"),
    [
        (lambda fact: fact["fold"].update(next="4"), "'4' where a number was to come"),
        (lambda fact: fact["fold"].update(records=2**62), "records of times"),
        (lambda fact: fact["fold"].update(records=1), "says something else than the fact that names it"),
        (lambda fact: fact["fold"].update(partition=1), "it names something else than its key"),
        (lambda fact: fact["fold"].update(next=5), "control/group-folds/0/0/folds/00000000000000000005-.*: is gone"),
        (lambda fact: fact["fold"].update(next=2**62), "the last objects are gone, or the fold is none of ours"),
        (lambda fact: fact["fold"].update(doubts=[[0, 1, False]] * 1001), "where something else was to come"),
        (lambda fact: fact["fold"].update(doubts=[[3, 4, True]]), "a doubt about offsets 3 to 4"),
        (lambda fact: fact["fold"]["sources"].update(earlier_next=9), "made of a fold up to 9"),
        (lambda fact: fact.update(format=2), "is newer than this program reads"),
    ],
)
def test_a_false_fact_is_reported_and_objects_are_read(change: Callable[[dict[str, Any]], None], told_as: str) -> None:
    archive = archive_of()
    forge(archive, change)
    found, problems = told(archive)
    assert found == POSITIONS
    assert len(problems) == 1
    assert problems[0].startswith(
        ("control/group-folds/0/0/", "__consumer_offsets-0: the fold control/group-folds/0/0/")
    )
    assert re.search(told_as, problems[0]), problems[0]


@pytest.mark.parametrize(("cut", "added"), [(-1, b""), (-9, b"12345678"), (0, b"")])
def test_a_damaged_fold_is_reported_and_objects_are_read(cut: int, added: bytes) -> None:
    archive = archive_of()
    key = fold_of(archive)
    stored = archive.store.objects[key]
    archive.store.objects[key] = StoredObject(stored.body[:cut] + added, stored.metadata, stored.last_modified)
    found, problems = told(archive)
    assert found == POSITIONS
    assert ["its bytes are not those that were written" in one for one in problems] == [True]
    assert len(check_control(archive.archive)) == 1
    archive.put([Rec(5, FIRST_MS + 9, 0, position_key("d", "x", 0), commit_value(1))], 6, base=5)
    again = archive.fold(report=problems.append)
    assert (again.facts.sources.earlier_next, again.facts.sources.objects) == (0, 4)
    assert told(archive) == ([*POSITIONS, ("d", 1)], [])


def test_a_damaged_fold_is_made_again_though_there_is_no_news() -> None:
    archive = put_all(Log(ROWS, [2, 4, 5]), [2])
    archive.store.delete([fold_of(archive)])
    archive.fold(report=lambda _: None)
    assert archive.read().fold_next == 5


def of_rows(archive: OffsetsArchive, frame_rows: int, **changes: Any) -> tuple[FoldFacts, bytes]:  # noqa: ANN401
    fold = Folds.of(archive.archive, pytest.fail).newest(reaches_of(archive.topic(), 0), 0)
    assert fold is not None
    facts = replace(fold.facts, **changes)
    rows = [(position_key(f"g{number}", "x", 0), commit_value(1), FIRST_MS) for number in range(frame_rows)]
    return facts, encode_fold(facts, frame_of(rows, 0))


@pytest.mark.parametrize(
    ("rows", "changes", "told_as"),
    [
        (9, {"next": 5}, "more records than 4 below offset 5"),
        (1, {"next": 5}, "1 records, not the 4 that were written"),
        (2, {"next": 5, "records": 2}, "2 records, not the 2 that were written: it was cut or changed"),
        (1, {"next": 5, "records": 1, "first_ms": FIRST_MS + 1}, "are not in order"),
        (1, {"next": 5, "partition": 1}, "it names something else than its key|a record of another topic or partition"),
    ],
)
def test_a_fold_that_is_not_what_it_says_is_reported(rows: int, changes: dict[str, Any], told_as: str) -> None:
    archive = archive_of()
    facts, content = of_rows(archive, rows, **changes)
    sha256 = hashlib.sha256(content).hexdigest()
    key = archive.archive.layout.fold_key(facts.key(sha256))
    archive.store.put_if_absent(key, content, {FOLD_DIGEST: sha256}, kind=ObjectKind.FACT)
    assert Folds.of(archive.archive, pytest.fail).note(facts, sha256)
    assert [one for one in check_control(archive.archive) if "is no fold of group positions" in one]
    if facts.partition == 0:
        found, problems = told(archive)
        assert found == POSITIONS
        assert archive.read(report=problems.append).fold_next == 4
        assert re.search(told_as, problems[0])


def test_a_fold_that_is_copied_to_another_partition_is_none_of_it() -> None:
    archive = archive_of()
    content, metadata = archive.store.objects[fold_of(archive)].body, archive.store.objects[fold_of(archive)].metadata
    assert control_problem(Layout(), fold_of(archive), content, metadata) == ""
    other = fold_of(archive).replace("group-folds/0/0/", "group-folds/0/1/")
    assert "is the fold of another partition" in control_problem(Layout(), other, content, metadata)
    with pytest.raises(Exception, match="another topic or partition"):
        list(read_fold(*_as_of_partition_1(archive), "key"))


def _as_of_partition_1(archive: OffsetsArchive) -> tuple[bytes, FoldFacts]:
    """Records of partition 1, under the facts of partition 0."""
    facts, content = of_rows(archive, 1)
    other = encode_fold(replace(facts, partition=1), frame_of([(position_key("a", "x", 0), None, FIRST_MS)], 0))
    start = len(encode_fold(facts, frame_of([], 0)))
    sync = content[start - 16 : start]
    return content[:start] + other[len(encode_fold(replace(facts, partition=1), frame_of([], 0))) : -16] + sync, facts


def test_of_two_writers_the_first_that_covers_as_much_holds() -> None:
    archive = archive_of()
    facts, _ = of_rows(archive, 0)
    folds = Folds.of(archive.archive, pytest.fail)
    assert not folds.note(facts, "1" * 64)
    assert not folds.note(replace(facts, next=3, records=3, doubts=()), "1" * 64)
    assert folds.note(replace(facts, next=5), "1" * 64)


def test_a_log_that_was_cut_back_goes_on_from_the_folds_below_the_branch() -> None:
    archive = put_all(Log(ROWS, [2, 4, 5]), [0, 1, 2])
    assert archive.read().fold_next == 5
    life = archive.cut_back(0, 4)
    archive.put([Rec(4, FIRST_MS + 5, 0, position_key("e", "x", 0), commit_value(9))], 6, base=4, life=life)
    log = archive.read()
    assert log.fold_next == 4
    found = {one.group: one.offset for one in positions_as_of([log], ROOTS)}
    assert found == {"a": 3, "b": 2, "e": 9}
    made = archive.fold()
    assert made.key.startswith(f"control/group-folds/{life}/0/folds/{6:020}-")
    assert made.facts.sources.earlier_next == 4
    assert archive.read().fold_next == 6


def test_another_topic_of_the_name_has_folds_of_its_own() -> None:
    archive = put_all(Log(ROWS, [5]), [0])
    archive.record_life("B")
    archive.put([ROWS[0]], 1, life=1)
    assert archive.read().fold_next == 0
    assert archive.fold().key.startswith("control/group-folds/1/0/")


def test_as_of_many_times_the_right_fold_is_found_by_few_requests() -> None:
    records = [Rec(n, FIRST_MS + n, 0, position_key("a", "x", 0), commit_value(n)) for n in range(64)]
    archive = put_all(Log(records, list(range(1, 65))), range(64))
    for until in range(0, 64, 7):
        assert archive.read(FIRST_MS + until).fold_next == until + 1
    folds = Folds.of(archive.archive, pytest.fail)
    folds.newest(reaches_of(archive.topic(), 0), 0, until_ms=FIRST_MS + 3)
    assert len(folds._read) <= 8


@pytest.mark.parametrize("key", [FoldKey(life=3, partition=49, next=12, digest="0" * 24)])
def test_the_spelling_is_the_one_of_the_format(key: FoldKey) -> None:
    layout = Layout("p")
    spelled = "p/control/group-folds/3/49/folds/00000000000000000012-000000000000000000000000.avro"
    assert layout.fold_key(key) == spelled
    assert layout.parse_fold(spelled) == key
    for wrong in (
        spelled.replace("p/", ""),
        spelled.replace("/49/", "/049/"),
        spelled.replace("/3/", f"/{2**31}/"),
        spelled.replace("0012-", "0000-"),
        spelled.replace(".avro", ".AVRO"),
        spelled + "\n",
        spelled.replace("folds/0", "folds/\u0660"),
    ):
        assert layout.parse_fold(wrong) is None
        assert layout.split_fact(wrong) is None


def test_a_fold_that_expands_without_end_is_not_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    archive = archive_of()
    assert archive.read().fold_next == 4
    monkeypatch.setattr(fold_object, "_MOST_BLOCK_BYTES", 64)
    found, problems = told(archive)
    assert found == POSITIONS
    assert re.search("the block before byte .*64", problems[0]), problems
