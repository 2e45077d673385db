"""How compacted topics stand, by storage alone, and what of it somebody should look at."""

import re
from collections.abc import Collection, Mapping
from dataclasses import replace

import pytest

from archiver.archive.copies import role_entries as entries
from archiver.archive.copies.moments import MomentNote, NotedLimits, put_moments
from archiver.archive.copies.roles import HISTORY, RoleEntry, RolePlace
from archiver.archive.notes.topic_changes import record_topic
from archiver.backup.compacted.clearing.alarms import AlarmKind, alarms_in
from archiver.backup.compacted.clearing.clearing_rules import LogBounds
from archiver.backup.compacted.clearing.status import CompactedStatus, PartitionStatus, StatusReader
from archiver.backup.compacted.turn.turn_schedule import turn_stagger_ms
from archiver.cli.compacted_status import status_lines, status_row
from archiver.config.model import ArchiverConfig
from archiver.config.quantities import spell_time
from tests.support.segments import facts_of
from tests.support.standing_copies import PLACE, StandingCopies, at_ms, copy_of, generation

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
NOW_MS = 100 * DAY_MS
CONFIG = ArchiverConfig.model_validate(
    {
        "kafka": {"bootstrap.servers": "x:1"},
        "storage": {"url": "s3://bucket"},
        "topics": {"include": ["orders"]},
        "compacted": {"enabled": True, "instances": ["a", "b"]},
    }
)
LEFT_MS, BEGUN_MS = NOW_MS - 5 * HOUR_MS, NOW_MS - 7 * HOUR_MS


def turned(*, is_sure: bool = True, kept_ms: int = DAY_MS) -> tuple[StandingCopies, RoleEntry]:
    """a0 held, and b2 has taken its place five hours ago. Both instances were heard of just now."""
    bucket = StandingCopies()
    record(bucket, {"cleanup.policy": "compact", "delete.retention.ms": str(kept_ms)})
    log = entries.begin(None, 0, "a", has_history=False)
    bucket.note(0, log, 0)
    log = entries.switch(log, 1, copy_of("a0", 20))
    bucket.note(1, log, HOUR_MS)
    log = entries.begin(log, 2, "b", has_history=False)
    bucket.note(2, log, BEGUN_MS)
    log = entries.switch(log, 3, copy_of("b2", 30, 33, is_sure=is_sure))
    bucket.note(3, log, LEFT_MS)
    bucket.fill("a0", [(0, 10), (10, 25)])
    bucket.fill("b2", [(0, 10), (10, 30)])
    hear(bucket, "a", None, NOW_MS)
    hear(bucket, "b", 2, NOW_MS, moment_ms=NOW_MS - 1000)
    return bucket, log


def record(bucket: StandingCopies, effective: Mapping[str, str], partitions: int = 4, topic_id: str = "T") -> None:
    record_topic(
        bucket.archive,
        topic="orders",
        topic_id=topic_id,
        cluster_id="c",
        partitions=partitions,
        configs={},
        effective=effective,
    )


def hear(
    bucket: StandingCopies, instance: str, number: int | None, heard_ms: int, moment_ms: int | None = None
) -> None:
    """Let an instance tell of a generation of its own; None: that it works on nothing."""
    notes = [
        MomentNote(topic="orders", life=0, partition=3, generation=one, at_ms=moment_ms, last_stable=1)
        for one in ([] if number is None else [number])
    ]
    count = sum("/moments/" in key for key in bucket.store.objects)
    assert put_moments(bucket.archive, instance, f"{count:016x}", 0, notes)
    for key in [key for key in bucket.store.objects if f"/moments/{instance}/{count:016x}" in key]:
        bucket.store.objects[key] = replace(bucket.store.objects[key], last_modified=at_ms(heard_ms))


def read(
    bucket: StandingCopies, log: LogBounds | None = None, config: ArchiverConfig = CONFIG, topics: str = ".*"
) -> CompactedStatus:
    def ask(places: Collection[RolePlace]) -> Mapping[RolePlace, LogBounds]:
        return dict.fromkeys(places, log) if log else {}

    return StatusReader(bucket.archive, config, NOW_MS, ask if log else None).read(re.compile(topics))


def only(status: CompactedStatus) -> PartitionStatus:
    (one,) = status.partitions
    return one


