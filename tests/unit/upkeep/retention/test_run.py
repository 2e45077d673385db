"""Whole runs of a sweep over a store in memory, with what Spark would do done in place: where its parts meet."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

import archiver.upkeep.retention.sweeping.run_sweep as runs
from archiver.archive.format.control import FACT_FORMAT, append_fact
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import LAST_FACT_NUMBER, Layout, SegmentKey
from archiver.archive.format.store_clock import epoch_ms
from archiver.archive.index.inventory import read_inventory
from archiver.archive.notes.applied_limits import LimitSource, read_applied
from archiver.archive.notes.holds import Hold, add_hold, release_hold
from archiver.archive.notes.policies import NotedPolicy, read_policies
from archiver.archive.notes.sweeps import read_last_report
from archiver.archive.notes.swept import OffsetRanges, SweptPlace, add_swept
from archiver.archive.notes.topic_changes import record_topic
from archiver.config.model import ArchiverConfig
from archiver.errors import StoreError, UsageError
from archiver.store.port import ObjectKind
from archiver.upkeep.retention.planning.agreed_limits import note_agreed
from archiver.upkeep.retention.planning.partition_verdict import Staying
from archiver.upkeep.retention.planning.survey import PartitionSweep, SurveyTask, survey_partition
from archiver.upkeep.retention.planning.sweep_survey import SweepSurvey
from archiver.upkeep.retention.planning.topic_terms import TopicTerms
from archiver.upkeep.retention.sweeping.run_sweep import SweepRequest, run_sweep
from archiver.upkeep.retention.sweeping.sweep_result import SweepResult, failures_of
from tests.support.memory_store import MemoryStore
from tests.support.segments import facts_of

LAYOUT = Layout()
PLACE = SweptPlace("t", 0, 0)
HUNDRED_DAYS_MS = 100 * 24 * 3600 * 1000


def survey_here(tasks: Sequence[SurveyTask], _: object) -> list[PartitionSweep]:
    return [survey_partition(task) for task in tasks]


class Site:
    """An archive in memory, swept by fixed limits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **retention: Any) -> None:  # noqa: ANN401
        self.store = MemoryStore()
        self.archive = Archive(self.store, LAYOUT)
        self.configure(**retention)

        monkeypatch.setattr(runs, "open_patient_archive", lambda _: self.archive)
        monkeypatch.setattr("archiver.upkeep.retention.planning.survey.patient_archive_of", lambda _: self.archive)

    def configure(self, **retention: Any) -> None:  # noqa: ANN401
        section = {"fixed": {"ms": "1s", "segment-ms": "0s"}, "min-object-age": "0s", **retention}
        self.config = ArchiverConfig.model_validate({"storage": {"url": "s3://bucket"}, "retention": section})

    def record(self, topic: str = "t", topic_id: str = "t", policy: str = "delete") -> None:
        effective = {"cleanup.policy": policy}
        record_topic(
            self.archive, topic=topic, topic_id=topic_id, cluster_id="c", partitions=1, configs={}, effective=effective
        )

    def put(
        self,
        base: int,
        end: int,
        *,
        topic: str = "t",
        partition: int = 0,
        topic_id: str = "t",
        is_merged: bool = False,
        is_old: bool = True,
        size: int = 10,
        at_ms: int = 0,
    ) -> str:
        key = self.key(base, topic=topic, partition=partition, merged_next=end if is_merged else None)
        facts = replace(facts_of(base, end), max_timestamp=at_ms if is_old else 10**15, topic_id=topic_id)
        self.store.put_if_absent(key, b"x" * size, facts.to_metadata(), kind=ObjectKind.SEGMENT)
        return key

    def key(self, base: int, *, topic: str = "t", partition: int = 0, merged_next: int | None = None) -> str:
        return LAYOUT.segment_key(SegmentKey(topic=topic, life=0, partition=partition, base=base, next=merged_next))

    def run(self, **asked: Any) -> SweepResult:  # noqa: ANN401
        return run_sweep(self.config, SweepRequest(without_kafka=True, **asked), nullcontext(survey_here))

    def gaps(self, topic: str = "t") -> list[str]:
        return [str(gap) for gap in read_inventory(self.archive).partitions[topic, 0][0].gaps]


