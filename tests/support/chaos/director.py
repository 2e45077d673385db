"""Carries a plan out, step by step. Soon after each step two members are alive, and the archive grows again."""

import random
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from tests.support.chaos.archive import segment_key
from tests.support.chaos.fleet import Member, MemberError
from tests.support.chaos.group import Partition
from tests.support.chaos.plan import AT_REVOCATION, AT_STOP, Action, Step, plan_text
from tests.support.chaos.scene import Scene
from tests.support.chaos.traffic import Style, Topic
from tests.support.service import eventually

_MEMBERS = 2
_MOVED_S = 240.0  # of two busy cores, on which others start clusters
_REVOCATION_S = 6.0  # a member joins, and the armed one has to give something up
_NEW_SEGMENTS = 2  # the second one lets the first be swept


class Director:
    """One run."""

    def __init__(self, scene: Scene, seed: int) -> None:
        self._scene = scene
        self._rng = random.Random(f"{seed}-director")
        self._new_topics = 0

    def run(self, plan: list[Step]) -> None:
        """A failure tells the plan and the step."""
        self._scene.fleet.keep(_MEMBERS)
        self._scene.fleet.wait_settled()
        self._scene.proxy.set_weather(self._scene.weather)
        for number, step in enumerate(plan, 1):
            try:
                self._take(step)
            except BaseException as error:
                error.add_note(f"in step {number} of the plan:\n{plan_text(plan)}")
                raise

    def _take(self, step: Step) -> None:
        begun = time.monotonic()
        time.sleep(step.pause_s)  # a moment that nobody chose
        self._actions()[step.action](step)
        self._scene.fleet.check()
        self._scene.traffic.check()
        self._scene.fleet.keep(_MEMBERS)
        print(f"{step}: {time.monotonic() - begun:.1f} s")

    def _actions(self) -> Mapping[Action, Callable[[Step], None]]:
        return {
            Action.KILL_AT: self._kill_at,
            Action.KILL: self._kill,
            Action.JOIN: self._join,
            Action.LEAVE: self._leave,
            Action.ZOMBIE: self._zombie,
            Action.SWEPT_ZOMBIE: self._swept_zombie,
            Action.RESTART_BROKER: self._restart_broker,
            Action.KILL_BROKER: self._kill_broker,
            Action.RESET_COMMITS: self._reset_commits,
            Action.ADD_PARTITION: self._add_partition,
            Action.NEW_TOPIC: self._new_topic,
        }

    def _any_member(self) -> Member:
        return self._rng.choice(self._scene.fleet.live)

    # --- members

    def _kill_at(self, step: Step) -> None:
        fleet = self._scene.fleet
        member = fleet.start(failpoint=step.detail)
        name = step.detail.partition(":")[0]
        member.ended_by_us = True  # from now on at any moment
        if name == AT_REVOCATION:
            fleet.wait_assigned(member)
            self._provoke_revocation(member)
        if name == AT_STOP:
            fleet.wait_assigned(member)
            self._scene.wait_growth()
            fleet.interrupt(member)
        fleet.wait_killed(member)

    def _provoke_revocation(self, member: Member) -> None:
        """Members join until this one has to give something up."""
        for _ in range(3):
            self._scene.fleet.start()
            with suppress(MemberError):
                member.wait(_REVOCATION_S)
                return

    def _kill(self, _: Step) -> None:
        self._scene.fleet.kill(self._any_member())

    def _join(self, _: Step) -> None:
        self._scene.fleet.wait_assigned(self._scene.fleet.start())

    def _leave(self, _: Step) -> None:
        self._scene.fleet.terminate(self._any_member())

    def _zombie(self, _: Step) -> None:
        member, partitions = self._any_assigned_member()
        self._scene.fleet.freeze(member)
        self._move_on_without(member, partitions)
        self._wake(member)

    def _swept_zombie(self, _: Step) -> None:
        member, partitions = self._any_assigned_member()
        keys = self._freeze_with_records(member, partitions)
        self._move_on_without(member, partitions)
        self._sweep_all(partitions, keys)
        self._wake(member)

    def _any_assigned_member(self) -> tuple[Member, frozenset[Partition]]:
        member = self._any_member()
        self._scene.fleet.wait_assigned(member)
        return member, self._scene.cluster.partitions_of(member.name)

    def _freeze_with_records(self, member: Member, partitions: frozenset[Partition]) -> set[str]:
        """Stop a member that holds records, while no put of it is under way. The keys that it is about to write."""
        fleet, watched = self._scene.fleet, self._scene.watched
        keys: set[str] = set()

        def is_holding() -> bool:
            fleet.check()
            fleet.freeze(member)
            bases = member.held_bases()
            ends = {partition: watched.end(partition) for partition in partitions} if bases else {}
            keys.update(segment_key(partition, end) for partition, end in ends.items() if (partition[1], end) in bases)
            if not keys:
                fleet.thaw(member)
            return bool(keys)

        eventually(is_holding, f"{member.name} holds records, and puts nothing")
        return keys

    def _move_on_without(self, member: Member, partitions: frozenset[Partition]) -> None:
        """Until the others have all that a stopped member had, and are ahead of it."""
        fleet, watched = self._scene.fleet, self._scene.watched
        before = {partition: len(watched.keys(partition)) for partition in partitions}
        if len(fleet.live) == 1:
            fleet.start()

        def has_moved() -> bool:
            fleet.check()
            grown = [len(watched.keys(one)) >= before[one] + _NEW_SEGMENTS for one in partitions]
            return all(grown) and not self._scene.cluster.partitions_of(member.name)

        eventually(has_moved, f"what {member.name} had goes on without it: {sorted(partitions)}", _MOVED_S)

    def _sweep_all(self, partitions: frozenset[Partition], keys: set[str]) -> None:
        """Sweep partitions until these keys are gone."""
        left = set(keys)

        def are_gone() -> bool:
            for partition in sorted(partitions):
                left.difference_update(self._scene.watched.sweep(partition))
            return not left

        eventually(are_gone, f"these are swept: {sorted(keys)}", _MOVED_S)

    def _wake(self, member: Member) -> None:
        """It goes on as if nothing had happened."""
        self._scene.fleet.thaw(member)
        self._scene.fleet.wait_assigned(member)
        self._scene.wait_growth()

    # --- the cluster

    def _restart_broker(self, _: Step) -> None:
        self._scene.broker.restart()
        self._scene.wait_growth()

    def _kill_broker(self, _: Step) -> None:
        self._scene.broker.kill()
        self._scene.broker.start()
        self._scene.wait_growth()

    def _reset_commits(self, _: Step) -> None:
        """The commit is a hint. It is set ahead of everything or back to the beginning, and its metadata lie."""
        scene = self._scene
        scene.fleet.terminate_all()
        eventually(lambda: scene.cluster.view().is_empty, "the group is empty")
        ends = scene.cluster.ends({topic.name: topic.partitions for topic in scene.traffic.topics})
        hints = scene.cluster.committed_metadata()
        for partition, end in ends.items():
            offset = self._rng.choice((0, end))
            told = (hints.get(partition, ""), "", "base=0", f"base={end}", "base=nonsense", "no hint of ours")
            scene.cluster.commit(partition, offset, self._rng.choice(told))
        scene.fleet.keep(_MEMBERS)
        scene.wait_growth()

    def _add_partition(self, _: Step) -> None:
        topic = self._rng.choice(self._scene.traffic.topics)
        self._scene.traffic.add_partition(topic)
        self._wait_archived((topic.name, topic.partitions - 1))

    def _new_topic(self, _: Step) -> None:
        self._new_topics += 1
        style = self._rng.choice([Style.PLAIN, Style.TRANSACTIONAL])
        topic = Topic(f"chaos-new-{self._new_topics}", style, 1, rate=100)
        self._scene.traffic.add(topic)
        self._wait_archived((topic.name, 0))

    def _wait_archived(self, partition: Partition) -> None:
        def is_archived() -> bool:
            self._scene.fleet.check()
            return bool(self._scene.watched.keys(partition))

        eventually(is_archived, f"{partition} is archived", _MOVED_S)
