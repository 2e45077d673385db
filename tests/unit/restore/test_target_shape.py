"""Why an existing topic cannot be the target of a plan."""

from dataclasses import replace

import pytest

from archiver.archive.format.control import append_fact, latest_fact
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.errors import NotWholeError
from archiver.kafka.brokers.cluster import Replicas, TopicDescription
from archiver.restore.fill.strangers import advice_for
from archiver.restore.plan.claims import TargetClaims
from archiver.restore.plan.plan_check import PlanCheck
from archiver.restore.plan.request import RestoreRequest
from archiver.restore.plan.restore_notes import RestoreNotes
from archiver.restore.purge.archived_logs import ArchivedLogs
from archiver.restore.targets.target_shape import regrown_problems
from archiver.restore.targets.target_survey import Survey, Surveyor
from tests.support.memory_store import MemoryStore
from tests.unit.restore.test_noted_plan import plan_of
from tests.unit.restore.test_repartition_source import task_of

PLAN = replace(plan_of(), appends=True)
NUMBERS = [one.partition for one in PLAN.partitions if one.parts]
ENDS = {one.partition: 10 for one in PLAN.partitions}


def problems(ends: dict[int, int], claimed: set[int]) -> list[str]:
    return list(regrown_problems(PLAN, ENDS, ends, claimed, "mine"))


def test_a_partition_that_has_grown_without_a_claim_is_a_problem() -> None:
    number, *others = NUMBERS
    grown = {**ENDS, number: 11}
    assert problems(ENDS, set()) == []
    (problem,) = problems(grown, set(others))
    assert problem.startswith(f"target topic {PLAN.target} has grown in partition {number} since restore mine planned")
    assert problems(grown, {number}) == []
    assert problems(dict.fromkeys(ENDS, 5), set()) == []  # it was cut back, which others report


def test_what_to_do_about_a_target_that_has_grown_can_be_done() -> None:
    """Another --id is no way: that restore is refused a topic that this one has begun."""
    store = MemoryStore()
    archive = Archive(store, Layout("p"))
    targets = {PLAN.target: "A"}
    RestoreNotes(archive, "mine", "c").note_plans([PLAN], targets, {}, {PLAN.target: ENDS})
    assert RestoreNotes(archive, "other", "c").begun_by_others(targets) == {PLAN.target: "mine"}
    task = task_of(1).source
    assert advice_for(replace(task, mode=replace(task.mode, appends=True))).endswith(
        "Restore into another topic with --rename t=NEW"
    )
    number, *others = NUMBERS
    (problem,) = problems({**ENDS, number: 11}, set())
    assert problem.endswith(f"delete control/restores/mine/{PLAN.target}/, and run the same command again")
    store.delete([key for key in store.objects if key.startswith(f"p/control/restores/mine/{PLAN.target}/")])
    assert RestoreNotes(archive, "mine", "c").plans(targets, {}) == {}
    (problem,) = problems({**ENDS, number: 11}, set(others))  # the notes of these must stay
    assert problem.endswith(f"with --rename {PLAN.source}=NEW --partitions {number} and another --id")


@pytest.mark.parametrize("appends", [True, False])
def test_a_finished_target_without_its_other_notes_is_not_appended_to_again(appends: bool) -> None:
    """As after a sweep that was stopped before its last step. One that is not appended to is not empty, which others report."""
    notes = RestoreNotes(Archive(MemoryStore(), Layout("p")), "mine", "c")
    surveyor = Surveyor(
        notes,
        PlanCheck(notes.archive.layout, "mine", RestoreRequest()),
        RestoreRequest(),
        ArchivedLogs(notes.archive, "c"),
        cluster=(),
    )
    topic = TopicDescription(
        name=PLAN.target,
        topic_id="A",
        partitions=tuple(ENDS),
        leaders={},
        is_internal=False,
        fewest=Replicas(1, 1, 0),
        replicas=(1,) * len(ENDS),
    )
    survey = Survey(
        plans={PLAN.target: replace(PLAN, appends=appends)},
        claims={PLAN.target: TargetClaims({})},
        found={PLAN.target: topic},
    )
    assert surveyor._unverified_problems(survey, ()) == []
    notes.note_finished({PLAN.target: "A"})
    problems = surveyor._unverified_problems(survey, ())
    assert [one.partition(" by restore")[0] for one in problems] == (
        [f"target topic {PLAN.target} was noted as finished"] if appends else []
    )


def test_a_partition_that_the_plan_refused_was_never_written() -> None:
    broken = replace(PLAN, partitions=tuple(replace(one, problem="damaged") for one in PLAN.partitions))
    assert list(regrown_problems(broken, ENDS, dict.fromkeys(ENDS, 11), (), "mine")) == []


def test_a_repartitioned_target_counts_as_a_whole() -> None:
    joint = replace(PLAN, repartition=3)
    assert len(list(regrown_problems(joint, {0: 1, 1: 1, 2: 1}, {0: 1, 1: 2, 2: 3}, (), "mine"))) == 2


def test_the_ends_of_the_first_plan_are_kept_and_required() -> None:
    archive = Archive(MemoryStore(), Layout("p"))
    notes = RestoreNotes(archive, "mine", "c")
    first, second = PLAN.partitions
    broken = replace(PLAN, partitions=(first, replace(second, problem="damaged")))
    targets = {PLAN.target: "A"}
    notes.note_plans([broken], targets, {}, {PLAN.target: ENDS})
    notes.note_plans([PLAN], targets, {}, {PLAN.target: dict.fromkeys(ENDS, 99)})  # what was refused can be read now
    stream = f"restores/mine/{PLAN.target}/plan"
    noted = latest_fact(archive, stream)
    assert noted is not None
    assert not any(one["problem"] for one in noted["partitions"])
    assert notes.planned_ends(targets) == {
        PLAN.target: {**ENDS, second.partition: 99}
    }  # nothing was written to it before
    append_fact(archive, stream, lambda _: {name: one for name, one in noted.items() if name != "ends"})
    with pytest.raises(NotWholeError, match="does not tell where the target ended"):
        notes.planned_ends(targets)
