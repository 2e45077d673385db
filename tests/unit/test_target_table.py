"""The table of docs/targets.md is that of the test which tries each of its cells."""

from tests.support import target_states
from tests.support.pages import with_table
from tests.support.target_states import CASES, PAGE, STATES, Mode


def test_the_page_has_the_table() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert with_table(text, target_states.MARK, target_states.table()) == text, "make docs"


def test_no_combination_is_left_out() -> None:
    assert len(CASES) == len(STATES) * len(Mode)
    assert len({case.target for case in CASES}) == len(CASES)
