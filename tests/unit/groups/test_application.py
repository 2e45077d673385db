"""Groups are set, and set back, on a simulated cluster: in the order of effects, through every kill, beside consumers that run on."""

import asyncio
import random
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archiver.archive.format.control import append_fact
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.errors import CorruptSegmentError, KafkaTemporaryError, StoreError, UsageError
from archiver.groups.target.application import apply_positions, roll_back_positions
from archiver.groups.target.application_decisions import (
    ApplicationReport,
    GroupReport,
    PositionOutcome,
    WantedGroup,
    WantedGroups,
    WantedPosition,
)
from archiver.groups.target.application_notes import ApplicationNotes
from archiver.kafka.brokers.codes import Code
from archiver.kafka.brokers.wire import Call
from archiver.kafka.groups.group_commits import OffsetCommitCall, OffsetDeleteCall
from archiver.kafka.groups.group_positions import GroupPosition, OffsetFetchCall
from archiver.store.port import Body, ObjectKind
from tests.support.memory_store import MemoryStore
from tests.support.simulated_groups import SimulatedGroups

EVERY: Final = re.compile(".*")
Offsets = Mapping[tuple[str, int], int]


class Stage:
    """A simulated cluster with two topics, and an archive in memory."""

    def __init__(self) -> None:
        self.cluster = SimulatedGroups()
        self.cluster.create_topic("orders", "id-1")
        self.cluster.create_topic("payments", "id-2")
        self.store = MemoryStore()
        self.archive = Archive(self.store, Layout())
        self.progress: list[str] = []

    def wanted(self, group: str = "g", offsets: Offsets | None = None) -> WantedGroups:
        offsets = {("orders", 0): 10, ("orders", 1): 20} if offsets is None else offsets
        positions = [
            WantedPosition(topic, self.cluster.topics.get(topic, "id-0"), partition, offset, "m")
            for (topic, partition), offset in offsets.items()
        ]
        return {group: WantedGroup(source_group=f"{group}-source", positions=positions)}

    def apply(self, wanted: WantedGroups | None = None, *, is_dry_run: bool = False) -> ApplicationReport:
        asked = self.wanted() if wanted is None else wanted
        return asyncio.run(
            apply_positions(
                self.cluster.client,
                self.archive,
                "r1",
                asked,
                self.progress.append,
                as_of_ms=None,
                is_dry_run=is_dry_run,
            )
        )

    def roll_back(self, groups: re.Pattern[str] = EVERY, *, is_dry_run: bool = False) -> ApplicationReport:
        return asyncio.run(
            roll_back_positions(
                self.cluster.client, self.archive, "r1", groups, self.progress.append, is_dry_run=is_dry_run
            )
        )

    def offsets(self, group: str = "g") -> Offsets:
        return {place: one.offset for place, one in self.cluster.positions.get(group, {}).items()}


@pytest.fixture
def stage() -> Stage:
    return Stage()


def outcomes(report: ApplicationReport, group: str = "g") -> list[PositionOutcome]:
    return [one.outcome for one in of(report, group).positions]


def of(report: ApplicationReport, group: str = "g") -> GroupReport:
    (found,) = [one for one in report.groups if one.group == group]
    return found


def test_a_group_is_set_noted_and_read_back(stage: Stage) -> None:
    stage.cluster.put("g", "orders", 0, 3, "old")
    stage.cluster.put("g", "payments", 0, 4)
    report = stage.apply()
    first, second = of(report).positions
    assert (first.before, first.wanted, first.after) == (
        GroupPosition(offset=3, metadata="old"),
        GroupPosition(offset=10, metadata="m"),
        GroupPosition(offset=10, metadata="m"),
    )
    assert (second.before, second.outcome, report.exit_code) == (None, PositionOutcome.SET, 0)
    assert stage.offsets() == {("orders", 0): 10, ("orders", 1): 20, ("payments", 0): 4}
    assert outcomes(stage.apply()) == [PositionOutcome.SET_EARLIER] * 2
    assert stage.progress == ["1 of 1 group"] * 2

    back = stage.roll_back()
    assert (outcomes(back), back.exit_code) == ([PositionOutcome.SET] * 2, 0)
    assert stage.cluster.positions["g"] == {
        ("orders", 0): GroupPosition(offset=3, metadata="old"),
        ("payments", 0): GroupPosition(offset=4),
    }
    assert outcomes(stage.roll_back()) == [PositionOutcome.STOOD_THERE] * 2
    assert outcomes(stage.apply()) == [PositionOutcome.SET] * 2


