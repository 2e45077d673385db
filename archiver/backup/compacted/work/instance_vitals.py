"""Reads the state of an instance's process for metrics and health checks: roles, progress, problems by partition."""

import asyncio
import re
from collections import Counter
from collections.abc import Collection, Coroutine, Iterator
from dataclasses import replace
from typing import Final

from archiver.archive.copies.roles import RolePlace
from archiver.archive.format.handle import Archive
from archiver.archive.format.store_clock import since_boot_s
from archiver.backup.compacted.clearing.alarms import AlarmKind, alarms_in
from archiver.backup.compacted.clearing.status import CompactedStatus, StatusReader
from archiver.backup.compacted.turn.turn_decisions import Role
from archiver.backup.compacted.work.instance_metrics import NOTHING_SEEN, CopyCounts
from archiver.backup.compacted.work.instance_service import InstanceService
from archiver.backup.compacted.work.partition_turn import PartitionTurn
from archiver.backup.partition.feed import LASTING_FAILURE_S
from archiver.backup.partition.open_transactions import watch_transactions
from archiver.backup.reports.metrics import PartitionState
from archiver.backup.service.vitals import WorkerVitals, state_of_feed, state_of_left
from archiver.config.model import ArchiverConfig
from archiver.kafka.brokers.client import KafkaClient
from archiver.process.output.defects import as_ours
from archiver.process.output.text import spell_count
from archiver.process.running.workers import Workers

_INTERVALS: Final = 5  # of compacted.interval: it lists all copies, and reads each newest entry


class InstanceVitals(WorkerVitals[InstanceService]):
    """Reads the state of an instance's process."""

    def __init__(self, config: ArchiverConfig) -> None:
        super().__init__(since_boot_s)  # the clock of the service's feeds
        self._watch = StandingWatch(config)

    # --- called from the endpoint's threads

    def states(self) -> Iterator[PartitionState]:
        """Yield the progress of each partition as a backup does: by the current copy."""
        if self._service is None:
            return
        now_s, turns = self._clock(), dict(self._service.turns)
        for turn in turns.values():
            yield self._state_of(turn, now_s)
        out_s = self._service.membership.shut_out_s
        if out_s >= LASTING_FAILURE_S:  # the owner of the others is unknown
            for name, topic in dict(self._service.topics.described).items():
                for number in topic.partitions:
                    if (name, number) not in turns:
                        yield replace(
                            state_of_left((name, number), 0), is_failing=True, is_left=False, pending_since_s=out_s
                        )

    def _state_of(self, turn: PartitionTurn, now_s: float) -> PartitionState:
        which, readings = (turn.source.topic, turn.source.partition), dict(turn.readings)
        retention_ms, failing_since_s = turn.retention_ms, turn.failing_since_s
        fed = [state_of_feed(reading.feed, now_s, retention_ms) for reading in readings.values()]
        is_failing = failing_since_s is not None or any(state.is_failing for state in fed)
        transactions = next((state.open_transactions for state in fed if state.open_transactions), ())
        holds = turn.turn.holds
        if holds is None:
            state = state_of_left(which, 0)
        elif holds in readings:
            state = state_of_feed(readings[holds].feed, now_s, retention_ms)
        else:  # it is being opened, or opening fails
            pending_s = None if failing_since_s is None else now_s - failing_since_s
            state = replace(
                state_of_left(which, 0), is_left=False, pending_since_s=pending_s, retention_ms=retention_ms
            )
        return replace(state, is_failing=is_failing, open_transactions=transactions)

    def turns(self) -> Collection[PartitionTurn]:
        return () if self._service is None else dict(self._service.turns).values()

    def standing(self) -> CopyCounts:
        return NOTHING_SEEN if self._service is None else self._watch.standing

    def next_turn_ms(self) -> int | None:
        """Return when the next copy is due, by the last surveys; None: unknown."""
        return min((turn.due_ms for turn in self.turns() if turn.due_ms is not None), default=None)

    def spell_roles(self) -> str:
        """Spell the roles of the process in its partitions, for people."""
        roles = Counter(turn.turn.role for turn in self.turns())
        told = ", ".join(f"{role.value} for {roles[role]}" for role in reversed(Role) if roles[role])
        return f"{spell_count(roles.total(), 'partition')}: {told}" if told else spell_count(0, "partition")

    # --- on the loop

    def watch(self, client: KafkaClient) -> list[Coroutine[None, None, None]]:
        if self._service is None:
            raise RuntimeError("there is no service to watch")
        pumps = self._service.pumps
        return [
            self._watch.run(self._service),
            *(watch_transactions(client, pump.feeds, clock=self._clock, clock_ms=self.clock_ms) for pump in pumps),
        ]


class StandingWatch:
    """Reads the status of this process's partitions regularly, from storage. `standing` may be read from any thread."""

    def __init__(self, config: ArchiverConfig) -> None:
        self._config = config
        self._pause_s = _INTERVALS * config.compacted.interval_ms / 1000
        self._worker = Workers(1, "standing")
        self.standing = NOTHING_SEEN

    async def run(self, service: InstanceService) -> None:
        while True:
            await asyncio.sleep(self._pause_s)
            held = frozenset(turn.place for turn in service.turns.values())
            active = frozenset(turn.place for turn in service.turns.values() if turn.turn.role is Role.ACTIVE)
            try:
                status = await self._worker.call(self._read, service.archive, service.now_ms(), held)
            except Exception as error:  # noqa: BLE001 - no instance stops because of what metrics show
                failure = as_ours(error, "status")
                line = f"{failure}; how copies stand is read again in {self._pause_s:.0f} s"
                service.troubles.note(failure, line, "status", stops_puts=False)
                continue
            service.troubles.note_works("status")
            self.standing = _standing(status, held, active, service)

    def _read(self, archive: Archive, now_ms: int, places: Collection[RolePlace]) -> CompactedStatus:
        names = re.compile("|".join(re.escape(name) for name in sorted({place.topic for place in places})))
        return StatusReader(archive, self._config, now_ms, asks_objects=False).read(names)


def _standing(
    status: CompactedStatus, held: Collection[RolePlace], active: Collection[RolePlace], service: InstanceService
) -> CopyCounts:
    """Sum up by topic. The process adds its own findings: damage, and log bounds."""
    told = {(alarm.place, alarm.kind) for alarm in alarms_in(status) if alarm.place in held or alarm.place is None}
    told |= {(turn.place, AlarmKind.DAMAGED) for turn in service.turns.values() if turn.current_copy_check.problem}
    told |= {(place, AlarmKind.IN_QUESTION) for place in service.in_question if place in active}
    generations: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for one in status.partitions:
        if one.place in active:
            generations[one.place.topic] += len(one.generations)
            sizes[one.place.topic] += sum(found.bytes for found in one.generations)
    alarms = Counter(("" if place is None else place.topic, kind) for place, kind in told)
    return CopyCounts(generations=generations, bytes=sizes, alarms=alarms)
