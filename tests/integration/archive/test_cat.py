"""`cat`, `ls` and what a restore reads, of archives that are not whole: what is there is told, and so is what is not."""

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

import archiver.archive.format.handle
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout, SegmentKey
from archiver.archive.index.index_generations import append_to_index
from archiver.archive.notes.topic_changes import record_branch, record_topic
from archiver.archive.notes.topics import Branch, read_topic
from archiver.archive.reading.catalog import read_archive
from archiver.archive.reading.plain_records import follow_records
from archiver.archive.segments.segment_writer import OpenSegment
from archiver.archive.segments.spool import Spool
from archiver.cli.main import main
from archiver.errors import CorruptSegmentError
from archiver.restore.plan.restore_plan import plan_restore
from archiver.store.port import ObjectKind
from tests.support.frames import frame_of
from tests.support.memory_store import MemoryStore, StoredObject
from tests.support.records import Rec
from tests.support.segments import NO_LIMIT, SOURCE, content_of

LAYOUT = Layout("p")
PARTITION = 3
TOPIC_FACT = LAYOUT.fact_key("topics/orders", 0)


class Site:
    """Topic `orders` of 5 partitions: 3 objects of 2 records in partition 3, one in 4. Each covers 10 offsets."""

    def __init__(self, spool: Path) -> None:
        self.store = MemoryStore()
        record_topic(
            Archive(self.store, LAYOUT), topic="orders", topic_id="A", cluster_id="c", partitions=5, configs={"k": "v"}
        )
        for partition, base in ((3, 0), (3, 10), (3, 20), (4, 0)):
            self.append(spool, partition, base)

    def append(self, spool: Path, partition: int, base: int, life: int = 0) -> None:
        segment = OpenSegment(replace(SOURCE, partition=partition, life=life), base, NO_LIMIT, Spool(spool))
        records = [Rec(base + at, 5, 0, b"k", b"life %d" % life) for at in (0, 5)]
        segment.append(frame_of(records), 0)
        segment.cover(base + 10, leader_epoch=4, source_bytes=1000)
        finished = segment.finish()
        self.store.put_if_absent(
            self.key(base, partition, life), content_of(finished), finished.facts.to_metadata(), kind=ObjectKind.SEGMENT
        )

    def cut_back(self, partition: int, parent: int, offset: int) -> int:
        branch = Branch(offset=offset, leader_epoch=4)
        life, _ = record_branch(
            Archive(self.store, LAYOUT), topic="orders", partition=partition, parent=parent, branch=branch
        )
        return life

    @staticmethod
    def key(base: int, partition: int = PARTITION, life: int = 0) -> str:
        return LAYOUT.segment_key(SegmentKey(topic="orders", life=life, partition=partition, base=base))

    def change(self, base: int, content: bytes | None = None, **metadata: str) -> None:
        found = self.store.objects[self.key(base)]
        changed = {**found.metadata, **{f"archiver-{name}": text for name, text in metadata.items()}}
        self.store.objects[self.key(base)] = StoredObject(content or found.body, changed, found.last_modified)


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    made = Site(tmp_path)
    monkeypatch.setattr(archiver.archive.format.handle, "open_archive", lambda _storage: Archive(made.store, LAYOUT))
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


def lose(archive: Site, base: int) -> None:
    del archive.store.objects[Site.key(base)]


def strip(archive: Site, base: int) -> None:
    """Take an object's facts away, also those that an index remembers."""
    for key in [key for key in archive.store.objects if "/control/index/" in key]:
        del archive.store.objects[key]
    found = archive.store.objects[Site.key(base)]
    archive.store.objects[Site.key(base)] = StoredObject(found.body, {}, found.last_modified)


def lose_and_strip(archive: Site) -> None:
    lose(archive, 0)
    strip(archive, 10)


def garble(archive: Site, base: int) -> None:
    body = archive.store.objects[Site.key(base)].body
    archive.change(base, body[:-1] + bytes([body[-1] ^ 1]))  # the end of the sync marker, which is random


