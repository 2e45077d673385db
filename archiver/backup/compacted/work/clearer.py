"""Clears former copies regularly, for the partitions that this process is active for. Used by the instance service."""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Final

from archiver.archive.copies.copy_catalog import CopyCatalog
from archiver.archive.copies.roles import RolePlace
from archiver.archive.format.handle import Archive
from archiver.archive.notes.topics import TopicFact
from archiver.backup.compacted.clearing.clearing_rules import ClearingRules, LogBounds
from archiver.backup.compacted.clearing.clearing_run import ClearingReport, clear_copies
from archiver.backup.compacted.clearing.clearing_survey import ClearingSurvey
from archiver.backup.compacted.clearing.live_logs import ask_logs
from archiver.backup.compacted.work.instance_metrics import (
    CLEARED_BYTES,
    CLEARED_OBJECTS,
    CLEARING_FAILURES,
    InstanceMetrics,
)
from archiver.config.model import CompactedConfig
from archiver.kafka.brokers.client import KafkaClient
from archiver.process.output.text import spell_count, spell_size
from archiver.process.running.workers import Workers

log = logging.getLogger(__name__)

_ASK_S: Final = 60.0
_LONGEST_PAUSE_S: Final = 600.0


class Clearer:
    """`clear` makes one pass. It remembers facts of objects, and logged messages."""

    def __init__(
        self,
        archive: Archive,
        client: KafkaClient,
        config: CompactedConfig,
        *,
        pin_ms: int,
        catalog: CopyCatalog,
        facts: Callable[[], Mapping[str, TopicFact]],
        counts: InstanceMetrics,
    ) -> None:
        loop = asyncio.get_running_loop()

        def ask(places: Collection[RolePlace]) -> Mapping[RolePlace, LogBounds]:
            asking = ask_logs(client, facts(), places)
            return asyncio.run_coroutine_threadsafe(asking, loop).result(_ASK_S)

        rules = ClearingRules(delay_ms=config.clear_delay_ms, keep_generations=config.keep_generations)
        self._survey = ClearingSurvey(archive, rules, pin_ms, ask, catalog=catalog)
        self._worker = Workers(1, "clearer")
        self._told: Collection[str] = ()
        self._counts = counts
        self.pause_s = max(config.interval_ms / 1000, min(config.clear_delay_ms / 4000, _LONGEST_PAUSE_S))

    async def clear(self, places: Collection[RolePlace], now_ms: int, goes_on: Callable[[], bool]) -> ClearingReport:
        report = await self._worker.call(clear_copies, self._survey, places, now_ms, goes_on)
        for one in report.cleared:
            self._counts.add(CLEARED_OBJECTS, one.place.topic, by=one.objects)
            self._counts.add(CLEARED_BYTES, one.place.topic, by=one.bytes)
        self._counts.add(CLEARING_FAILURES, by=len(report.failures))
        self._tell(report)
        return report

    def _tell(self, report: ClearingReport) -> None:
        for one in report.cleared:
            what = "%s: generation %s is read no more: %s of %s deleted"
            log.info(what, one.place.stream, one.generation, spell_count(one.objects, "object"), spell_size(one.bytes))
        alarms = [
            f"{place.stream}: no copy is cleared: {why}" for place, found in report.alarms.items() for why in found
        ]
        alarms += report.refused
        for alarm in alarms:
            if alarm not in self._told:
                log.warning("%s", alarm)
        self._told = frozenset(alarms)
