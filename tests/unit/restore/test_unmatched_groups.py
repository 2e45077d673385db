"""What is told where no group is matched: which there are, in bounds; and nothing where there is none."""

import re
from collections.abc import Collection, Sequence

import pytest

from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.codec.selection import LAST_LONG
from archiver.config.model import ArchiverConfig
from archiver.groups.positions import shown
from archiver.groups.positions.archived_position import ArchivedPosition
from archiver.groups.positions.shown import PositionFilter, ShownGroups, ShownPosition
from archiver.restore.groups.group_restore import GroupRequest, unmatched_problem
from archiver.store.address import group_of
from tests.support.memory_store import MemoryStore
from tests.unit.restore.test_group_restore import position

CONFIG = ArchiverConfig.model_validate(
    {"kafka": {"bootstrap.servers": "x:1"}, "storage": {"url": "s3://bucket/prefix"}}
)


def problem(
    patch: pytest.MonkeyPatch, positions: Sequence[ArchivedPosition], sources: Collection[str], topics: str = ".*"
) -> str:
    def show(_archive: object, wanted: PositionFilter, *_: object) -> ShownGroups:
        found = [ShownPosition(position=one, lag=None) for one in positions if wanted.wants(one)]
        return ShownGroups(positions=found, logs=(), snapshot_ms=None)

    patch.setattr(shown, "show_groups", show)
    wanted = PositionFilter(as_of_ms=LAST_LONG, groups=re.compile("biling"), topics=re.compile(topics))
    asked = GroupRequest(config=CONFIG, wanted=wanted, renames={})
    return unmatched_problem(Archive(MemoryStore(), Layout()), asked, sources)


def test_the_groups_of_the_restored_topics_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    positions = [position("billing"), position("billing", partition=1), position("mail", topic="a.b")]
    positions += [position("else", topic="axb"), position(group_of(CONFIG))]
    told = problem(monkeypatch, positions, {"orders", "a.b"})
    assert told.startswith("--groups 'biling' matches none of those that the archive has: 2 groups have positions in")
    assert "topics: billing, mail. Run" in told
    assert "1 group has positions in the restored topics: mail. Run" in problem(
        monkeypatch, positions, {"orders", "a.b"}, r"a\.."
    )
    # An expression of topics may have a slip, too.
    told = problem(monkeypatch, positions, {"orders", "a.b"}, "ordres")
    assert told.startswith("--topics 'ordres' matches none of the restored topics: a.b, orders. Run")


def test_where_there_is_none_nothing_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    positions = [position(group_of(CONFIG)), position("x", topic="other")]
    assert problem(monkeypatch, positions, {"orders"}) == ""
    assert problem(monkeypatch, positions, set()) == ""


def test_many_groups_and_long_names_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    told = problem(monkeypatch, [position(f"{number:04}" + "x" * 9000) for number in range(1500)], {"orders"})
    assert "1,500 groups have positions" in told
    assert "… and 1,480 more. Run" in told
    assert len(told) < 20 * 260 + 500
