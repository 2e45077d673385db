"""What `archiver hold add` says of topics that its regular expression does not match."""

import pytest

from archiver.archive.handle import Archive
from archiver.archive.holds import read_holds
from archiver.archive.layout import Layout
from archiver.archive.topics import record_topic
from archiver.cli import hold
from archiver.cli.main import main
from tests.support.memory_store import MemoryStore


@pytest.fixture
def archive(monkeypatch: pytest.MonkeyPatch) -> Archive:
    found = Archive(MemoryStore(), Layout())
    record_topic(found, topic="orders", topic_id="T", cluster_id="c", partitions=1, configs={})
    monkeypatch.setattr(hold, "_archive", lambda _: found)
    return found


@pytest.mark.parametrize(
    ("topics", "matches"), [("orders", True), (".*", True), ("order", False), ("orders.", False), ("payments", False)]
)
def test_a_hold_that_matches_no_topic_is_taken_and_says_so(
    topics: str, matches: bool, archive: Archive, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["hold", "add", "audit", "--topics", topics, "--reason", "law", "--by", "me"]) == 0
    said = capsys.readouterr().out
    assert ("--topics matches no topic of the archive yet; it holds those that come" in said) is not matches
    assert read_holds(archive)["audit"].topics == topics