def test_a_plan_that_was_not_carried_out_hides_no_loss_of_a_topic_that_is_kept_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A sweep died after it wrote down what it takes; then somebody held the topic."""
    site = Site(monkeypatch)
    site.record()
    keys = [site.put(base, base + 10) for base in range(0, 50, 10)]
    add_swept(site.archive, PLACE, OffsetRanges(((0, 30),)))
    add_hold(site.archive, Hold(name="h", topics="t", reason="r", by="b", added_ms=0))
    result = site.run(agreed=True)
    assert [one.why for one in result.plan.kept] == ["it is on hold: h"]
    site.store.delete([keys[1]])
    assert site.gaps() == ["10-19"]


def test_small_steps_that_nobody_has_agreed_on_add_up_until_they_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a first small one would make all that comes behind it foreseen."""
    site = Site(monkeypatch, **fixed("10000d"))
    site.record()
    at_ms = epoch_ms(site.store.now()) - HUNDRED_DAYS_MS
    for base in range(0, 110, 10):
        site.put(base, base + 10, is_old=base < 20, at_ms=at_ms if base else 0)
    assert len(site.run(agreed=True).swept[0].deleted) == 1
    site.configure(**fixed("1d"))
    assert len(site.run().swept[0].deleted) == 1
    for base in range(20, 70, 10):
        site.store.delete([site.key(base)])
        site.put(base, base + 10, at_ms=at_ms)
    (topic,) = site.run().waiting
    assert topic.unforeseen_share > 0.5
    assert len(site.run(agreed=True).swept[0].deleted) == 5
    for base in range(70, 100, 10):
        site.store.delete([site.key(base)])
        site.put(base, base + 10, at_ms=at_ms)
    assert len(site.run().swept[0].deleted) == 3  # agreed on once


def test_a_note_that_says_delete_of_a_compacted_topic_lets_nothing_go_that_nobody_agreed_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However little it is. No cluster is asked, so only the newest note tells the topic's policy."""
    site = Site(monkeypatch, **fixed("1d"))
    site.record(policy="compact")
    for base in range(0, 100, 10):
        site.put(base, base + 10, is_old=base < 10)
    assert [one.why for one in site.run(agreed=True).plan.kept] == ["it keeps its records for ever"]
    site.record()
    for _ in range(2):
        result = site.run()
        assert ([one.topic for one in result.waiting], result.exit_code) == (["t"], 0)
        assert sum(len(one.deleted) for one in result.swept) == 0
    assert len(site.run(agreed=True).swept[0].deleted) == 1
    site.store.delete([site.key(10)])
    site.put(10, 20)
    assert len(site.run().swept[0].deleted) == 1  # nobody is asked twice
    site.record(policy="compact")
    site.run()
    site.record()
    site.store.delete([site.key(20)])
    site.put(20, 30)
    assert [one.topic for one in site.run().waiting] == ["t"]  # what was agreed to before is over


def fixed(ms: str) -> dict[str, Any]:
    return {"fixed": {"ms": ms, "segment-ms": "0s"}}


def swept_and_grown(monkeypatch: pytest.MonkeyPatch) -> Site:
    """Make an archive in which a sweep by one day was agreed to, and 30 more objects are that old by now."""
    site = Site(monkeypatch, **fixed("1d"))
    site.record()
    for base in range(0, 50, 10):
        site.put(base, base + 10, is_old=base < 40)
    assert len(site.run(agreed=True).swept[0].deleted) == 4
    site.store.delete([site.key(40)])
    for base in range(40, 350, 10):
        site.put(base, base + 10, is_old=base < 340)
    return site


