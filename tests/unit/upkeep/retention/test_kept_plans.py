"""Plans of sweeps that were shown."""

import pytest

from archiver.archive.handle import Archive
from archiver.archive.layout import Layout
from archiver.upkeep.retention.kept_plans import keep_plan, read_plan
from tests.support.memory_store import MemoryStore


def test_a_plan_is_read_by_its_digest() -> None:
    archive = Archive(MemoryStore(), Layout())
    digest = keep_plan(archive, 5, ["a key", "another"])
    assert read_plan(archive, digest, 6) == {"a key", "another"}


def test_a_plan_that_nobody_could_read_is_shown_without_a_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    archive = Archive(MemoryStore(), Layout())
    monkeypatch.setattr("archiver.upkeep.retention.kept_plans.most_fact_bytes", lambda _: 500)
    assert keep_plan(archive, 5, ["k" * 100] * 3)
    assert keep_plan(archive, 5, ["k" * 100] * 5) == ""
    assert keep_plan(archive, 5, []) == ""
