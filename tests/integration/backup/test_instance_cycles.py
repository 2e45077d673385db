"""Cycle after cycle of two instances, with writes flowing, that die and stand still: what is restored is what the broker has."""

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from tests.support.brokers import Broker
from tests.support.compacted_copies import generations_of, newest_entry
from tests.support.examples import EAGER_CLEANER
from tests.support.instances import (
    Changelog,
    Fleet,
    compacted_config,
    fill_oddly,
    holder,
    latest_given,
    latest_on,
    latest_restored,
    write,
)
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_topics import create_topic
from tests.support.processes import standing_still
from tests.support.round_trip import ArchiveSite
from tests.support.service import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(2400)]

PARTITIONS = 5  # 0 is written to, 1 is idle, 2 is empty, 3 ends in a marker, 4 is an application's changelog
PLACES = (
    "role.begin.decided", "role.begin.put", "role.switch.decided", "role.switch.put", "reading.opened", "reading.closed",
    "segment.closed", "segment.put", "position.counted", "moments.put", "clearing.decided", "clearing.looked",
    "clearing.deleted",
)  # fmt: skip
LENGTH, DELAY = "log.backup.length.days", "clear.delay"
NEVER_DUE: dict[str, Any] = {LENGTH: 1, DELAY: "1h"}
IS_DUE: dict[str, Any] = {LENGTH: 1e-6}  # whoever has this begins as soon as it runs


class Ground(NamedTuple):
    """One compacted topic under both instances."""

    site: ArchiveSite
    bootstrap: str
    topic: str
    oracle: JavaOracle
    fleet: Fleet

    def write(self, dice: random.Random, round_: object) -> None:
        values: dict[str, str | None] = {f"k{dice.randint(0, 300)}": f"{round_} {number}" for number in range(200)}
        write(self.bootstrap, self.topic, values)
        write(self.bootstrap, self.topic, {f"k{dice.randint(0, 300)}": None for _ in range(30)})

    def switches(self) -> dict[int, int]:
        """Partition -> the number of the entry that made its holder one; -1: there is none."""
        found: dict[int, int] = {}
        for number in range(PARTITIONS):
            entry = newest_entry(self.site.bucket, self.topic, number)
            found[number] = -1 if entry is None or entry.switched is None else entry.switched
        return found

    def until_all_have_switched(self, before: dict[int, int]) -> None:
        def all_have_switched() -> bool:
            self.fleet.see_to()
            return all(switched > before[number] for number, switched in self.switches().items())

        eventually(all_have_switched, "not all have switched", timeout_s=150, every_s=0.5)

    def until_all_is_given(self, *, sees_to: bool = True) -> None:
        """Nothing is written meanwhile, but for a marker: brokers write it after they answered a transaction's end."""

        def all_is_given() -> bool:
            if sees_to:
                self.fleet.see_to()
            expected = latest_on(self.oracle, self.bootstrap, self.topic, PARTITIONS)
            return latest_given(self.site, self.topic, PARTITIONS) == expected

        eventually(all_is_given, "other records are given", timeout_s=100, every_s=0.8)

    def check(self, when: str) -> None:
        """What is restored now is what the broker has: the newest value of each key, and none that was deleted."""
        expected = latest_on(self.oracle, self.bootstrap, self.topic, PARTITIONS)
        target = f"{self.topic}.{when}"
        found = latest_restored(self.site, self.oracle, self.bootstrap, self.topic, target)
        assert found == expected, when
        assert set(expected[3]) == {b"kept"}


@contextmanager
def instances_of(
    broker: Broker,
    site: ArchiveSite,
    topic: str,
    oracle: JavaOracle,
    **compacted: Any,  # noqa: ANN401 - as in `compacted_config`
) -> Iterator[Ground]:
    bootstrap = broker.bootstrap
    create_topic(bootstrap, topic, PARTITIONS, EAGER_CLEANER)
    fill_oddly(bootstrap, topic)
    config = compacted_config(site, bootstrap, topic, **compacted)
    config["backup"] |= {"session-timeout": "3s"}
    with Fleet(site, config) as fleet:
        yield Ground(site, bootstrap, topic, oracle, fleet)


def disturb(fleet: Fleet, dice: random.Random) -> str:
    """Have one process die or stop at a place that it reaches, or at once. Returns what was done."""
    name = dice.choice(["a", "b"])
    match dice.choice(["kill", "place", "place", "stop", "stop", "stop", "still"]):
        case "kill":
            fleet.kill(name)
            return f"{name} is killed"
        case "still":
            with standing_still(fleet.running[name].process.pid):
                time.sleep(dice.uniform(1, 8))
            fleet.stops += 1
            return f"{name} stood still"
        case how:
            place = f"{dice.choice(PLACES)}:{dice.randint(1, 3)}{':stop' if how == 'stop' else ''}"
            fleet.kill(name)
            fleet.start(name, place)
            return f"{name} goes to {place}"


