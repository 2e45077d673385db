"""How it is printed what came of setting groups."""

from collections.abc import Sequence
from dataclasses import replace

from archiver.cli.groups_applied import _NEXT_STEPS, applied_complaints, applied_lines, applied_row
from archiver.errors import KafkaError, KafkaTemporaryError
from archiver.groups.target.application_decisions import ApplicationReport, Decision, GroupReport, PositionOutcome
from archiver.kafka.groups.group_positions import GroupPosition


def position(outcome: PositionOutcome, partition: int = 0) -> Decision:
    return Decision(
        topic="orders",
        topic_id="",
        partition=partition,
        before=None,
        wanted=GroupPosition(offset=7, metadata="m"),
        after=GroupPosition(offset=9),
        outcome=outcome,
    )


def report(*groups: GroupReport, expiry_ms: int | None = None, is_dry_run: bool = False) -> ApplicationReport:
    return ApplicationReport(
        restore_id="r1", groups=groups, is_rollback=False, is_dry_run=is_dry_run, expiry_ms=expiry_ms
    )


def group(
    *outcomes: PositionOutcome,
    refusal: str = "",
    error: KafkaError | KafkaTemporaryError | None = None,
    name: str = "g",
) -> GroupReport:
    found: Sequence[Decision] = [position(one, number) for number, one in enumerate(outcomes)]
    return GroupReport(group=name, source_group="s", positions=found, refusal=refusal, error=error)


def test_a_table_with_what_to_know_below_it() -> None:
    lines = list(applied_lines(report(group(PositionOutcome.SET))))
    assert lines[0].split() == ["group", "topic", "partition", "before", "wanted", "after"]
    assert lines[1].split() == ["g", "orders", "0", "none", "7", "9", "set"]
    assert lines[2] == "1 position of 1 group, of restore r1"
    assert "(assign)" in lines[3]
    assert "(offsets.retention.minutes: 1w by default; these brokers do not tell theirs)" in lines[4]
    dry = list(applied_lines(report(group(PositionOutcome.SET), expiry_ms=3_600_000, is_dry_run=True)))
    assert dry[1].endswith("would be set")
    assert dry[3] == "nothing was changed"
    assert "(offsets.retention.minutes: 1h)" in dry[5]
    assert len(list(applied_lines(report(group(PositionOutcome.MOVED))))) == 3


def test_a_rollback_has_words_of_its_own() -> None:
    for is_dry_run, outcome in ((True, "would be set back"), (False, "set back")):
        lines = list(
            applied_lines(replace(report(group(PositionOutcome.SET), is_dry_run=is_dry_run), is_rollback=True))
        )
        assert "was set to  back to" in lines[0]
        assert lines[1].endswith(f"  {outcome}")
    none = position(PositionOutcome.HAS_MEMBERS)._replace(after=None)
    (told,) = applied_complaints(report(GroupReport(group="g", source_group="s", positions=[none])))
    assert told.startswith("group g, left as it is: orders-0 (no position): ")


def test_unchanged_positions_are_printed_with_the_next_step() -> None:
    many = report(
        group(*[PositionOutcome.MOVED] * 12, PositionOutcome.HAS_MEMBERS, PositionOutcome.SET),
        group(refusal="group h is refused", name="h"),
        group(error=KafkaError("group i broke"), name="i"),
        group(error=KafkaError("broke"), name="j"),
    )
    first, second, *others = applied_complaints(many)
    assert first.startswith("group g, left as it is: orders-0 (at 9), orders-1 (at 9), ")
    assert first.endswith("orders-9 (at 9) and 2 more: stands elsewhere; " + _NEXT_STEPS["stands elsewhere"])
    assert (
        second
        == "group g, left as it is: orders-12 (at 9): the group has members; stop its consumers, and run the same command again"
    )
    assert others == ["group h is refused", "group i broke", "group j: broke"]
    assert {str(one) for one in PositionOutcome if not one.is_done} == _NEXT_STEPS.keys()


def test_similar_names_stay_distinct_and_long_ones_are_cut() -> None:
    names = ["good", "good ", "", '"good "', "x" * 32_000]
    many = report(*(group(PositionOutcome.MOVED, name=name) for name in names))
    lines = list(applied_lines(many))[1:6]
    assert [line.split("  ")[0] for line in lines] == ["good", '"good "', '""', '""good ""', "x" * 255 + "…"]
    assert max(map(len, lines[:4])) < 130  # not padded to the longest name
    told = [one.partition(", left")[0] for one in applied_complaints(many)]
    assert told == ["group good", 'group "good "', 'group ""', 'group ""good ""', f"group {'x' * 255}…"]
    assert [one["group"] for one in applied_row(many)["groups"]] == names


def test_exit_codes() -> None:
    broken, moving = KafkaError("broke"), KafkaTemporaryError("moves")
    cases = {
        0: [group(), group(PositionOutcome.SET, PositionOutcome.SET_EARLIER, PositionOutcome.STOOD_THERE)],
        1: [group(PositionOutcome.NOT_SET, error=broken), group(error=broken)],
        3: [group(one) for one in PositionOutcome if not one.is_done]
        + [group(refusal="r"), group(PositionOutcome.MOVED, PositionOutcome.NOT_SET, error=broken)],
        4: [group(PositionOutcome.NOT_SET, error=moving), group(PositionOutcome.MOVED, error=moving)],
    }
    for code, groups in cases.items():
        assert [report(one, group(PositionOutcome.SET)).exit_code for one in groups] == [code] * len(groups)
