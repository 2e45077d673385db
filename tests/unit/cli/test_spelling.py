"""Counts read as a person would say them, of one thing, too."""

import pytest

from archiver.cli.spelling import table_lines
from archiver.process.output.text import spell_count


@pytest.mark.parametrize(
    ("count", "spelled"), [(0, "0 topics"), (1, "1 topic"), (2, "2 topics"), (12_345, "12,345 topics")]
)
def test_a_noun_follows_its_count(count: int, spelled: str) -> None:
    assert spell_count(count, "topic") == spelled


def test_what_takes_more_than_an_s_is_given() -> None:
    found = [spell_count(count, "object is", "objects are") for count in (1, 3)]
    assert found == ["1 object is", "3 objects are"]


def test_tables_cut_cells_and_quote_those_with_spaces_at_their_ends() -> None:
    rows = [("x" * 32_000, "1"), ("good ", "2"), ("", "3")]
    assert list(table_lines(("group", "n"), rows)) == [
        f"{'group':60}  n",
        f"{'x' * 255}…  1",
        '"good "'.ljust(60) + "  2",
        f"{'':60}  3",
    ]
