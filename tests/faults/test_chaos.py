"""The continuous backup under everything at once, from a seed: kills, zombies, restarts, a store in bad weather.

`--hypothesis-seed=N` replays the plan and the weather; only the machine's own timing is new.
"""

import random
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.support.brokers import Bucket, StartBroker
from tests.support.chaos.broken import BROKEN, make_overlay
from tests.support.chaos.director import Director
from tests.support.chaos.fleet import STOP_S
from tests.support.chaos.plan import LONG, QUICK, SHORT, Action, Form, Step, make_plan
from tests.support.chaos.scene import Scene, open_scene
from tests.support.chaos.verdict import Judgement, VerdictError
from tests.support.faulty_s3 import Fault, Weather
from tests.support.foreign_reader import Segment
from tests.support.java_oracle import JavaOracle
from tests.support.records import Rec

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.e2e]

LONG_S = 1800
SHORT_S = 360
# Nobody moves the commits, or that alone would tell on a build that trusts them. In exchange, more kills.
UNMOVED = Form(
    each_failpoint=1, actions={**SHORT.actions, Action.KILL: 6, Action.RESET_COMMITS: 0}, longest_pause_s=1.5
)
OpenScene = Callable[..., AbstractContextManager[Scene]]
protocols = pytest.mark.parametrize("protocol", ["classic", "consumer"])


@pytest.fixture
def scene_of(new_broker: StartBroker, bucket: Bucket, tmp_path: Path, java_oracle: JavaOracle, seed: int) -> OpenScene:
    return partial(open_scene, new_broker=new_broker, bucket=bucket, folder=tmp_path, oracle=java_oracle, seed=seed)


def run_chaos(scene: Scene, seed: int, form: Form) -> Judgement:
    """Every kind of fault happens, and the archive must be whole."""
    Director(scene, seed).run(make_plan(seed, form))
    scene.wait_every_fault()
    judgement = scene.settle_accounts()
    print(judgement, scene.traffic.tally, scene.weather.met)
    assert scene.fleet.kills >= form.kills
    return judgement


# --- the verdict itself


def segment(base: int, end: int, *offsets: int, holes: str = "") -> Segment:
    records = tuple(Rec(offset, 0, 0, b"k", b"%d" % offset) for offset in offsets)
    return Segment(key=f"{base}", partition=0, base=base, next=end, holes=holes, metadata={}, records=records)


KAFKA = segment(0, 8, 0, 1, 2, 4, 5, 7).records
FIRST, MIDDLE, LAST = segment(0, 2, 0, 1), segment(2, 5, 2, 4), segment(5, 8, 5, 7)


@pytest.mark.parametrize(
    ("segments", "fault"),
    [
        ([FIRST, MIDDLE, LAST], None),
        ([FIRST, MIDDLE, segment(2, 3, 2), LAST], None),  # shadowed
        ([FIRST, MIDDLE, segment(4, 8, 4, 5, 7)], None),  # overlaps: a zombie's
        ([FIRST, LAST], "offsets [2, 5) are in no segment"),
        ([FIRST, MIDDLE], "lost: 5, 7"),
        ([FIRST, segment(2, 5, 2), LAST], "lost: 4"),
        ([FIRST, segment(2, 5, 2, 3, 4), LAST], "records that Kafka does not show: 3"),
        ([FIRST, segment(2, 5, 2, 2, 4), LAST], "doubled: 2"),
        ([FIRST, segment(2, 5, 4, 2), LAST], "out of order: 2"),
        ([segment(0, 2, 0, 1, holes="0-0:expired"), MIDDLE, LAST], "a hole without a cause: 0: 0-0:expired"),
    ],
)
def test_the_verdict_tells(segments: list[Segment], fault: str | None) -> None:
    judgement = Judgement()
    judgement.add_partition("t-0", KAFKA, segments, compacted=False)
    assert judgement.faults == ([] if fault is None else [f"t-0: {fault}"])


def test_the_verdict_compares_every_byte() -> None:
    judgement = Judgement()
    other = replace(MIDDLE, records=(MIDDLE.records[0], replace(MIDDLE.records[1], value=None)))
    judgement.add_partition("t-0", KAFKA, [FIRST, other, LAST], compacted=False)
    assert judgement.faults == ["t-0: not the same record: 4"]


# --- everything at once


@pytest.mark.timeout(SHORT_S)
def test_chaos(scene_of: OpenScene, seed: int, pytestconfig: pytest.Config) -> None:
    with scene_of() as scene:
        run_chaos(scene, seed, SHORT if pytestconfig.getoption("--long") else QUICK)


@pytest.mark.long
@pytest.mark.timeout(LONG_S)
@protocols
def test_fifty_kills(scene_of: OpenScene, seed: int, protocol: str) -> None:
    assert LONG.kills == 50
    with scene_of(protocol=protocol) as scene:
        run_chaos(scene, seed, LONG)


@pytest.mark.long
@pytest.mark.timeout(LONG_S)
@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_build_is_caught(scene_of: OpenScene, seed: int, tmp_path: Path, broken: str) -> None:
    overlay = make_overlay(tmp_path / "overlay", BROKEN[broken])
    form = UNMOVED if broken == "commit before put" else SHORT
    with scene_of(overlay=overlay) as scene, pytest.raises(VerdictError) as caught:
        run_chaos(scene, seed, form)
    print(f"{broken}: {caught.value}")


# --- zombies


@pytest.mark.timeout(SHORT_S)
def test_a_zombie_does_no_harm(scene_of: OpenScene, seed: int) -> None:
    """In fair weather, so that nothing hides behind another repeat."""
    with scene_of() as scene:
        scene.weather.chances = {}
        Director(scene, seed).run([Step(Action.ZOMBIE, 0.5)])
        print(scene.settle_accounts())


# --- SIGTERM


def stop_under_load(scene: Scene, seed: int, times: int) -> None:
    rng = random.Random(f"{seed}-sigterm")
    for _ in range(times):
        member = scene.fleet.start()
        scene.fleet.wait_known(member)
        time.sleep(rng.uniform(0, 5))  # any moment
        took_s = scene.fleet.terminate(member)
        print(f"SIGTERM: {took_s:.2f} s")
        assert took_s < STOP_S


def stop_while_the_store_hangs(scene: Scene) -> None:
    member = scene.fleet.start()
    scene.fleet.wait_assigned(member)
    scene.wait_growth()
    with scene.proxy.failing(Fault.HANG, "PUT"):
        hung = scene.proxy.requests
        while not hung.get("PUT"):
            time.sleep(0.05)
        took_s = scene.fleet.terminate(member)
    assert took_s < STOP_S
    assert member.returncode == 4  # what it held is not known to be durable


def archive_the_rest(scene: Scene) -> Judgement:
    """One more member, which finds everything as the others left it."""
    scene.fleet.start()
    return scene.settle_accounts()


@pytest.mark.timeout(SHORT_S)
def test_sigterm_at_any_moment(scene_of: OpenScene, seed: int) -> None:
    with scene_of() as scene:
        stop_under_load(scene, seed, 1)
        stop_while_the_store_hangs(scene)
        archive_the_rest(scene)


@pytest.mark.long
@pytest.mark.timeout(LONG_S)
@protocols
def test_sigterm_at_twenty_moments(scene_of: OpenScene, seed: int, protocol: str) -> None:
    with scene_of(protocol=protocol) as scene:
        scene.proxy.set_weather(Weather(seed))
        stop_under_load(scene, seed, 20)
        scene.proxy.set_weather(None)
        stop_while_the_store_hangs(scene)
        archive_the_rest(scene)