def assert_asks_again(site: Site) -> None:
    again = site.run()
    assert [one.topic for one in again.waiting] == ["t"]
    assert sum(len(one.deleted) for one in again.swept) == 0
    assert sum(len(one.deleted) for one in site.run(agreed=True).swept) == 30


def test_short_and_long_and_short_again_asks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """For months nothing went by the long limits. That they were in force is seen all the same, but not by a dry run."""
    site = swept_and_grown(monkeypatch)
    site.configure(**fixed("36500d"))
    assert site.run(is_dry_run=True).plan.objects == 0
    site.configure(**fixed("1d"))
    assert not site.run(is_dry_run=True).waiting
    site.configure(**fixed("36500d"))
    assert site.run().swept == []
    site.configure(**fixed("1d"))
    assert_asks_again(site)
    site.store.delete([site.key(340)])
    site.put(340, 350)
    site.put(350, 360, is_old=False)
    assert sum(len(one.deleted) for one in site.run().swept) == 1  # agreed to once


def test_who_was_asked_nothing_agrees_to_no_shorter_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """At first just what the longer limits would have taken as well can go. That foresees nothing of what comes behind it."""
    site = Site(monkeypatch, **fixed("5d"))
    site.record()
    for base in range(0, 30, 10):
        site.put(base, base + 10, is_old=base < 20)
    assert len(site.run(agreed=True).swept[0].deleted) == 2
    site.configure(**fixed("1d"))
    site.store.delete([site.key(20)])
    for base in range(30, 50, 10):
        site.put(base, base + 10, is_old=base < 40)
    assert len(site.run(agreed=True).swept[0].deleted) == 1
    applied = read_applied(site.archive, "t")[0, LimitSource.FIXED]
    assert applied.ms == 5 * 24 * 3600 * 1000


def test_a_topic_whose_policy_cannot_be_noted_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(monkeypatch)
    asking = SweepSurvey(site.archive, site.config, lambda _: None)
    news = [NotedPolicy(topic=name, topic_id=name, effective={}, since_ms=1) for name in ("a", "b")]
    site.store.put_if_absent(
        LAYOUT.fact_key("policies/a", LAST_FACT_NUMBER), b'{"format": 1}', {}, kind=ObjectKind.FACT
    )
    (failed,) = asking.note(news)
    assert failed.startswith("a: control/policies/a/")
    assert [one.topic for one in read_policies(site.archive, "b", "b")] == ["b"]


def test_a_topic_that_cannot_be_read_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(monkeypatch)
    site.record()
    site.put(0, 10)
    site.put(10, 20)
    key = next(key for key in site.store.objects if "control/topics/t/" in key)
    site.store.objects[key] = replace(site.store.objects[key], body=b"{")
    result = site.run(agreed=True)
    assert not result.is_complete
    assert [line.partition(": ")[0] for line in failures_of(result)] == ["t"]


@pytest.mark.parametrize("partition", [0, 1])
@pytest.mark.parametrize("is_dry_run", [False, True])
def test_objects_of_another_topic_than_their_life_stop_the_whole_topic(
    monkeypatch: pytest.MonkeyPatch, is_dry_run: bool, partition: int
) -> None:
    """One that goes is enough: a note of the topic is false, or somebody has put objects there. Another topic goes on."""
    site = Site(monkeypatch)
    for topic in ("t", "u"):
        site.record(topic, topic)
        for number in (0, 1):
            for base in (0, 10, 20):
                topic_id = "X" if (topic, number, base) == ("t", partition, 10) else topic
                site.put(base, base + 10, topic=topic, partition=number, topic_id=topic_id)
    result = site.run(is_dry_run=is_dry_run, agreed=not is_dry_run)
    key = site.key(10, partition=partition)
    why = (
        f"{key}: is of topic id X, and control/topics/t has t for its life; nothing of the topic is deleted; bring back"
    )
    assert [(one.topic, one.stop == one.why, one.why[: len(why)]) for one in result.plan.kept] == [("t", True, why)]
    assert result.exit_code == 3
    left = [key for key in site.store.objects if key.startswith("topics/t/")]
    assert len(left) == 6
    report = read_last_report(site.archive)
    if not is_dry_run:
        assert report is not None
        assert {name: (one.objects, bool(one.stopped)) for name, one in report.topics.items()} == {
            "t": (0, True),
            "u": (4, False),
        }