@pytest.mark.parametrize(
    ("damage", "left", "named"),
    [
        (lambda archive: lose(archive, 10), [0, 5, 20, 25], ["orders-3: offsets 10-19 are missing"]),
        (lambda archive: lose(archive, 0), [10, 15, 20, 25], ["orders-3: offsets 0-9 are missing"]),
        (lambda archive: archive.change(20, format="3"), [0, 5, 10, 15], [Site.key(20), "format 3 is newer"]),
        (lambda archive: garble(archive, 10), [0, 5, 20, 25], ["orders-3: ", Site.key(10), "not those"]),
        (lose_and_strip, [20, 25], [Site.key(10), "offsets 0-19"]),
    ],
    ids=["middle", "first", "newest-newer", "body", "two"],
)
def test_cat_prints_what_is_left_and_names_what_is_not(
    archive: Site, run: Run, damage: Callable[[Site], object], left: list[int], named: list[str]
) -> None:
    damage(archive)
    exit_code, lines, err = run("cat", "orders")
    assert exit_code == 3
    assert offsets(lines) == left
    assert offsets(lines, 4) == [0, 5]
    assert [text for text in named if text not in err] == []
    assert run("cat", "orders", "--partition", "4")[0] == 0


def test_cat_of_a_whole_topic_ends_with_0(archive: Site, run: Run) -> None:
    exit_code, lines, err = run("cat", "orders")
    assert (exit_code, offsets(lines), err) == (0, [0, 5, 10, 15, 20, 25], "")
    lose(archive, 0)
    assert run("cat", "orders", "--partition", "3", "--from-offset", "10")[0] == 0  # the gap lies below


def test_cat_stops_at_its_limit(archive: Site, run: Run) -> None:
    garble(archive, 10)
    exit_code, lines, _ = run("cat", "orders", "--limit", "2")
    assert (exit_code, offsets(lines)) == (0, [0, 5])


def test_a_damaged_topic_fact_is_named_and_the_records_are_printed(archive: Site, run: Run) -> None:
    archive.store.delete([TOPIC_FACT])
    archive.store.put_if_absent(TOPIC_FACT, b'{"format": 1, "topic": "orders"}', {}, kind=ObjectKind.FACT)
    for command in ("cat", "ls"):
        exit_code, lines, err = run(command, "orders")
        assert exit_code == 3
        assert TOPIC_FACT in err
        assert len(lines) > 2
    assert run("ls")[0] == 0


def test_a_damaged_topic_fact_stops_no_other_topic(archive: Site, run: Run) -> None:
    archive.store.put_if_absent(
        LAYOUT.fact_key("topics/broken", 0), b'{"format": 1, "topic": "broken"}', {}, kind=ObjectKind.FACT
    )
    assert run("cat", "orders")[0] == run("ls", "orders")[0] == run("ls")[0] == 0
    (found,) = read_archive(Archive(archive.store, LAYOUT), wanted=lambda name: name == "orders")
    assert found.topic == "orders"
    with pytest.raises(CorruptSegmentError, match=r"control/topics/broken/000000\.json"):
        read_archive(Archive(archive.store, LAYOUT))
    with pytest.raises(
        CorruptSegmentError, match=r"^p/control/topics/broken/.*invalid note of a topic: cluster_id is missing"
    ):
        read_topic(Archive(archive.store, LAYOUT), "broken")


def test_ls_tells_gaps_and_empty_partitions(archive: Site, run: Run) -> None:
    lose(archive, 10)
    archive.store.put_if_absent("p/topics/README", b"", {}, kind=ObjectKind.FACT)
    exit_code, lines, err = run("ls", "orders")
    assert exit_code == 3
    assert "orders-3: offsets 10-19 are missing" in err
    assert [line.split()[1] for line in lines[1:-1]] == ["0", "1", "2", "3", "4"]
    assert [line.endswith("  empty") for line in lines[1:-1]] == [True, True, True, False, False]
    assert lines[4].endswith("  1 gap")
    exit_code, lines, _ = run("ls")
    assert exit_code == 3
    assert lines[1].endswith("  1 gap")
    assert lines[2:] == ["stranger: p/topics/README"]
    lose(archive, 0)
    strip(archive, 20)
    assert run("ls", "orders")[1][4].endswith("  1 damaged")


def test_an_empty_topic_is_known_to_every_command(archive: Site, run: Run) -> None:
    record_topic(Archive(archive.store, LAYOUT), topic="idle", topic_id="I", cluster_id="c", partitions=2, configs={})
    exit_code, lines, _ = run("ls")
    assert exit_code == 0
    assert [line.split()[0] for line in lines[1:-1]] == ["idle", "orders"]
    assert lines[1].endswith("  empty")
    exit_code, lines, _ = run("ls", "idle")
    assert exit_code == 0
    assert [line.endswith("  empty") for line in lines[1:-1]] == [True, True]
    assert run("cat", "idle") == run("cat", "idle", "--partition", "1") == (0, [], "")
    assert run("cat", "idle", "--partition", "2")[0] == 2
    for command in ("ls", "cat"):
        exit_code, _, err = run(command, "nothing")
        assert exit_code == 2
        assert "nothing is not in the archive" in err
    plan = plan_restore(read_archive(Archive(archive.store, LAYOUT), wanted="idle".__eq__), {"idle": "idle"})
    assert [(one.records, one.problem) for one in plan[0].partitions] == [(0, ""), (0, "")]