def alarms(status: CompactedStatus) -> dict[str, str]:
    return {alarm.kind: alarm.text for alarm in alarms_in(replace(status, missing=()))}


def test_the_status_shows_current_and_former_copies() -> None:
    status = read(turned()[0])
    one = only(status)
    assert (one.holder, one.since_ms, one.begun_ms) == (copy_of("b2", 30, 33), LEFT_MS, BEGUN_MS)
    assert (one.candidate, one.replaced) == (None, copy_of("a0", 20))
    assert one.due_ms == LEFT_MS + 7 * DAY_MS + turn_stagger_ms("orders", 3, 7 * DAY_MS)
    seen = [(found.generation, found.role, found.objects, found.bytes, found.since_ms) for found in one.generations]
    assert seen == [(generation("a0"), "left", 2, 20, LEFT_MS), (generation("b2"), "active", 2, 20, LEFT_MS)]
    assert "compacted.clear.delay" in one.generations[0].kept[0]
    assert (one.generations[1].heard_ms, one.generations[1].moment_ms) == (NOW_MS, NOW_MS - 1000)
    assert status.heard_ms == {"a": NOW_MS, "b": NOW_MS}
    assert [place.partition for place in status.missing] == [0, 1, 2]
    assert alarms(status) == {}
    assert only(read(turned()[0], topics="orders")).number == 3
    assert read(turned()[0], topics="order").partitions == ()


def test_objects_are_asked_only_where_something_may_go(monkeypatch: pytest.MonkeyPatch) -> None:
    bucket, _ = turned()
    monkeypatch.setattr(bucket.store, "head", lambda _: pytest.fail("an object was asked"))
    read(bucket)


def test_no_lag_is_shown_without_the_cluster() -> None:
    bucket, _ = turned()
    clears_at_once = CONFIG.model_copy(update={"compacted": CONFIG.compacted.model_copy(update={"clear_delay_ms": 0})})
    one = only(read(bucket, config=clears_at_once))
    assert (one.reached, one.lag) == (33, None)


def test_lag_and_what_stands_against_a_copy_are_told_by_the_cluster() -> None:
    bucket, _ = turned()
    assert only(read(bucket)).lag is None
    one = only(read(bucket, LogBounds(log_start=0, log_end=40, policy="compact")))
    assert (one.reached, one.lag) == (33, 7)
    status = read(bucket, LogBounds(log_start=2, log_end=32, policy="compact"))
    assert [alarm.kind for alarm in alarms_in(replace(status, missing=()))] == [AlarmKind.IN_QUESTION] * 2
    bucket.fill("b2", [(40, 50)])
    assert "a gap at offset 30" in alarms(read(bucket, LogBounds(log_start=0, log_end=60, policy="compact")))["damaged"]


def test_partitions_without_a_role() -> None:
    bucket, _ = turned()
    text = next(alarm.text for alarm in alarms_in(read(bucket)) if alarm.kind is AlarmKind.NO_ROLE)
    assert text.startswith("orders-0: is compacted, and no instance has begun a copy of it")
    record(bucket, {"cleanup.policy": "delete"})
    assert read(bucket).missing == ()
    record(bucket, {"cleanup.policy": "compact"})
    disabled = CONFIG.model_copy(update={"compacted": CONFIG.compacted.model_copy(update={"enabled": False})})
    assert read(bucket, config=disabled).missing == ()


def test_a_silent_instance() -> None:
    bucket = turned()[0]
    for key in [key for key in bucket.store.objects if "/moments/" in key]:
        del bucket.store.objects[key]
    hear(bucket, "b", 2, NOW_MS - 3 * DAY_MS, moment_ms=NOW_MS - 4 * DAY_MS)
    told = [alarm.text for alarm in alarms_in(read(bucket)) if alarm.kind is AlarmKind.UNHEARD]
    assert told == ["instance a: was never heard of; run it", "instance b: unheard of for 72 h 0 min; run it"]


def test_a_copy_that_is_not_sure_and_cannot_become_so() -> None:
    bucket, log = turned(is_sure=False)
    bucket.note(4, entries.unsure(log, 4, "b"), NOW_MS - HOUR_MS)
    found = alarms(read(bucket))
    assert (
        found["unsure"]
        == "orders-3: generation 2 of b may hold values that were deleted since 1970-04-10T23:00:00.000Z"
    )
    assert "unattainable" not in found
    bucket, _ = turned(is_sure=False, kept_ms=2 * HOUR_MS + 10)  # less a tenth
    assert alarms(read(bucket))["unattainable"] == (
        "orders-3: generation 2 of b cannot become sure, unattainable: reading took 2 h 0 min, delete.retention.ms is 2 h 0 min; read faster, or raise"
        " delete.retention.ms"
    )