def test_two_archived_groups_do_not_share_a_name(stage: Stage) -> None:
    """A rollback would not know whose positions it puts back."""
    assert outcomes(stage.apply()) == [PositionOutcome.SET] * 2
    other = {"g": WantedGroup(source_group="other", positions=stage.wanted("g", {("orders", 1): 5})["g"].positions)}
    report = stage.apply(other)
    assert "positions of group g-source: give that of other another name (--rename-group)" in of(report).refusal
    assert (report.exit_code, stage.offsets()) == (3, {("orders", 0): 10, ("orders", 1): 20})


def test_a_note_that_cannot_be_read_keeps_only_its_group(stage: Stage) -> None:
    stage.apply({**stage.wanted("a"), **stage.wanted("b")})
    stream = ApplicationNotes(stage.archive, "r1", "cluster").stream("a")
    append_fact(stage.archive, stream, lambda _: {"format": 1})
    stage.cluster.put("b", "orders", 0, 30)
    report = stage.apply({**stage.wanted("a"), **stage.wanted("b"), **stage.wanted("c")})
    assert (type(of(report, "a").error), outcomes(report, "c"), report.exit_code) == (
        CorruptSegmentError,
        [PositionOutcome.SET] * 2,
        3,
    )
    back = stage.roll_back(re.compile("c"))
    assert (outcomes(back, "c"), [one.group for one in back.groups if one.error]) == (
        [PositionOutcome.SET] * 2,
        [f"control/{stream}/"],
    )
    assert back.exit_code == 3


def test_a_dry_run_tells_the_same_and_writes_nothing(stage: Stage) -> None:
    stage.cluster.put("moved", "orders", 0, 3)
    wanted = {**stage.wanted(), **stage.wanted("active"), **stage.wanted("moved")}
    stage.cluster.members.add("active")

    def refuse(call: Call[Any]) -> None:
        assert not isinstance(call, OffsetCommitCall | OffsetDeleteCall)

    stage.cluster.before_call = refuse
    dry = stage.apply(wanted, is_dry_run=True)
    assert not stage.store.objects
    stage.cluster.before_call = lambda _: None
    wet = stage.apply(wanted)
    assert [outcomes(dry, group) for group in wanted] == [outcomes(wet, group) for group in wanted]
    assert (dry.exit_code, wet.exit_code, dry.is_dry_run) == (3, 3, True)
    objects, positions = dict(stage.store.objects), dict(stage.cluster.positions["g"])
    stage.cluster.before_call = refuse
    assert outcomes(stage.roll_back(is_dry_run=True)) == [PositionOutcome.SET] * 2
    assert (stage.store.objects, stage.cluster.positions["g"]) == (objects, positions)


def test_a_group_with_members_is_left_alone_and_the_others_go_on(stage: Stage) -> None:
    stage.cluster.put("active", "orders", 0, 3)
    stage.cluster.members.add("active")
    report = stage.apply({**stage.wanted(), **stage.wanted("active")})
    assert (outcomes(report), outcomes(report, "active")) == (
        [PositionOutcome.SET] * 2,
        [PositionOutcome.HAS_MEMBERS] * 2,
    )
    assert (report.exit_code, stage.offsets("active")) == (3, {("orders", 0): 3})
    assert of(report, "active").error is None

    stage.cluster.members = {"g"}
    back = stage.roll_back()
    assert outcomes(back) == [PositionOutcome.HAS_MEMBERS] * 2
    assert stage.offsets() == {("orders", 0): 10, ("orders", 1): 20}
    stage.cluster.members.clear()
    assert outcomes(stage.apply(stage.wanted("active")), "active") == [PositionOutcome.SET] * 2