def test_a_restore_names_all_that_is_wrong_with_a_partition(archive: Site) -> None:
    lose(archive, 0)
    strip(archive, 10)
    (topic,) = plan_restore(read_archive(Archive(archive.store, LAYOUT)), {"orders": "orders"})
    assert [one.partition for one in topic.partitions if one.problem] == [PARTITION]
    problem = topic.partitions[PARTITION].problem
    assert Site.key(10) in problem
    assert "offsets 0-19 are missing" in problem


# --- lives


def told(lines: list[str], partition: int = PARTITION) -> list[tuple[int, int]]:
    """The life that each record of a partition comes from, and its offset."""
    rows = [json.loads(line) for line in lines]
    return [(int(row["value"]["utf8"].split()[1]), row["offset"]) for row in rows if row["partition"] == partition]


PARENT = [(0, offset) for offset in (0, 5, 10, 15, 20, 25)]


def test_a_log_that_was_cut_back_is_read_through_its_lives(archive: Site, run: Run, tmp_path: Path) -> None:
    assert archive.cut_back(PARTITION, 0, 15) == 1
    assert run("cat", "orders") == (0, *run("cat", "orders", "--life", "0")[1:])  # nothing new: the parent, as it was
    for base in (15, 25):
        archive.append(tmp_path, PARTITION, base, life=1)
    exit_code, lines, err = run("cat", "orders")
    assert (exit_code, err) == (0, "")  # the parent is no other life
    joined = [(0, 0), (0, 5), (0, 10), (1, 15), (1, 20), (1, 25), (1, 30)]
    assert told(lines) == joined
    assert told(lines, 4) == [(0, 0), (0, 5)]
    assert told(run("cat", "orders", "--life", "1")[1]) == joined
    assert told(run("cat", "orders", "--life", "0")[1]) == PARENT
    for start in (0, 10, 11, 15, 16, 26):
        found = run("cat", "orders", "--from-offset", str(start), "--partition", "3")
        assert (found[0], told(found[1])) == (0, [row for row in joined if row[1] >= start])


def test_a_selection_that_ends_elsewhere_is_another_one(archive: Site) -> None:
    (topic,) = read_archive(Archive(archive.store, LAYOUT))
    whole = topic.partitions[PARTITION]
    cuts = [whole, whole.until_offset(30), whole.until_offset(29), whole.until_offset(21)]
    plans = [plan_restore([replace(topic, partitions={PARTITION: cut})], {"orders": "orders"}) for cut in cuts]
    selections = [plan[0].partitions[PARTITION].selection_digest for plan in plans]
    assert selections[0] == selections[1]
    assert len(set(selections)) == 3


def test_ls_tells_each_life_and_a_child_is_no_gap(archive: Site, run: Run, tmp_path: Path) -> None:
    archive.cut_back(PARTITION, 0, 15)
    archive.cut_back(4, 0, 5)
    archive.append(tmp_path, PARTITION, 15, life=1)
    exit_code, lines, err = run("ls")
    assert (exit_code, err, [line.split()[0] for line in lines[1:-1]]) == (0, "", ["orders", "orders@1"])
    exit_code, lines, err = run("ls", "orders")
    assert (exit_code, err) == (0, "")
    assert [tuple(line.split()[:2]) for line in lines[-3:-1]] == [("orders@1", "3"), ("orders@1", "4")]
    assert lines[-2].endswith("  empty")
    archive.append(tmp_path, PARTITION, 35, life=1)
    del archive.store.objects[Site.key(15, life=1)]
    for command in (("ls",), ("ls", "orders")):
        exit_code, _, err = run(*command)
        assert exit_code == 3
        assert "orders@1-3: offsets 15-34 are missing" in err
    assert "orders-3: offsets 15-34 are missing" in run("cat", "orders")[2]
    lose(archive, 10)
    assert "orders-3: offsets 10-14, 15-34 are missing" in run("cat", "orders")[2]