def test_a_candidate_that_takes_too_long_or_is_silent() -> None:
    bucket, log = turned()
    bucket.note(4, entries.begin(log, 4, "a", has_history=False), NOW_MS - 30 * HOUR_MS)
    found = alarms(read(bucket))
    assert (
        "generation 4 of a cannot become sure, unattainable: reading takes 30 h 0 min, delete.retention.ms is 24 h 0 min"
        in found["unattainable"]
    )
    assert "no instance has worked on generation 4 of a for 30 h" in found["overdue"]
    hear(bucket, "a", 4, NOW_MS - HOUR_MS, moment_ms=NOW_MS - 2 * HOUR_MS)
    assert alarms(read(bucket)) == {}


def test_a_turn_without_an_end_is_overdue() -> None:
    bucket, log = turned()
    bucket.note(3, log, LEFT_MS)
    for key in [key for key in bucket.store.objects if key.endswith("/000003.json")]:
        bucket.store.objects[key] = replace(bucket.store.objects[key], last_modified=at_ms(NOW_MS - 9 * DAY_MS))
    assert "the next copy is due since" in alarms(read(bucket))["overdue"]


@pytest.mark.parametrize(
    ("has_history", "text"), [(True, "what lies under topics/ is read"), (False, "nothing can be read")]
)
def test_before_the_first_copy_is_complete(text: str, *, has_history: bool) -> None:
    bucket = StandingCopies()
    bucket.note(0, entries.begin(None, 0, "a", has_history=has_history), NOW_MS)
    status = read(bucket)
    assert only(status).holder == (HISTORY if has_history else None)
    assert text in alarms(status)["no-copy"]
    assert [found.role for found in only(status).generations] == ["catch-up"]


def test_a_topic_that_is_compacted_no_longer_needs_no_turns() -> None:
    bucket, _ = turned()
    record(bucket, {"cleanup.policy": "delete", "delete.retention.ms": str(DAY_MS)})
    (one,) = read(bucket).partitions
    assert (one.is_live, one.due_ms) == (True, None)


def test_no_candidate_is_reported_in_a_life_that_has_ended() -> None:
    bucket, log = turned(is_sure=False)
    bucket.note(4, entries.begin(log, 4, "a", has_history=False), NOW_MS - HOUR_MS)
    assert [one.candidate for one in read(bucket).partitions] == [generation("a4")]
    record(bucket, {"cleanup.policy": "compact"}, topic_id="U")
    one = only(status := read(bucket))
    assert (one.is_live, one.candidate, one.due_ms, alarms(status)) == (False, None, None, {})


def test_an_unreadable_entry_is_reported_beside_the_rest() -> None:
    bucket, log = turned()
    bucket.note(3, log, LEFT_MS, replace(PLACE, partition=1))
    bucket.put(bucket.layout.fact_key(PLACE.stream, 4), b"{}")
    bucket.put("p/control/topics/else/000000.json", b"{}")
    status = read(bucket)
    assert [(one.place.partition, bool(one.problem)) for one in status.partitions] == [(1, False), (3, True)]
    found = [alarm for alarm in alarms_in(status) if alarm.kind is AlarmKind.UNREADABLE]
    assert [alarm.place for alarm in found] == [None, PLACE]


def test_both_printers() -> None:
    bucket, log = turned()
    bucket.note(3, log, LEFT_MS, replace(PLACE, life=1, partition=1))
    bucket.note(0, entries.begin(None, 0, "a", has_history=True), 0, replace(PLACE, partition=2))
    bucket.put(bucket.layout.fact_key("roles/orders/0/9", 0), b"{}")
    status = read(bucket, LogBounds(log_start=0, log_end=40, policy="compact"))
    lines = list(status_lines(status))
    assert any(re.match(r"orders +3 +b/2 +1970-04-10T19:00:00Z +33 +yes +7 +1970-", line) for line in lines), lines
    assert any(line.startswith("orders-3: generation 0 of a: compacted.clear.delay") for line in lines)
    assert any(re.match(r"orders +9 +\?", line) for line in lines)
    assert "4 partitions of 1 topic" in lines
    row = status_row(status, list(alarms_in(status)))
    third = next(one for one in row["partitions"] if (one["life"], one["partition"]) == (0, 3))
    assert third["holder"] == {"instance": "b", "generation": 2, "next": 30, "position": 33, "is_sure": True}
    assert (third["lag"], third["log_end"], third["generations"][0]["role"]) == (7, 40, "left")