def join_at(stage: Stage, kind: type[Call[Any]], number: int = 1) -> None:
    """Have a consumer join before the call of a kind that comes as the number-th."""
    seen: list[Call[Any]] = []

    def before(call: Call[Any]) -> None:
        if isinstance(call, kind):
            seen.append(call)
            if len(seen) == number:
                stage.cluster.members.add("g")

    stage.cluster.before_call = before


def test_a_group_that_becomes_active_after_the_look_is_left_alone(stage: Stage) -> None:
    join_at(stage, OffsetCommitCall)
    report = stage.apply()
    assert (outcomes(report), report.exit_code, of(report).error) == ([PositionOutcome.HAS_MEMBERS] * 2, 3, None)
    assert stage.offsets() == {}


def test_positions_are_not_deleted_of_a_group_that_becomes_active(stage: Stage) -> None:
    """Brokers do that where its members read other topics."""
    stage.apply()
    join_at(stage, OffsetFetchCall, 2)
    back = stage.roll_back()
    assert (outcomes(back), back.exit_code) == ([PositionOutcome.HAS_MEMBERS] * 2, 3)
    assert stage.offsets() == {("orders", 0): 10, ("orders", 1): 20}


def test_consumers_that_ran_on_are_not_put_back(stage: Stage) -> None:
    stage.apply()
    stage.cluster.put("g", "orders", 0, 15)
    again = stage.apply()
    assert (outcomes(again), again.exit_code) == ([PositionOutcome.RAN_ON, PositionOutcome.SET_EARLIER], 0)
    for report in (stage.apply(stage.wanted(offsets={("orders", 0): 12})), stage.roll_back()):
        assert outcomes(report)[0] is PositionOutcome.MOVED
        assert (report.exit_code, stage.offsets()) == (3, {("orders", 0): 15, ("orders", 1): 20})
    assert outcomes(stage.roll_back()) == [PositionOutcome.MOVED, PositionOutcome.GROUP_MOVED]
    assert outcomes(stage.roll_back(is_dry_run=True)) == [PositionOutcome.MOVED, PositionOutcome.GROUP_MOVED]


def test_a_group_that_commits_after_a_rollback_has_moved(stage: Stage) -> None:
    """It stood behind the wanted position, and has not read what lies between."""
    stage.cluster.put("g", "orders", 0, 50)
    stage.apply()
    stage.roll_back()
    stage.cluster.put("g", "orders", 0, 55)
    again = stage.apply()
    assert (outcomes(again)[0], again.exit_code, stage.offsets()["orders", 0]) == (PositionOutcome.MOVED, 3, 55)


def untold(stage: Stage, group: str = "g", source: str = "g-source", partitions: int = 2) -> WantedGroups:
    places = [
        WantedPosition("orders", stage.cluster.topics["orders"], partition, -1) for partition in range(partitions)
    ]
    return {group: WantedGroup(source_group=source, positions=(), untold=places)}


def test_what_the_archive_cannot_tell_any_more_is_looked_up_and_never_set(stage: Stage) -> None:
    stage.apply()
    stage.cluster.put("g", "orders", 1, 25)
    objects, positions = dict(stage.store.objects), dict(stage.cluster.positions["g"])
    report = stage.apply(untold(stage, partitions=3))
    assert (outcomes(report), report.exit_code) == ([PositionOutcome.SET_EARLIER, PositionOutcome.RAN_ON], 0)
    stage.cluster.put("g", "orders", 1, 19)
    assert outcomes(stage.apply(untold(stage))) == [PositionOutcome.SET_EARLIER]
    for nobodys in (untold(stage, "x"), untold(stage, source="another")):
        assert [one.positions for one in stage.apply(nobodys).groups] in ([], [[]])
    assert (stage.store.objects, stage.offsets()["orders", 0]) == (objects, positions["orders", 0].offset)