def test_lives_that_are_not_joined_are_named(archive: Site, run: Run, tmp_path: Path) -> None:
    """All was lost: the parent contributes nothing. And a recreated topic has no part in what its name held before."""
    archive.cut_back(PARTITION, 0, 0)
    archive.cut_back(4, 0, 0)
    archive.append(tmp_path, PARTITION, 0, life=1)
    exit_code, lines, err = run("cat", "orders")
    assert (exit_code, told(lines), told(lines, 4)) == (0, [(1, 0), (1, 5)], [])
    assert "orders: this is its life 1; the archive also has life 0 (--life)" in err
    record_topic(Archive(archive.store, LAYOUT), topic="orders", topic_id="B", cluster_id="c", partitions=5, configs={})
    archive.append(tmp_path, PARTITION, 0, life=2)
    _, lines, err = run("cat", "orders")
    assert (told(lines), told(lines, 4)) == ([(2, 0), (2, 5)], [])
    assert "the archive also has life 0, 1 (--life)" in err
    assert told(run("cat", "orders", "--life", "1")[1]) == [(1, 0), (1, 5)]


def test_a_life_without_its_note_is_reported_and_read_only_on_request(archive: Site, run: Run, tmp_path: Path) -> None:
    archive.append(tmp_path, PARTITION, 15, life=1)
    exit_code, lines, err = run("cat", "orders")
    assert (exit_code, told(lines)) == (3, PARENT)
    assert "orders: life 1 has objects, and control/topics/orders/ does not name it" in err
    exit_code, lines, err = run("cat", "orders", "--life", "1")
    assert (exit_code, told(lines)) == (3, [(1, 15), (1, 20)])
    assert "orders-3: offsets 0-14 are missing" in err


@pytest.mark.parametrize("option", ["--limit", "--from-offset", "--until-offset", "--partition", "--life"])
def test_numbers_that_no_offset_can_be_are_mistakes(capsys: pytest.CaptureFixture[str], option: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["cat", "orders", "--url", "s3://bucket", option, str(2**63)])
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"archiver: argument {option}: '{2**63}' is not a whole number, 0 to ")


@pytest.mark.parametrize("command", ["ls", "cat"])
@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("orders@1", "it is life 1 of orders: give orders, and cat --life 1"),
        ("a/b", "1 to 249 of"),
        ("\x1b[31m", "1 to 249 of"),
    ],
)
def test_names_that_no_topic_has_are_mistakes(
    capsys: pytest.CaptureFixture[str], command: str, name: str, hint: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, name, "--url", "s3://bucket"])
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"archiver: argument TOPIC: {name!r} is not the name of a topic; {hint}")
    assert line.isprintable()


@pytest.mark.parametrize("place", ["s3://bucket", "s3://bucket/", "\udcff", "s3://bucket/p/\udcff"])
def test_what_is_no_object_is_not_asked_for(capsys: pytest.CaptureFixture[str], place: str) -> None:
    assert main(["inspect", place, *([] if place.startswith("s3") else ["--url", "s3://bucket/p"])]) == 2
    assert "names no object; `archiver ls TOPIC --segments` shows their keys" in capsys.readouterr().err


def test_objects_beside_the_records_are_known_by_their_address_alone(
    archive: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a configuration, nothing tells where the archive's prefix ends."""
    monkeypatch.setattr("archiver.upkeep.inspection.open_archive", lambda _storage: Archive(archive.store, Layout()))
    append_to_index(Archive(archive.store, LAYOUT), [])
    keys = [item.key for item in archive.store.list(LAYOUT.control_root)]
    assert LAYOUT.index_key(0, 0) in keys
    for key in keys:
        assert main(["inspect", f"s3://bucket/{key}"]) == 0
        assert "\ncontrol: ok\n" in capsys.readouterr().out


# --- ranges, and what comes later


def archive_of_times(spool: Path) -> MemoryStore:
    """Offsets 0 to 9 of one partition, one a second from 1,000 on, but for number 4, which has no time, and 6, which is late."""
    store = MemoryStore()
    record_topic(Archive(store, LAYOUT), topic="orders", topic_id="A", cluster_id="c", partitions=4, configs={})
    for base in (0, 5):
        segment = OpenSegment(replace(SOURCE, partition=PARTITION), base, NO_LIMIT, Spool(spool))
        times = {4: -1, 6: 99_000}
        records = [Rec(at, times.get(at, 1000 * (at + 1)), 0, b"k", b"v") for at in range(base, base + 5)]
        segment.append(frame_of(records), 0)
        finished = segment.finish()
        store.put_if_absent(Site.key(base), content_of(finished), finished.facts.to_metadata(), kind=ObjectKind.SEGMENT)
    return store


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (["--from-offset", "3", "--until-offset", "5"], [3, 4, 5]),
        (["--until-offset", "0"], [0]),
        (["--from-offset", "9"], [9]),
        (["--from", "1970-01-01T00:00:03Z", "--until", "1970-01-01T00:00:06Z"], [2, 3, 5]),
        (["--from", "1970-01-01T00:00:08Z"], [6, 7, 8, 9]),
        (["--until", "1970-01-01T00:00:02Z"], [0, 1]),
        (["--from", "1970-01-01T00:00:02Z", "--until-offset", "5", "--limit", "2"], [1, 2]),
        (["--from", "1970-01-01T00:03:20Z"], []),
    ],
)
def test_cat_takes_ranges_of_offsets_and_of_times(
    archive: Site, run: Run, tmp_path: Path, options: list[str], wanted: list[int]
) -> None:
    archive.store.objects = archive_of_times(tmp_path).objects
    exit_code, lines, err = run("cat", "orders", *options)
    assert (exit_code, err, offsets(lines)) == (0, "", wanted)


