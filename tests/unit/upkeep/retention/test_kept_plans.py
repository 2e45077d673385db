"""Plans that were shown: what is agreed on by a digest is what was shown, and for an hour only."""

import pytest

from archiver.archive.format.control import append_fact
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.errors import CorruptSegmentError, UsageError
from archiver.upkeep.retention.planning.kept_plans import KEPT_MS, MOST_KEPT, keep_plan, read_plan
from tests.support.memory_store import MemoryStore

MADE_MS = 1_700_000_000_000
LINES = ("topics/t/partition=0/t+0-0.data etag 10", "topics/t/partition=0/t+0-10.data etag 20")


@pytest.fixture
def archive() -> Archive:
    return Archive(MemoryStore(), Layout("p"))


@pytest.mark.parametrize("later_ms", [0, KEPT_MS])
def test_what_was_shown_can_be_agreed_on_for_an_hour(archive: Archive, later_ms: int) -> None:
    digest = keep_plan(archive, MADE_MS, LINES)
    assert keep_plan(archive, MADE_MS, LINES) == digest
    assert read_plan(archive, digest, MADE_MS + later_ms) == frozenset(LINES)


@pytest.mark.parametrize("now_ms", [MADE_MS + KEPT_MS + 1, MADE_MS - 1])
def test_then_it_is_dropped(archive: Archive, now_ms: int) -> None:
    digest = keep_plan(archive, MADE_MS, LINES)
    with pytest.raises(UsageError, match=f"^--yes {digest}: the plan is older than an hour; `archiver retention --dry"):
        read_plan(archive, digest, now_ms)


def test_a_digest_is_of_each_object_and_of_the_moment(archive: Archive) -> None:
    shown = [(MADE_MS, LINES), (MADE_MS + 1, LINES), (MADE_MS, LINES[:1]), (MADE_MS, LINES[::-1])]
    assert len({keep_plan(archive, made_ms, lines) for made_ms, lines in shown}) == len(shown)


@pytest.mark.parametrize(
    ("digest", "why"),
    [("", "a digest is 32"), ("0" * 31, "a digest is 32"), ("../../x", "a digest is 32"), ("0" * 32, "no such plan")],
)
def test_what_was_never_shown_is_refused(archive: Archive, digest: str, why: str) -> None:
    keep_plan(archive, MADE_MS, LINES)
    with pytest.raises(UsageError, match=why):
        read_plan(archive, digest, MADE_MS)


def test_who_puts_another_plan_under_a_digest_has_nothing_deleted(archive: Archive) -> None:
    digest = keep_plan(archive, MADE_MS, LINES)
    more = {"format": 1, "made_ms": MADE_MS, "objects": [*LINES, "topics/t/partition=0/t+0-20.data etag 30"]}
    append_fact(archive, f"sweeps/plans/{digest}", lambda _: more)
    with pytest.raises(CorruptSegmentError, match="it names something else than its key"):
        read_plan(archive, digest, MADE_MS)


def test_a_plan_of_nothing_and_one_of_too_much_are_not_kept(archive: Archive) -> None:
    assert keep_plan(archive, MADE_MS, ()) == ""
    assert keep_plan(archive, MADE_MS, LINES[:1] * (MOST_KEPT + 1)) == ""
    assert not list(archive.store.list("p/"))


def test_a_plan_that_nobody_could_read_is_shown_without_a_digest(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("archiver.archive.format.control.most_fact_bytes", lambda _: 500)
    assert keep_plan(archive, MADE_MS, ["k" * 100] * 3)
    assert keep_plan(archive, MADE_MS, ["k" * 100] * 5) == ""
