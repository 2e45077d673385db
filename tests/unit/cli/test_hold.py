"""What `archiver hold add` waits for, and what it says."""

import re
from collections.abc import Mapping
from dataclasses import replace

import pytest

from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout, SegmentKey
from archiver.archive.index.index_generations import append_to_index
from archiver.archive.notes.holds import HOLDS, read_holds
from archiver.archive.notes.topic_changes import record_topic
from archiver.archive.segments.entries import IndexEntry
from archiver.cli import hold
from archiver.cli.main import main
from archiver.cli.spelling import moment
from archiver.store.port import Body, ObjectKind
from tests.support.memory_store import MemoryStore
from tests.support.segments import facts_of

LAYOUT = Layout()
KEYS = [LAYOUT.segment_key(SegmentKey(topic="orders", life=0, partition=0, base=base)) for base in (0, 10, 20)]
T0 = 1_700_000_000_000
ADD = ("hold", "add", "audit", "--reason", "law", "--by", "me", "--topics")


class SweptStore(MemoryStore):
    """A sweep deletes these keys right after a hold was put."""

    swept: tuple[str, ...] = ()

    def put_if_absent(self, key: str, body: Body, metadata: Mapping[str, str], *, kind: ObjectKind) -> str | None:
        put = super().put_if_absent(key, body, metadata, kind=kind)
        if key.startswith(LAYOUT.control_prefix(HOLDS)):
            self.delete(self.swept)
        return put


@pytest.fixture
def store() -> SweptStore:
    return SweptStore()


@pytest.fixture
def archive(store: SweptStore, monkeypatch: pytest.MonkeyPatch) -> Archive:
    """Three objects, 10 ms from one to the next; the index knows them."""
    found = Archive(store, LAYOUT)
    record_topic(found, topic="orders", topic_id="T", cluster_id="c", partitions=1, configs={})
    entries = []
    for base, key in zip((0, 10, 20), KEYS, strict=True):
        facts = replace(facts_of(base, base + 10), min_timestamp=T0 + base, max_timestamp=T0 + base)
        etag = store.put_if_absent(key, b"x", facts.to_metadata(), kind=ObjectKind.SEGMENT)
        entries.append(IndexEntry(SegmentKey(topic="orders", life=0, partition=0, base=base), 1, etag or "", facts))
    append_to_index(found, entries)
    monkeypatch.setattr(hold, "_archive", lambda _: found)
    monkeypatch.setattr("archiver.archive.notes.holds.DELETES_END_S", 0.01)
    return found


@pytest.mark.parametrize(
    ("topics", "matches"), [("orders", True), ("*", True), ("order", False), ("orders.", False), ("payments", False)]
)
def test_a_hold_that_matches_no_topic_is_taken_and_says_so(
    topics: str, matches: bool, archive: Archive, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*ADD, topics]) == 0
    said = capsys.readouterr().out
    assert ("--topics matches no topic of the archive yet; it holds those that come" in said) is not matches
    assert read_holds(archive)["audit"].topics == topics


@pytest.mark.parametrize(
    ("topics", "stems"),
    [
        ("orders.*", ["orders"]),
        ("a,orders.*,b.*", ["orders", "b"]),
        ("orders*", []),
        ("orders.eu", []),
        ("orders,orders.*", []),
        ("*.orders.*", []),
    ],
)
def test_a_hold_that_looks_like_a_regular_expression_says_what_it_does_not_hold(
    topics: str, stems: list[str], archive: Archive, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is taken: topics may be named `orders.eu`."""
    assert main([*ADD, topics]) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if "no regular expression is taken" in line]
    assert len(said) == len(stems)
    for line, stem in zip(said, stems, strict=True):
        assert f"{stem}.* holds topics that begin with '{stem}.', and not {stem}:" in line
    assert read_holds(archive)["audit"].topics == topics


@pytest.mark.parametrize(
    ("times", "gone"),
    [
        ((), KEYS[:2]),
        (("--from", f"{T0 + 10}"), KEYS[1:2]),
        (("--until", f"{T0 + 9}"), KEYS[:1]),
        (("--from", f"{T0 + 11}"), []),
    ],
)
@pytest.mark.usefixtures("archive")
def test_what_went_before_the_hold_was_in_force_is_named(
    times: tuple[str, ...], gone: list[str], store: SweptStore, capsys: pytest.CaptureFixture[str]
) -> None:
    store.swept = (KEYS[0], KEYS[1])
    assert main([*ADD, "orders", *times]) == (3 if gone else 0)
    said = capsys.readouterr()
    assert (
        "hold audit is in force: no sweep deletes these records from now on; its topics had 3 objects before, and have 1 now"
        in said.out
    )
    assert [key for key in KEYS if key in said.err] == gone


@pytest.mark.usefixtures("archive")
def test_an_object_with_unknown_times_counts_as_covered(store: SweptStore, capsys: pytest.CaptureFixture[str]) -> None:
    store.delete([key for key in store.objects if "/index/" in key])
    store.swept = (KEYS[0],)
    assert main([*ADD, "orders", "--from", f"{T0 + 15}"]) == 3
    assert KEYS[0] in capsys.readouterr().err


def test_no_wait_prints_until_when_deletes_may_happen(
    archive: Archive, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("archiver.archive.notes.holds.DELETES_END_S", 3600)
    until = moment(hold_ms(archive, 3600))
    assert main([*ADD, "orders", "--no-wait"]) == 0
    said = capsys.readouterr().out
    assert said == f"hold audit is put; sweeps may still carry out what they decided on before, until {until}\n"
    assert main([*ADD, "orders", "--no-wait"]) == 0  # the same again, by who was interrupted
    assert main([*ADD, "payments", "--no-wait"]) == 2


def hold_ms(archive: Archive, seconds: int) -> int:
    """When a hold is in force that is put next: each put in memory takes a second."""
    return int(archive.store.now().timestamp() * 1000) + 1000 * (seconds + 1)


def test_a_release_records_user_time_and_reason(archive: Archive, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ADD, "orders", "--no-wait"]) == 0
    assert main(["hold", "release", "audit", "--by", "Ann", "--reason", "the case is closed"]) == 0
    (held,) = read_holds(archive).values()
    assert (held.released_by, held.released_reason) == ("Ann", "the case is closed")
    capsys.readouterr()
    assert main(["hold", "release", "audit", "--by", "Bob", "--reason", "me too"]) == 0
    assert "hold audit was released before: by Ann, " in capsys.readouterr().out
    assert main(["hold", "list"]) == 0
    assert re.search(r"law +\S+Z +Ann +the case is closed$", capsys.readouterr().out, re.MULTILINE)