@pytest.mark.parametrize("cycles", [1, pytest.param(10, marks=pytest.mark.long)])
def test_cycles_with_deaths(
    broker: Broker, site: ArchiveSite, topic: str, java_oracle: JavaOracle, seed: int, cycles: int
) -> None:
    """After each cycle, a restore comes to what the broker has."""
    dice = random.Random(seed)
    with (
        instances_of(broker, site, topic, java_oracle, turn_s=4.0) as ground,
        Changelog(ground.bootstrap, topic, 4, str(seed)) as changelog,
    ):
        fleet = ground.fleet
        for name in "ab":
            fleet.start(name)
        for cycle in range(cycles):
            before = ground.switches()
            ground.write(dice, cycle)
            print(f"cycle {cycle}: {disturb(fleet, dice)}")
            ground.until_all_have_switched(before)
            with changelog.quiet():
                ground.until_all_is_given()
                ground.check(f"cycle-{cycle}")
        print(
            f"{fleet.deaths} deaths, {fleet.stops} stops; {changelog.committed} committed, {changelog.aborted} aborted"
        )
    assert changelog.committed > 0
    assert changelog.aborted > 0


@pytest.mark.parametrize("cycles", [1, pytest.param(10, marks=pytest.mark.long)])
def test_a_restore_in_the_middle_of_each_phase(
    broker_41: Broker, site: ArchiveSite, topic: str, java_oracle: JavaOracle, seed: int, cycles: int
) -> None:
    """One instance stands at a place within the phase; then it goes on, or dies. Turns are over when this test says so."""
    dice = random.Random(seed)
    with (
        instances_of(broker_41, site, topic, java_oracle, takeover="1h", **NEVER_DUE) as ground,
        Changelog(ground.bootstrap, topic, 4, str(seed)) as changelog,
    ):
        fleet = ground.fleet
        for name in "ab":
            fleet.start(name)
        ground.until_all_have_switched(dict.fromkeys(range(PARTITIONS), -1))
        for cycle in range(cycles):
            one, other = "ab"[cycle % 2], "ba"[cycle % 2]
            assert holder(site, topic).startswith(one)
            if cycle:  # it clears at once
                fleet.start_again(one)
            ground.write(dice, cycle)
            with changelog.quiet():
                ground.until_all_is_given()
                ground.check(f"{cycle}-alone")
            before = ground.switches()
            catch_up(ground, changelog, dice, other, cycle)
            switch(ground, changelog, dice, other, cycle, before)
            clear(ground, changelog, dice, other, cycle)
            ground.write(dice, f"{cycle} after")
            with changelog.quiet():
                ground.until_all_is_given()
                ground.check(f"{cycle}-after")
        print(
            f"{fleet.deaths} deaths, {fleet.stops} stops; {changelog.committed} committed, {changelog.aborted} aborted"
        )


def catch_up(ground: Ground, changelog: Changelog, dice: random.Random, other: str, cycle: int) -> None:
    """A part of the next copy is there, and the first instance goes on with its own."""
    ground.fleet.start_again(other, "segment.put:1:stop", **IS_DUE)
    ground.fleet.until_standing(other)
    ground.write(dice, f"{cycle} catch-up")
    with changelog.quiet():
        ground.until_all_is_given(sees_to=False)
        assert any(is_being_filled(ground, number, other) for number in range(PARTITIONS))
        ground.check(f"{cycle}-catch-up")
    ground.fleet.kill(other)  # awake, it would take over at once


def is_being_filled(ground: Ground, number: int, name: str) -> bool:
    """There are objects of a copy that does not hold yet."""
    held = holder(ground.site, ground.topic, number)
    return any(one.startswith(name) and one != held for one in generations_of(ground.site.bucket, ground.topic, number))


def end_the_stop(fleet: Fleet, dice: random.Random, name: str) -> None:
    if dice.random() < 0.5:
        fleet.wake(name)
        time.sleep(dice.uniform(0, 0.3))
    fleet.kill(name)


def switch(
    ground: Ground, changelog: Changelog, dice: random.Random, other: str, cycle: int, before: dict[int, int]
) -> None:
    """The next copy holds, of one partition at least; the former one stands."""
    with changelog.quiet():
        ground.until_all_is_given(sees_to=False)
        ground.fleet.start(other, "role.switch.put:1:stop", **IS_DUE)
        ground.fleet.until_standing(other)
        switched = [number for number, at in ground.switches().items() if at > before[number]]
        assert switched != []
        assert all(
            len(generations_of(ground.site.bucket, ground.topic, number)) > 1 for number in switched if number != 2
        )
        ground.check(f"{cycle}-switched")
        end_the_stop(ground.fleet, dice, other)
    ground.fleet.start(other, **IS_DUE)
    ground.until_all_have_switched(before)


def clear(ground: Ground, changelog: Changelog, dice: random.Random, other: str, cycle: int) -> None:
    """Of one partition, the former copy is deleted; of others it stands."""
    with changelog.quiet():
        ground.until_all_is_given()
        ground.fleet.start_again(other, "clearing.deleted:1:stop", **{DELAY: "1s"})
        ground.fleet.until_standing(other)
        ground.check(f"{cycle}-clearing")
        end_the_stop(ground.fleet, dice, other)
    ground.fleet.start(other, **{DELAY: "1s"})

    def is_cleared() -> bool:
        copies = [generations_of(ground.site.bucket, ground.topic, number) for number in range(PARTITIONS)]
        return all(len(found) <= 1 for found in copies)

    eventually(is_cleared, "former copies stay", every_s=0.5)
