"""The differences that a drill finds in the result of its restore, and the notes that drills leave."""

from typing import cast

import pytest

from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.archive.notes.drills import SCRATCH, DrillNote, new_drill_id, put_drill, read_drills
from archiver.archive.notes.run_notes import Outcome, RunKind, RunNote, put_run_note
from archiver.errors import KafkaTemporaryError, TargetError
from archiver.kafka.brokers.client_thread import ClientThread
from archiver.restore.plan.request import RestoreRequest
from archiver.restore.plan.restore_notes import RestoreNotes
from archiver.restore.plan.task import TaskReport
from archiver.restore.report.restore_report import Nothing, RestoreResult, TopicReport
from archiver.spark.drill import Drill, _judge, _remove
from tests.support.memory_store import MemoryStore
from tests.unit.archive.test_restore_pins import HISTORY, plan_of


def judged(*topics: TopicReport, from_ms: int | None = None, **more: object) -> Drill:
    drill = Drill("drill-0123456789ab", 1000, from_ms, "s3://bucket")
    result = RestoreResult(restore_id=drill.drill, filling_seconds=1.0, topics=topics, **more)  # type: ignore[arg-type]
    _judge(drill, result)
    return drill


def topic(name: str = "orders", nothing: Nothing | None = None, **of_task: object) -> TopicReport:
    task = {"records": 3, "digest": 7, "target_digest": 7, **of_task}
    report = TaskReport(target_topic="scratch", partition=0, **task)  # type: ignore[arg-type]
    return TopicReport(source=name, life=0, target="scratch", partitions=(report,), nothing=nothing)


EMPTY = topic("empty", records=0, digest=0, target_digest=0)


def test_equal_digests_of_records_pass() -> None:
    assert judged(topic()).problems == {}


@pytest.mark.parametrize("target_digest", [8, None])
def test_another_digest_on_the_target_is_a_difference(target_digest: int | None) -> None:
    found = judged(topic(target_digest=target_digest))
    assert (found.exit_code, list(found.problems)) == (
        3,
        [f"orders-0: the target has digest {target_digest}, the archive 7"],
    )


@pytest.mark.parametrize("from_ms", [None, 5])
def test_an_empty_sample_of_one_topic_never_passes(from_ms: int | None) -> None:
    found = judged(topic(), EMPTY, from_ms=from_ms)
    (problem,) = found.problems
    assert (found.exit_code, problem.startswith("empty: the sample is empty")) == (3, True)


def test_a_topic_without_an_object_may_be_empty_beside_others_in_a_drill_of_all_records() -> None:
    bare = topic("bare", Nothing.ARCHIVED, records=0, digest=0, target_digest=0)
    assert judged(topic(), bare).problems == {}
    assert list(judged(bare).problems) == ["no record was restored"]
    assert judged(topic(), bare, from_ms=5).exit_code == 3
    assert list(judged().problems) == ["no record was restored"]


def test_what_was_left_out_or_failed_is_a_difference() -> None:
    assert list(judged(topic(missing=("offsets 1-2",))).problems) == ["orders-0: offsets 1-2"]
    assert judged(topic(error="damaged", exit_code=3)).exit_code == 3
    assert judged(topic(error="away", exit_code=4)).exit_code == 4
    assert judged(topic(), not_begun=["scratch-2"]).exit_code == 3
    assert judged(topic(), problems=["a gap"]).problems == {"a gap": 3}
    assert judged(topic(), failure=TargetError("one\ntwo")).problems == {"one": 2, "two": 2}
    assert judged(topic(), failure=KafkaTemporaryError("away")).exit_code == 4


class NoTopics:
    """Brokers that name no topic of a drill."""

    @staticmethod
    def ask(_: object) -> list[str]:
        return []


def test_400_drills_leave_few_objects() -> None:
    """Each one puts the notes of its restore, and every tenth is killed before it has removed them: the next one does."""
    archive, brokers = Archive(MemoryStore(), Layout()), cast("ClientThread", NoTopics())
    plan = plan_of([HISTORY])
    for number in range(400):
        for earlier, note in read_drills(archive).items():
            _remove(archive, brokers, earlier, note)
        drill_id = new_drill_id()
        own = DrillNote(target_cluster_id="c", scratch={"orders": f"{SCRATCH}{number}"})
        put_drill(archive, drill_id, own)
        RestoreNotes(archive, drill_id, "c").note_plans([plan], {"back": "T"}, RestoreRequest().terms)
        assert len(list(archive.store.list("control/restores/"))) > 0
        if number % 10 < 9:
            _remove(archive, brokers, drill_id, own)
            put_run_note(archive, RunNote(kind=RunKind.DRILL, outcome=Outcome.FAILED if number % 3 else Outcome.DONE))
    left = [item.key for item in archive.store.list("")]
    assert len(left) < 10
    assert len([key for key in left if key.startswith("control/drills/")]) == 1  # the last one was killed
