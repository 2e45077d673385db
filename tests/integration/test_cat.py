"""`cat`, `ls` and what a restore reads, of archives that are not whole: what is there is told, and so is what is not."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import archiver.store
from archiver.browse import read_archive
from archiver.cli import main
from archiver.control import read_topic, settle_topic
from archiver.errors import CorruptSegmentError
from archiver.layout import Layout, SegmentKey
from archiver.restore import plan_restore
from archiver.segment import OpenSegment
from tests.support.frames import frame_of
from tests.support.memory_store import MemoryStore, StoredObject
from tests.support.records import Rec
from tests.support.segments import NO_LIMIT, SOURCE, content_of

LAYOUT = Layout("p")
PARTITION = 3
TOPIC_FACT = LAYOUT.fact_key("topics/orders", 0)


class Archive:
    """Topic `orders` of 5 partitions: 3 objects of 2 records in partition 3, one in 4. Each covers 10 offsets."""

    def __init__(self, spool: Path) -> None:
        self.store = MemoryStore()
        settle_topic(self.store, LAYOUT, topic="orders", topic_id="A", cluster_id="c", partitions=5, configs={"k": "v"})
        for partition, base in ((3, 0), (3, 10), (3, 20), (4, 0)):
            self.append(spool, partition, base)

    def append(self, spool: Path, partition: int, base: int) -> None:
        segment = OpenSegment(replace(SOURCE, partition=partition), base, NO_LIMIT, spool)
        records = [Rec(base + at, 5, 0, b"k", b"v%d" % base) for at in (0, 5)]
        segment.append(frame_of(records), 0)
        segment.cover(base + 10, leader_epoch=4, source_bytes=1000)
        finished = segment.finish()
        self.store.put_if_absent(self.key(base, partition), content_of(finished), finished.facts.to_metadata())

    @staticmethod
    def key(base: int, partition: int = PARTITION) -> str:
        return LAYOUT.segment_key(SegmentKey(topic="orders", partition=partition, base=base))

    def change(self, base: int, content: bytes | None = None, **metadata: str) -> None:
        found = self.store.objects[self.key(base)]
        changed = {**found.metadata, **{f"archiver-{name}": text for name, text in metadata.items()}}
        self.store.objects[self.key(base)] = StoredObject(content or found.body, changed, found.last_modified)


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Archive:
    made = Archive(tmp_path)
    monkeypatch.setattr(archiver.store, "open_store", lambda _storage: (made.store, LAYOUT.prefix))
    return made


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, list[str], str]]:
    def run(*arguments: str) -> tuple[int, list[str], str]:
        exit_code = main([*arguments, "--url", "s3://bucket/p"])
        out, err = capsys.readouterr()
        return exit_code, out.splitlines(), err

    return run


Run = Callable[..., tuple[int, list[str], str]]


def offsets(lines: list[str], partition: int = PARTITION) -> list[int]:
    rows = [json.loads(line) for line in lines]
    return [row["offset"] for row in rows if row["partition"] == partition]


def lose(archive: Archive, base: int) -> None:
    del archive.store.objects[Archive.key(base)]


def strip(archive: Archive, base: int) -> None:
    found = archive.store.objects[Archive.key(base)]
    archive.store.objects[Archive.key(base)] = StoredObject(found.body, {}, found.last_modified)


def lose_and_strip(archive: Archive) -> None:
    lose(archive, 0)
    strip(archive, 10)


def garble(archive: Archive, base: int) -> None:
    archive.change(base, archive.store.objects[Archive.key(base)].body[:-1] + b"?")


@pytest.mark.parametrize(
    ("damage", "left", "named"),
    [
        (lambda archive: lose(archive, 10), [0, 5, 20, 25], ["orders-3: offsets 10-19 are missing"]),
        (lambda archive: lose(archive, 0), [10, 15, 20, 25], ["orders-3: offsets 0-9 are missing"]),
        (lambda archive: archive.change(10, next="x"), [0, 5, 20, 25], [Archive.key(10), "facts that cannot be"]),
        (lambda archive: archive.change(10, format="2"), [0, 5, 20, 25], [Archive.key(10), "format 2 is newer"]),
        (lambda archive: archive.change(20, format="2"), [0, 5, 10, 15], [Archive.key(20), "format 2 is newer"]),
        (lambda archive: strip(archive, 10), [0, 5, 20, 25], [Archive.key(10), "no archiver-* metadata"]),
        (lambda archive: garble(archive, 10), [0, 5, 20, 25], ["orders-3: ", Archive.key(10), "not those"]),
        (lose_and_strip, [20, 25], [Archive.key(10), "offsets 0-19"]),
    ],
    ids=["middle", "first", "facts", "newer", "newest-newer", "no-metadata", "body", "two"],
)
def test_cat_prints_what_is_left_and_names_what_is_not(
    archive: Archive, run: Run, damage: Callable[[Archive], object], left: list[int], named: list[str]
) -> None:
    damage(archive)
    exit_code, lines, err = run("cat", "orders")
    assert exit_code == 3
    assert offsets(lines) == left
    assert offsets(lines, 4) == [0, 5]
    assert [text for text in named if text not in err] == []
    assert run("cat", "orders", "--partition", "4")[0] == 0


def test_cat_of_a_whole_topic_ends_with_0(archive: Archive, run: Run) -> None:
    exit_code, lines, err = run("cat", "orders")
    assert (exit_code, offsets(lines), err) == (0, [0, 5, 10, 15, 20, 25], "")
    lose(archive, 0)
    assert run("cat", "orders", "--partition", "3", "--from-offset", "10")[0] == 0  # the gap lies below


def test_cat_stops_at_its_limit(archive: Archive, run: Run) -> None:
    garble(archive, 10)
    exit_code, lines, _ = run("cat", "orders", "--limit", "2")
    assert (exit_code, offsets(lines)) == (0, [0, 5])


def test_a_damaged_topic_fact_is_named_and_the_records_are_printed(archive: Archive, run: Run) -> None:
    archive.store.delete([TOPIC_FACT])
    archive.store.put_if_absent(TOPIC_FACT, b'{"format": 1, "topic": "orders"}', {})
    for command in ("cat", "ls"):
        exit_code, lines, err = run(command, "orders")
        assert exit_code == 3
        assert TOPIC_FACT in err
        assert len(lines) > 2
    assert run("ls")[0] == 0


def test_a_damaged_topic_fact_stops_no_other_topic(archive: Archive, run: Run) -> None:
    archive.store.put_if_absent(LAYOUT.fact_key("topics/broken", 0), b'{"format": 1, "topic": "broken"}', {})
    assert run("cat", "orders")[0] == run("ls", "orders")[0] == run("ls")[0] == 0
    (found,) = read_archive(archive.store, LAYOUT, wanted=lambda name: name == "orders")
    assert found.topic == "orders"
    with pytest.raises(CorruptSegmentError, match=r"control/topics/broken/000000\.json"):
        read_archive(archive.store, LAYOUT)
    with pytest.raises(CorruptSegmentError, match=r"^p/control/topics/broken/.*lacks 'partitions'"):
        read_topic(archive.store, LAYOUT, "broken")


def test_ls_tells_gaps_and_empty_partitions(archive: Archive, run: Run) -> None:
    lose(archive, 10)
    archive.store.put_if_absent("p/topics/README", b"", {})
    exit_code, lines, err = run("ls", "orders")
    assert exit_code == 3
    assert "orders-3: offsets 10-19 are missing" in err
    assert [line.split()[1] for line in lines[1:]] == ["0", "1", "2", "3", "4"]
    assert [line.endswith("  empty") for line in lines[1:]] == [True, True, True, False, False]
    assert lines[4].endswith("  1 gap")
    exit_code, lines, _ = run("ls")
    assert exit_code == 3
    assert lines[1].endswith("  1 gap")
    assert lines[2:] == ["stranger: p/topics/README"]
    lose(archive, 0)
    strip(archive, 20)
    assert run("ls", "orders")[1][4].endswith("  1 damaged")


def test_an_empty_topic_is_known_to_every_command(archive: Archive, run: Run) -> None:
    settle_topic(archive.store, LAYOUT, topic="idle", topic_id="I", cluster_id="c", partitions=2, configs={})
    exit_code, lines, _ = run("ls")
    assert exit_code == 0
    assert [line.split()[0] for line in lines[1:]] == ["idle", "orders"]
    assert lines[1].endswith("  empty")
    exit_code, lines, _ = run("ls", "idle")
    assert exit_code == 0
    assert [line.endswith("  empty") for line in lines[1:]] == [True, True]
    assert run("cat", "idle") == run("cat", "idle", "--partition", "1") == (0, [], "")
    assert run("cat", "idle", "--partition", "2")[0] == 2
    for command in ("ls", "cat"):
        exit_code, _, err = run(command, "nothing")
        assert exit_code == 2
        assert "nothing is not in the archive" in err
    plan = plan_restore(read_archive(archive.store, LAYOUT, wanted=lambda name: name == "idle"), "idle", {})
    assert [(one.records, one.problem) for one in plan.topics[0].partitions] == [(0, ""), (0, "")]


def test_a_restore_names_all_that_is_wrong_with_a_partition(archive: Archive) -> None:
    lose(archive, 0)
    strip(archive, 10)
    (topic,) = plan_restore(read_archive(archive.store, LAYOUT), None, {}).topics
    assert [one.partition for one in topic.partitions if one.problem] == [PARTITION]
    problem = topic.partitions[PARTITION].problem
    assert Archive.key(10) in problem
    assert "offsets 0-19 are missing" in problem


@pytest.mark.parametrize(
    "arguments",
    [("--limit", "-1"), ("--from-offset", "-1"), ("--partition", "-1"), ("--life", "-1")],
    ids=lambda pair: pair[0],
)
def test_negative_numbers_are_mistakes(capsys: pytest.CaptureFixture[str], arguments: tuple[str, str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["cat", "orders", "--url", "s3://bucket", *arguments])
    assert ended.value.code == 2
    assert f"argument {arguments[0]}: -1 is negative" in capsys.readouterr().err