def test_a_proof_that_cannot_be_noted_is_told_and_mended_by_the_next_run(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, puts = stage.store.put_if_absent, list[str]()

    def refuse_second(key: str, body: Body, metadata: Mapping[str, str], *, kind: ObjectKind) -> str | None:
        puts.append(key)
        if len(puts) == 2:
            raise StoreError("denied")
        return put(key, body, metadata, kind=kind)

    monkeypatch.setattr(stage.store, "put_if_absent", refuse_second)
    report = stage.apply()
    assert (outcomes(report), str(of(report).error), report.exit_code) == ([PositionOutcome.SET] * 2, "denied", 1)
    assert outcomes(stage.apply()) == [PositionOutcome.SET_EARLIER] * 2
    stage.cluster.put("g", "orders", 0, 15)
    assert outcomes(stage.apply()) == [PositionOutcome.RAN_ON, PositionOutcome.SET_EARLIER]


def test_a_topic_of_the_same_name_is_a_stranger(stage: Stage) -> None:
    wanted = stage.wanted()
    stage.apply(wanted)
    stage.cluster.create_topic("orders", "id-9")
    assert outcomes(stage.roll_back()) == [PositionOutcome.OTHER_TOPIC] * 2
    assert outcomes(stage.apply(wanted)) == [PositionOutcome.OTHER_TOPIC] * 2
    assert stage.offsets() == {}
    stage.cluster.put("g", "orders", 0, 2)
    assert outcomes(stage.apply()) == [PositionOutcome.SET] * 2  # its note is a new one
    stage.roll_back()
    assert stage.offsets() == {("orders", 0): 2}


def test_a_topic_that_is_created_again_meanwhile_gets_nothing(stage: Stage) -> None:
    fetches: list[object] = []

    def recreate(call: Call[Any]) -> None:
        if isinstance(call, OffsetFetchCall):
            fetches.append(call)
            stage.cluster.create_topic("orders", f"id-{len(fetches) + 5}")

    stage.cluster.after_call = recreate
    report = stage.apply()
    assert (outcomes(report), report.exit_code, stage.offsets()) == ([PositionOutcome.NOT_SET] * 2, 3, {})


def test_what_cannot_hold_positions_or_be_sent_is_named(stage: Stage) -> None:
    stage.cluster.kinds |= {"sink": "connect", "shared": "share", "app": "streams"}
    names = ("g", "", "sink", "shared", "app", "broken-\udc80")
    report = stage.apply({name: one for each in map(stage.wanted, names) for name, one in each.items()})
    said = {
        "sink": "group sink is one of kind 'connect' on the target",
        "shared": "group shared is one of kind 'share' on the target",
        "broken-\udc80": "group 'broken-\\udc80': its name is not UTF-8",
    }
    assert {one.group for one in report.groups if one.refusal} == said.keys()
    assert [name for name, text in said.items() if text not in of(report, name).refusal] == []
    assert report.exit_code == 3
    assert [outcomes(report, name) for name in ("g", "", "app")] == [[PositionOutcome.SET] * 2] * 3


def test_a_position_that_the_broker_refuses_is_named_and_the_others_are_set(stage: Stage) -> None:
    stage.cluster.refused["orders", 1] = Code.OFFSET_METADATA_TOO_LARGE
    report = stage.apply({**stage.wanted(), **stage.wanted("next", {("orders", 0): 1})})
    assert (outcomes(report), outcomes(report, "next")) == (
        [PositionOutcome.SET, PositionOutcome.NOT_SET],
        [PositionOutcome.SET],
    )
    assert "raise the brokers' offset.metadata.max.bytes" in str(of(report).error)
    stage.cluster.refused.clear()
    assert outcomes(stage.apply()) == [PositionOutcome.SET_EARLIER, PositionOutcome.SET]


def test_an_answer_that_is_lost_is_settled_by_reading(stage: Stage) -> None:
    lost: list[object] = []

    def lose(call: Call[Any]) -> None:
        if isinstance(call, OffsetCommitCall) and not lost:
            lost.append(call)
            raise KafkaTemporaryError("the connection broke")

    stage.cluster.after_call = lose
    report = stage.apply()
    assert (outcomes(report), of(report).error) == ([PositionOutcome.SET] * 2, None)
    assert len(lost) == 1


def test_brokers_that_fail_for_good_are_an_error_of_the_group(stage: Stage) -> None:
    def lose(call: Call[Any]) -> None:
        if isinstance(call, OffsetCommitCall) and call._group == "g":
            raise KafkaTemporaryError("the connection broke")

    stage.cluster.before_call = lose
    report = stage.apply({**stage.wanted(), **stage.wanted("next")})
    assert (outcomes(report), outcomes(report, "next")) == ([PositionOutcome.NOT_SET] * 2, [PositionOutcome.SET] * 2)
    assert (str(of(report).error), report.exit_code) == ("the connection broke", 4)


def test_a_rollback_of_nothing_is_a_mistake(stage: Stage) -> None:
    with pytest.raises(UsageError, match="no note below control/restores/r1/@groups/"):
        stage.roll_back()
    stage.apply()
    with pytest.raises(UsageError, match="that matches 'x'"):
        stage.roll_back(re.compile("x"))
    stage.cluster.cluster = "another"
    with pytest.raises(UsageError, match="on this cluster"):
        stage.roll_back()


# --- kills


class KilledError(BaseException):
    """The process is gone: nothing behind this runs."""


class Killer:
    """Ends a run before, or behind, its n-th effect: a request, or a put."""

    def __init__(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        self._left = -1
        self._stage = stage
        put = stage.store.put_if_absent

        def killing_put(key: str, body: Body, metadata: Mapping[str, str], *, kind: ObjectKind) -> str | None:
            self._count()
            found = put(key, body, metadata, kind=kind)
            self._count()
            return found

        monkeypatch.setattr(stage.store, "put_if_absent", killing_put)

    def _count(self, *_: object) -> None:
        self._left -= 1
        if self._left == 0:
            raise KilledError

    def runs(self, run: Callable[[], ApplicationReport]) -> Iterator[bool]:
        """Run again and again, killed one effect later each time; yields whether it was."""
        for number in range(1, 100):
            self._left = number
            self._stage.cluster.before_call = self._stage.cluster.after_call = self._count
            was_killed = False
            try:
                run()
            except KilledError:
                was_killed = True
            self._left = -1
            yield was_killed
            if not was_killed:
                return


def test_killed_at_each_effect_it_goes_on_and_comes_back(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    killer = Killer(stage, monkeypatch)
    before = {("orders", 0): 3, ("payments", 0): 4}
    wanted = stage.wanted(offsets={("orders", 0): 10, ("orders", 1): 20})
    after = {**before, ("orders", 0): 10, ("orders", 1): 20}
    kills = 0
    for (topic, partition), offset in before.items():
        stage.cluster.put("g", topic, partition, offset)
    for was_killed in killer.runs(lambda: stage.apply(wanted)):
        kills += was_killed
        assert stage.offsets() in (before, after)
        if stage.offsets() == after:
            assert stage.store.objects  # noted first
        report = stage.apply(wanted)
        assert (report.exit_code, stage.offsets()) == (0, after)
        assert stage.roll_back().exit_code == 0
        assert stage.offsets() == before
    assert kills > 15
    stage.apply(wanted)
    for was_killed in killer.runs(stage.roll_back):
        kills += was_killed
        assert stage.offsets()["orders", 0] in {3, 10}
        assert stage.roll_back().exit_code == 0
        assert stage.offsets() == before
        stage.apply(wanted)
    assert kills > 30


class Consumer:
    """Joins at any time, and reads on behind a note or a commit, whose answers it makes disappear, and between two runs.

    It does not come and go between a last look and the commit behind it: Kafka has no lock against that.
    """

    def __init__(self, stage: Stage, rng: random.Random) -> None:
        self._cluster = stage.cluster
        self._rng = rng
        self.reached: dict[tuple[str, int], int] = {}
        self._cluster.before_call = self._join
        self._cluster.after_call = self._follow

    def _join(self, _: Call[Any]) -> None:
        if self._rng.random() < 0.03:
            self._cluster.members.add("g")

    def _follow(self, call: Call[Any]) -> None:
        if isinstance(call, OffsetCommitCall | OffsetDeleteCall):
            self.read_on()
            if self._rng.random() < 0.3:
                raise KafkaTemporaryError("the connection broke")

    def read_on(self) -> None:
        """Read some of a partition, commit, and leave, perhaps."""
        if self._rng.random() < 0.4:
            place = ("orders", self._rng.randrange(2))
            now = self._cluster.positions.get("g", {}).get(place)
            self.reached[place] = (0 if now is None else now.offset) + self._rng.randrange(1, 5)
            self._cluster.put("g", *place, self.reached[place])
        if self._rng.random() < 0.8:
            self._cluster.members.discard("g")


@given(seed=st.integers(0, 2**32))
def test_no_running_consumer_is_moved_back(seed: int) -> None:
    rng = random.Random(seed)
    stage = Stage()
    consumer = Consumer(stage, rng)
    put = stage.store.put_if_absent

    def followed_put(key: str, body: Body, metadata: Mapping[str, str], *, kind: ObjectKind) -> str | None:
        found = put(key, body, metadata, kind=kind)
        consumer.read_on()
        return found

    stage.store.put_if_absent = followed_put  # type: ignore[method-assign]
    for _ in range(8):
        offsets = {("orders", 0): 100, ("orders", 1): rng.choice([200, 300])}
        if rng.random() < 0.6 or not stage.store.objects:
            stage.apply(stage.wanted(offsets=offsets))
        else:
            stage.roll_back()
        note = ApplicationNotes(stage.archive, "r1", "cluster").read()[0].get("g")
        for place, offset in consumer.reached.items():
            move = None if note is None else note.move(place, "id-1")
            if move is not None and move.stood == GroupPosition(offset=offset):
                continue  # the consumer was there before anything was applied
            assert stage.offsets()[place] == offset
        consumer.read_on()


class WholeGroup:
    """Says by itself what a group must stand at: it goes by the whole, from where it stood when it was first seen."""

    WANTED: Final = {("orders", 0): 100, ("orders", 1): 200}

    def __init__(self, rng: random.Random) -> None:
        self.stage, self.rng, self.is_sent = Stage(), rng, False
        self.first: Offsets | None = None
        for partition, choices in enumerate([(None, 5, 100), (None, 6, 200), (None, 7), (None, 8)]):
            self.put(partition, rng.choice(choices))

    def put(self, partition: int, offset: int | None) -> None:
        if offset is None:
            self.stage.cluster.positions.get("g", {}).pop(("orders", partition), None)
        else:
            self.stage.cluster.put("g", "orders", partition, offset, "m")

    def has_moved(self) -> bool:
        first, now = self.first or {}, self.stage.offsets()
        wanted = self.WANTED if self.is_sent else {}
        return any(
            now.get(place) not in {first.get(place), wanted.get(place, first.get(place))} for place in {*first, *now}
        )

    def expected(self, *, is_rollback: bool) -> Offsets:
        if self.first is None:
            self.first = dict(self.stage.offsets())
        is_left = "g" in self.stage.cluster.members or self.has_moved()
        if is_left or (is_rollback and not self.is_sent):
            return dict(self.stage.offsets())
        self.is_sent = True
        return self.first if is_rollback else {**self.first, **self.WANTED}

    def step(self) -> None:
        match self.rng.choice(["apply", "apply", "roll back", "join", "leave", "leave", "commit"]):
            case "apply":
                expected = self.expected(is_rollback=False)
                self.stage.apply(self.stage.wanted(offsets=self.WANTED))
                assert self.stage.offsets() == expected
            case "roll back" if self.stage.store.objects:
                expected = self.expected(is_rollback=True)
                self.stage.roll_back()
                assert self.stage.offsets() == expected
            case "join":
                self.stage.cluster.members.add("g")
            case "leave":
                self.stage.cluster.members.discard("g")
            case "commit" if self.rng.random() < 0.4:
                later = () if self.first is None else (100, 200, 300)  # behind where it is set: it may run on to there
                self.put(self.rng.randrange(4), self.rng.choice([None, 5, 6, 7, *later]))


@given(seed=st.integers(0, 2**32))
def test_a_group_is_set_and_set_back_as_a_whole(seed: int) -> None:
    group = WholeGroup(random.Random(seed))
    for _ in range(12):
        group.step()