def test_a_history_that_may_lack_deletions_is_an_alarm() -> None:
    """Where it is read: the policy lacks compact, and the backup has taken the partition back."""
    bucket, log = turned()
    bucket.note(4, entries.history(log, 4, HISTORY), NOW_MS - HOUR_MS)
    for base, following, put_ms in ((0, 20, NOW_MS - 9 * DAY_MS), (20, 40, NOW_MS - HOUR_MS)):
        facts = replace(facts_of(base, following), max_timestamp=put_ms, unserved=5)
        key = f"{bucket.layout.partition_prefix('orders', 0, 3)}orders+3-{base:020}.data"
        bucket.put(key, b"x", facts.to_metadata(), put_ms)
    (text,) = [alarm.text for alarm in alarms_in(read(bucket)) if alarm.kind is AlarmKind.UNSURE]
    assert text.startswith("orders-3: what lies under topics/ is unsure from offset 20 on")
    log = entries.begin(entries.history(log, 4, HISTORY), 5, "a", has_history=True)
    bucket.note(5, log, NOW_MS)
    assert [alarm.text for alarm in alarms_in(read(bucket)) if alarm.kind is AlarmKind.UNSURE] == [text]
    bucket.note(6, entries.switch(log, 6, copy_of("a5", 40)), NOW_MS)
    assert not [alarm for alarm in alarms_in(read(bucket)) if alarm.kind is AlarmKind.UNSURE]


def test_without_a_configuration_the_limits_are_those_that_an_instance_noted_last() -> None:
    bucket, _ = turned()
    reader = StatusReader(bucket.archive, CONFIG, NOW_MS, takes_noted=True)
    status = reader.read(re.compile(".*"))
    assert (status.limits, status.takeover_ms) == ("defaults: no instance has noted any", HOUR_MS)
    for process, length_ms, heard_ms in (("e", 9 * HOUR_MS, NOW_MS - 5000), ("f", 2**62, NOW_MS - 9000)):
        limits = NotedLimits(
            length_ms=length_ms, takeover_ms=4000, margin_ms=5, clear_delay_ms=HOUR_MS, keep_generations=0
        )
        assert put_moments(bucket.archive, "a", process * 16, 0, [], limits=limits)
        key = f"p/control/moments/a/{process * 16}/000000.json"
        bucket.store.objects[key] = replace(bucket.store.objects[key], last_modified=at_ms(heard_ms))
    status = reader.read(re.compile(".*"))
    assert (status.limits, status.takeover_ms) == (f"as instance a noted at {spell_time(NOW_MS - 5000)}", 4000)
    one = only(status)
    assert one.due_ms == LEFT_MS + 9 * HOUR_MS + turn_stagger_ms("orders", 3, 9 * HOUR_MS)
    assert one.generations[0].kept == ()  # compacted.clear.delay is over
    assert f"limits: {status.limits}" in list(status_lines(status))
    assert status_row(status, [])["limits"] == status.limits
    assert read(bucket).limits == "of the configuration"


def test_what_stands_against_copies_is_in_question() -> None:
    bucket, _ = turned()
    assert "in-question" in alarms(read(bucket, LogBounds(log_start=5, log_end=32, policy="compact")))


def test_a_copy_that_only_force_frees_is_told_with_the_command_without_a_cluster() -> None:
    """The policy was compact, then delete, then compact: the log begins above where the old copy does."""
    bucket, _ = turned()
    soon = CONFIG.compacted.model_copy(update={"clear_delay_ms": HOUR_MS})
    later = CONFIG.model_copy(update={"compacted": soon})
    assert only(read(bucket, config=later)).generations[0].kept == ()
    bucket.fill("b2", [(0, 10)], begins=5)
    (kept,) = only(read(bucket, config=later)).generations[0].kept
    assert "if that was meant, `archiver compacted clear --force TOPIC-PARTITION` deletes" in kept