def test_objects_that_tell_no_topic_id_stay_and_the_others_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are from before the brokers had ids, or a note has said so of its life since."""
    site = Site(monkeypatch)
    site.record()
    for base in (0, 10, 20, 30):
        site.put(base, base + 10, topic_id="" if base == 10 else "t")
    result = site.run(agreed=True)
    assert [one.item.base for one in result.swept[0].deleted] == [0, 20]
    assert result.plan.topics[0].kept_because() == {Staying.UNPROVEN: 1, Staying.NEWEST: 1}
    assert result.exit_code == 0


@pytest.mark.parametrize("is_dry_run", [False, True])
def test_a_store_whose_clock_is_far_ahead_is_swept_of_nothing(
    monkeypatch: pytest.MonkeyPatch, is_dry_run: bool
) -> None:
    """Its time alone would void min-object-age, retention and the question before much goes."""
    site = Site(monkeypatch, **{"min-object-age": "1d"})
    site.record()
    for base in (0, 10, 20):
        site.put(base, base + 10)
    before = set(site.store.objects)
    site.store.ahead = timedelta(days=40)
    with pytest.raises(StoreError, match=r"^the store's clock says 2026-02-10T"):
        site.run(agreed=not is_dry_run, is_dry_run=is_dry_run)
    assert set(site.store.objects) == before


def test_a_store_whose_clock_jumps_stops_before_the_next_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(monkeypatch)
    site.record()
    for base in (0, 10, 20):
        site.put(base, base + 10)

    def jump(archive: Archive, terms: TopicTerms) -> str:
        site.store.ahead = timedelta(days=40)
        return note_agreed(archive, terms)

    monkeypatch.setattr(runs, "note_agreed", jump)
    (swept,) = site.run(agreed=True).swept
    assert swept.stopped.startswith("the store's clock says 2026-02-10T")
    assert swept.deleted == []


def test_a_digest_that_fits_no_plan_ends_as_a_mistake_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the same command has another configuration, or is given again."""
    site = Site(monkeypatch)
    site.record()
    keys = [site.put(base, base + 10) for base in (0, 10, 20)]
    shown = site.run(is_dry_run=True)
    add_hold(site.archive, Hold(name="h", topics="t", reason="r", by="b", added_ms=0))
    before = set(site.store.objects)
    with pytest.raises(UsageError, match=rf"^--yes {shown.digest}: nothing of that plan may go by now: "):
        site.run(digest=shown.digest)
    assert set(site.store.objects) == before
    release_hold(site.archive, "h", by="b", now_ms=0)
    assert len(site.run(digest=shown.digest).swept[0].deleted) == len(keys) - 1


def test_a_merged_object_that_stays_counts_as_there_also_where_its_front_did_not_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A restore reads it; of what it covers one plain object goes by age."""
    site = Site(monkeypatch)
    site.record()
    merged = site.put(0, 50, is_merged=True)
    site.put(20, 30)
    site.put(50, 60)
    parts = [[merged, 0, None, None, None]]
    plan = {"format": FACT_FORMAT, "source": "t", "partitions": [{"partition": 0, "parts": parts}]}
    append_fact(site.archive, "restores/r/back/plan", lambda _: plan)
    assert [one.item.base for one in site.run(agreed=True).swept[0].deleted] == [20]
    site.store.delete([merged])
    assert site.gaps() == ["0-49"]