@pytest.mark.parametrize(
    "options",
    [
        ["--from", "yesterday"],
        ["--from", "2026-11-20T14:00:00"],
        ["--from-offset", "5", "--until-offset", "4"],
        ["--from", "1970-01-01T00:00:05Z", "--until", "1970-01-01T00:00:04Z"],
        ["--follow", "--life", "0"],
    ],
)
def test_cat_refuses_ranges_that_cannot_be(archive: Site, run: Run, options: list[str]) -> None:
    assert archive.store.objects
    exit_code, lines, err = run("cat", "orders", *options)
    assert (exit_code, lines) == (2, [])
    assert options[0] in err


def test_a_gap_beside_what_is_wanted_is_not_told(archive: Site, run: Run) -> None:
    lose(archive, 10)
    assert run("cat", "orders", "--until-offset", "9")[0] == 0
    assert run("cat", "orders", "--until-offset", "10")[0] == 3


def test_cat_follows_what_comes_and_a_topic_that_is_created_again(archive: Site, tmp_path: Path) -> None:
    told: list[str] = []
    turn = 0

    def pause() -> None:
        nonlocal turn
        turn += 1
        if turn == 1:
            archive.append(tmp_path, PARTITION, 30)
        elif turn == 3:
            record_topic(
                Archive(archive.store, LAYOUT), topic="orders", topic_id="B", cluster_id="c", partitions=5, configs={}
            )
            archive.append(tmp_path, PARTITION, 0, life=1)
        elif turn == 4:
            strip(archive, 20)

    rows = follow_records(
        Archive(archive.store, LAYOUT), "orders", report_problem=told.append, pause=pause, partition=PARTITION
    )
    seen = [(row["value"]["utf8"], row["offset"]) for row in islice(rows, 10)]
    assert seen == [("life 0", at) for at in (0, 5, 10, 15, 20, 25, 30, 35)] + [("life 1", at) for at in (0, 5)]
    assert told == []


def test_cat_follows_a_log_that_is_cut_back(archive: Site, tmp_path: Path) -> None:
    turn = 0

    def pause() -> None:
        nonlocal turn
        turn += 1
        if turn == 1:
            archive.cut_back(PARTITION, 0, 15)
            for base in (15, 25):
                archive.append(tmp_path, PARTITION, base, life=1)

    rows = follow_records(
        Archive(archive.store, LAYOUT), "orders", report_problem=pytest.fail, pause=pause, partition=PARTITION
    )
    seen = [(row["value"]["utf8"], row["offset"]) for row in islice(rows, 10)]
    assert seen == [("life 0", at) for at in (0, 5, 10, 15, 20, 25)] + [("life 1", at) for at in (15, 20, 25, 30)]


@pytest.mark.usefixtures("archive")
def test_ls_goes_down_to_objects(run: Run) -> None:
    exit_code, lines, _ = run("ls", "orders", "--segments")
    assert exit_code == 0
    assert [line.split()[:2] for line in lines[1:]] == [
        ["3", "0..10"],
        ["3", "10..20"],
        ["3", "20..30"],
        ["4", "0..10"],
    ]
    assert Site.key(10) in lines[2]
    found = json.loads("\n".join(run("ls", "orders", "--segments", "--format", "json")[1]))
    assert [row["key"] for row in found["segments"]][1] == Site.key(10)
    assert {row["records"] for row in found["segments"]} == {2}
    assert all(row["put"].endswith("Z") for row in found["segments"])
    assert found["holdings"][3]["last_put"] == max(row["put"] for row in found["segments"][:3])
    exit_code, _, err = run("ls", "--segments")
    assert (exit_code, "--segments needs a TOPIC" in err) == (2, True)


def test_ls_of_nothing_says_so(archive: Site, run: Run) -> None:
    archive.store.objects.clear()
    exit_code, _, err = run("ls")
    assert (exit_code, "nothing is archived there yet" in err) == (0, True)
