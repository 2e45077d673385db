"""Worlds: what a cycle counts as a difference; the tables in the documentation are of the recorded runs, and every world has one."""

from pathlib import Path

import pytest

from tests.support.pages import with_table
from tests.support.records import Rec
from tests.worlds import figures
from tests.worlds.table import WORLDS
from tests.worlds.tally import Tally


def run_of(kafka: str, store: str, result: str = "whole", **figures: object) -> dict[str, object]:
    nothing = {"evidence": "", "records": 0, "kills": 0, "compared": 0, "differences": 0, "date": "2026-11-23"}
    return {"kafka": kafka, "store": store, "result": result, **nothing, **figures}


RECORDED = {
    "3.3": run_of("3.3.2", "MinIO 1", records=12000, kills=3, compared=50000, seconds=61),
    "racks": run_of("3.9.1", "moto 5", records=9000, kills=3, compared=40000, seconds=77, evidence="seen"),
    "S3Mock": run_of("4.1.1", "S3Mock 5", "backup is refused: no metadata", seconds=9, date="2026-11-22"),
}


@pytest.mark.parametrize("page", figures.PAGES, ids=lambda page: page.name)
def test_the_page_has_the_figures_of_the_newest_runs(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert with_table(text, figures.MARK, figures.PAGES[page](figures.read())) == text, "make docs"


def test_the_figures_list_each_world_and_no_other() -> None:
    assert list(figures.read()) == [world.name for world in WORLDS], "make test-worlds"


def test_no_run_found_a_difference() -> None:
    assert {name: one["differences"] for name, one in figures.read().items() if one["differences"]} == {}


def test_some_worlds_are_quick_and_names_differ() -> None:
    assert 1 <= sum(world.is_quick for world in WORLDS) <= 4
    assert len({world.name for world in WORLDS}) == len(WORLDS)


def test_the_tables() -> None:
    assert figures.proofs_table(RECORDED).splitlines()[2:] == [
        "| 3.3 | 3.3.2, MinIO 1 | 12,000, 50,000 | 2026-11-23 |",
        "| racks (seen) | 3.9.1, moto 5 | 9,000, 40,000 | 2026-11-23 |",
        "| S3Mock | 4.1.1, S3Mock 5 | backup is refused: no metadata | 2026-11-22 |",
    ]
    assert figures.readme_table(RECORDED).splitlines() == [
        "| full cycle | the oldest run is of 2026-11-22 |",
        "| --- | --- |",
        "| equal on Kafka | 3.3.2, 3.9.1 |",
        "| equal on stores | MinIO 1, moto 5 |",
        "| equal with | racks |",
        "| refused | S3Mock |",
    ]


def test_a_page_without_a_place_for_the_table_is_an_error() -> None:
    with pytest.raises(ValueError, match="no place"):
        with_table("# A page\n", figures.MARK, "| |")


def records(*values: bytes | None) -> list[Rec]:
    return [Rec(0, 1, 0, None, value) for value in values]


@pytest.mark.parametrize(
    ("found", "differences"),
    [
        ({0: records(b"one", None), 1: []}, 0),
        ({0: records(b"one", None)}, 0),
        ({0: records(b"one", b"")}, 1),
        ({0: records(b"one")}, 1),
        ({0: records(b"one", None, None)}, 1),
        ({0: records(None, b"one")}, 2),
        ({1: records(b"one", None)}, 4),
        ({}, 2),
    ],
)
def test_differences_are_counted(found: dict[int, list[Rec]], differences: int) -> None:
    tally = Tally()
    tally.compare("orders", {0: records(b"one", None), 1: []}, found)
    assert len(tally.differences) == differences
    assert tally.compared == max(2, differences, len(found.get(0, ())))


def test_values_that_differ_are_reported() -> None:
    tally = Tally()
    tally.compare_values("ls", {0: 5}, {0: 5})
    tally.compare_values("ls", {0: 5}, {0: 4})
    assert tally.differences == ["ls: {0: 4} and not {0: 5}"]
