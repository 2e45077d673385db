"""The state in storage for metrics: each process reads the status of its partitions now and then."""

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Collection
from typing import Final

from archiver.archive.handle import Archive
from archiver.archive.roles import RolePlace
from archiver.backup.compacted.alarms import AlarmKind, alarms_in
from archiver.backup.compacted.instance_metrics import NOTHING_SEEN, Standing
from archiver.backup.compacted.service import InstanceService
from archiver.backup.compacted.status import CompactedStatus, StatusReader
from archiver.backup.compacted.turn import Role
from archiver.config.model import ArchiverConfig
from archiver.process.defects import as_ours
from archiver.process.workers import Workers

log = logging.getLogger(__name__)

_INTERVALS: Final = 5  # of compacted.interval: it lists all copies, and reads each newest entry


class StandingWatch:
    """`standing` may be read from any thread."""

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
) -> Standing:
    """Sum up by topic. The process adds what only it knows: damage that it found, logs that it asked about."""
    told = {(alarm.place, alarm.kind) for alarm in alarms_in(status) if alarm.place in held or alarm.place is None}
    told |= {(turn.place, AlarmKind.DAMAGED) for turn in service.turns.values() if turn.holder_watch.problem}
    told |= {(place, AlarmKind.IN_QUESTION) for place in service.in_question if place in active}
    generations: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for one in status.partitions:
        if one.place in active:
            generations[one.place.topic] += len(one.generations)
            sizes[one.place.topic] += sum(found.bytes for found in one.generations)
    alarms = Counter(("" if place is None else place.topic, kind) for place, kind in told)
    return Standing(generations=generations, bytes=sizes, alarms=alarms)
