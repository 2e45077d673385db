"""What `archiver restore list` and `restore show` tell, by the notes that restores themselves write."""

import json
import re
from dataclasses import replace

import pytest

from archiver.archive.format.handle import Archive
from archiver.cli.main import main
from archiver.restore.plan.request import RestoreRequest
from archiver.restore.plan.restore_notes import RestoreNotes
from archiver.restore.plan.restore_plan import TopicPlan
from archiver.store.port import ObjectKind
from tests.support.memory_store import MemoryStore
from tests.unit.archive.test_restore_pins import HISTORY, LAYOUT, finish, plan_of, verify

URL = ("--url", "s3://bucket/p")


@pytest.fixture
def archive(monkeypatch: pytest.MonkeyPatch) -> Archive:
    found = Archive(MemoryStore(), LAYOUT)
    monkeypatch.setattr("archiver.archive.format.handle.open_archive", lambda _: found)
    return found


@pytest.fixture
def plan() -> TopicPlan:
    """Two partitions, each with an object of two records."""
    plan = plan_of([HISTORY], [HISTORY])
    return replace(plan, partitions=tuple(replace(one, partition=at) for at, one in enumerate(plan.partitions)))


def note(archive: Archive, plan: TopicPlan) -> None:
    RestoreNotes(archive, "mine", "c").note_plans([plan], {"back": "T"}, RestoreRequest().terms)


def test_restore_show_follows_a_restore_from_plan_to_end(
    archive: Archive, plan: TopicPlan, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["restore", "list", *URL]) == 0
    assert capsys.readouterr().out == "the archive has no notes of a restore\n"
    note(archive, plan)
    verify(archive, replace(plan, partitions=plan.partitions[:1]))
    assert main(["restore", "show", "mine", *URL]) == 0
    said = capsys.readouterr().out
    assert re.match(r"orders@1 +back +2 +2 .* c +not finished$", said.splitlines()[1])
    assert re.search(r"^mine .* back +0 of 1 topic$", said, re.MULTILINE)
    assert said.endswith("to continue it, run the same command again with --id mine\n")
    finish(archive, plan)
    assert main(["restore", "show", "mine", *URL]) == 0
    assert "continue" not in capsys.readouterr().out
    assert main(["restore", "list", *URL, "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["restores"]
    assert (row["targets"], row["finished_targets"], row["is_finished"]) == (["back"], ["back"], True)
    assert row["begun"] < row["last_note"]


def test_an_unknown_restore_and_a_damaged_note_are_refused(
    archive: Archive, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["restore", "show", "other", *URL]) == 2
    assert "other: the archive has no notes of such a restore" in capsys.readouterr().err
    archive.store.put_if_absent("p/control/restores/other/back/plan/000000.json", b"{}", {}, kind=ObjectKind.FACT)
    assert main(["restore", "show", "other", *URL]) == 3
    assert main(["restore", "list", *URL]) == 0


def test_a_restore_without_a_target_says_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["restore", *URL]) == 2
    assert "--target is missing" in capsys.readouterr().err
