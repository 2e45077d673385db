"""Runs `drill`: restores a sample into scratch topics, compares it with the archive, and deletes the topics.

1. Remove what killed drills have left. Then note the names of the scratch topics, before any is created.
2. Restore, as `restore` does: it creates the topics, notes their ids (in its plans), fills them and reads them back.
3. Read the objects of the sample again, and compare each record with the facts. Compare translated positions of groups.
4. Delete the topics by their noted ids, then the notes of the restore, then the drill's own note.
"""

import asyncio
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import islice
from typing import Any, Final

from archiver import __version__
from archiver.archive.format.control import RESTORES
from archiver.archive.format.handle import Archive, open_patient_archive
from archiver.archive.format.store_clock import machine_now_ms
from archiver.archive.notes.drills import SCRATCH, DrillNote, drill_prefix, new_drill_id, put_drill, read_drills
from archiver.archive.notes.restore_streams import list_restore_notes, read_each, required
from archiver.archive.reading.catalog import is_wanted, read_archive, topic_names
from archiver.archive.reading.reader import read_parts
from archiver.archive.restores.finished_restores import PLAN, TargetIds, target_ids
from archiver.archive.segments.partition_segments import Segment
from archiver.archive.segments.parts import ObjectPart
from archiver.archive.segments.segment_facts import SegmentFacts
from archiver.codec.frame import Column
from archiver.codec.selection import FIRST_LONG, LAST_LONG, TopicSelection
from archiver.codec.tally import Tally
from archiver.config.model import ArchiverConfig, TargetConfig
from archiver.errors import ArchiverError, NotWholeError, UsageError
from archiver.groups.positions.shown import PositionFilter
from archiver.groups.target.translation import Kind, Remark, TranslatedPosition
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.client_thread import ClientThread
from archiver.kafka.login.settings import KafkaSettings
from archiver.kafka.records.log_reader import LogRange, read_log
from archiver.kafka.topics.deletion import delete_topics_by_id
from archiver.kafka.topics.rights import Operation, missing_rights
from archiver.process.output.defects import as_ours
from archiver.process.output.text import spell_name
from archiver.process.running.failpoints import reach
from archiver.restore.groups.group_restore import GroupRequest, read_group_plan, read_positions
from archiver.restore.plan.request import RestoreRequest
from archiver.restore.plan.task import CREATE_TIME
from archiver.restore.report.restore_report import Nothing, RestoreResult, TopicReport
from archiver.restore.targets.target_survey import offsets_of
from archiver.spark.restore import run_restore_job
from archiver.spark.session.background_start import check_spark, spark_in_background
from archiver.upkeep.object_check import Level, check_tasks, run_check

log = logging.getLogger(__name__)

_MOST_COMPARED: Final = 20  # positions of groups, each by the records on both sides
_ANY: Final = re.compile(".*", re.DOTALL)
# Nothing may expire, or be compacted, while it is compared.
_CONFIGS: Final = {"cleanup.policy": "delete", "remote.storage.enable": ""}


@dataclass(slots=True)
class Drill:
    """A drill and its results; `problems`: exit codes by message. `report`: the signed values."""

    drill: str  # its id, also that of its restore
    begun_ms: int
    from_ms: int | None  # None: all records
    archive: str  # its address
    target_cluster_id: str = ""
    rto_ms: int = 0
    topics: dict[str, dict[str, Any]] = field(default_factory=dict)
    objects: int = 0
    groups: dict[str, int] | None = None  # None: no positions are archived
    problems: dict[str, int] = field(default_factory=dict)

    def complain(self, problem: object, exit_code: int = NotWholeError.exit_code) -> None:
        self.problems.setdefault(str(problem), exit_code)

    def complain_of(self, error: ArchiverError) -> None:
        for line in error.lines:
            self.complain(line, error.exit_code)

    @property
    def exit_code(self) -> int:
        return max(self.problems.values(), default=0)

    @property
    def rpo_ms(self) -> int | None:
        """The age of the newest archived record of the topic that is furthest behind; None: unknown."""
        newest = [one["newest_ms"] for one in self.topics.values() if one["records"]]
        return None if not newest or None in newest else max(0, self.begun_ms - min(newest))

    @property
    def report(self) -> dict[str, Any]:
        own = {one.name: getattr(self, one.name) for one in fields(self)}
        own |= {"rpo_ms": self.rpo_ms, "problems": list(self.problems), "passed": not self.problems}
        return {"format": 1, "version": __version__, **own}


def run_drill(
    config: ArchiverConfig,
    target: TargetConfig,
    *,
    topics: str | None = None,
    last_ms: int | None = None,
    notice: Callable[[str], None] = lambda _: None,
) -> Drill:
    """Carry out a drill. Raises an error only if it could not begin; later ones are in its problems."""
    check_spark("drill")
    archive = open_patient_archive(config.storage)
    begun_ms, drill_id = machine_now_ms(), new_drill_id()
    drill = Drill(drill_id, begun_ms, None if last_ms is None else begun_ms - last_ms, config.storage.url)
    chosen = [name for name in sorted(topic_names(archive)) if not name.startswith("__") and is_wanted(name, topics)]
    if not chosen:
        raise UsageError(f"no archived topic matches {topics or 'anything'}; `archiver ls` shows what there is")
    scratch = {name: f"{SCRATCH}{drill_id.removeprefix('drill-')}-{number}" for number, name in enumerate(chosen)}
    with ClientThread(KafkaSettings.of(target)) as brokers:
        drill.target_cluster_id = brokers.ask(KafkaClient.cluster_id)
        for earlier, note in read_drills(archive).items():
            if note.target_cluster_id == drill.target_cluster_id:
                notice(f"removing what drill {earlier} has left")
                _remove(archive, brokers, earlier, note)
            else:
                log.warning(
                    "drill %s has not ended: a drill into cluster %s removes it", earlier, note.target_cluster_id
                )
        scratch_rights = dict.fromkeys(scratch.values(), (Operation.DELETE,))
        if brokers.ask(lambda client: missing_rights(client, scratch_rights)):
            raise UsageError(
                f"scratch topics could not be deleted: grant this user Delete on topics with the prefix {SCRATCH}"
            )
        own = DrillNote(target_cluster_id=drill.target_cluster_id, scratch=scratch)
        put_drill(archive, drill.drill, own)
        reach("drill.noted")
        try:
            _carry_out(drill, config, target, archive, brokers, scratch, notice)
        except Exception as error:  # noqa: BLE001 - also a defect: the topics are deleted, and that is reported
            drill.complain_of(as_ours(error))
        finally:
            notice("deleting the scratch topics")
            try:
                _remove(archive, brokers, drill.drill, own)
            except ArchiverError as error:
                drill.complain_of(error)
    return drill


def _carry_out(
    drill: Drill,
    config: ArchiverConfig,
    target: TargetConfig,
    archive: Archive,
    brokers: ClientThread,
    scratch: Mapping[str, str],
    notice: Callable[[str], None],
) -> None:
    """Restore and compare. Each difference becomes a problem."""
    request = RestoreRequest(
        topics="|".join(map(re.escape, scratch)),  # no other one, which would keep its own name
        renames=scratch,
        wanted=TopicSelection(from_ms=FIRST_LONG if drill.from_ms is None else drill.from_ms),
        target_configs=_CONFIGS,
    )
    started_s = time.monotonic()
    result = run_restore_job(config.storage, target, request, restore_id=drill.drill, notice=notice)
    drill.rto_ms = round(1000 * (time.monotonic() - started_s))
    reach("drill.restored")
    _judge(drill, result)
    if drill.topics:
        segments = _sampled_objects(drill, config, archive)
        _check_objects(drill, config, segments, notice)
        notice("comparing positions of groups")
        _check_groups(drill, config, archive, brokers, segments)


def _judge(drill: Drill, result: RestoreResult) -> None:
    """Compare the digests of target and archive. An empty sample is a problem."""
    if result.failure is not None:
        drill.complain_of(result.failure)
    for problem in (*result.problems, *(f"{name}: was not begun" for name in result.not_begun)):
        drill.complain(problem)
    for topic in result.topics:
        drill.topics[topic.source] = {
            "scratch": topic.target,
            "records": topic.records,
            "digests": {str(one.partition): f"{one.digest:016x}" for one in topic.partitions},
            "newest_ms": None,
        }
        for problem, exit_code in _differences(topic):
            drill.complain(problem, exit_code)
        is_empty_topic = drill.from_ms is None and topic.nothing is Nothing.ARCHIVED
        if not topic.records and not is_empty_topic:
            drill.complain(f"{topic.source}: the sample is empty: use a longer --last, or other --topics")
    if not result.records:
        drill.complain("no record was restored")


def _differences(topic: TopicReport) -> Iterator[tuple[str, int]]:
    if topic.finish.refusal is not None:
        yield str(topic.finish.refusal), topic.finish.refusal.exit_code
    for one in topic.partitions:
        where = f"{topic.source}-{one.partition}"
        if one.error:
            yield f"{where}: {one.error}", one.exit_code
        elif one.missing or one.target_digest != one.digest:
            told = "; ".join(one.missing) or f"the target has digest {one.target_digest}, the archive {one.digest}"
            yield f"{where}: {told}", NotWholeError.exit_code


def _sampled_objects(drill: Drill, config: ArchiverConfig, archive: Archive) -> list[Segment]:
    """Return the objects with facts that have records of the sample. Notes the newest time of each topic."""
    found, from_ms = list[Segment](), FIRST_LONG if drill.from_ms is None else drill.from_ms
    for topic in read_archive(archive, wanted=drill.topics.__contains__, use=config.storage.index):
        row = drill.topics[topic.topic]
        for segment in (one for partition in topic.partitions.values() for one in partition.segments):
            if isinstance(segment.facts, SegmentFacts) and segment.facts.max_timestamp >= from_ms:
                found.append(segment)
                row["newest_ms"] = max(segment.facts.max_timestamp, row["newest_ms"] or FIRST_LONG)
    return found


def _check_objects(
    drill: Drill, config: ArchiverConfig, segments: Sequence[Segment], notice: Callable[[str], None]
) -> None:
    """Compare each record of the objects with their facts, as `verify --level records` does."""
    from archiver.spark.session.tasks import run_on_spark  # noqa: PLC0415 - an extra that a backup does not need

    tasks = list(check_tasks(config.storage, segments, Level.RECORDS))
    if not tasks:
        return
    with spark_in_background("drill", notice) as start_spark:
        for found in run_on_spark(start_spark(), tasks, run_check, lambda task: len(task.segments)):
            drill.objects += found.examined
            for problem in found.problems:
                drill.complain(problem)
            if found.error:
                drill.complain(found.error, found.exit_code)


# --- positions of groups


def _check_groups(
    drill: Drill, config: ArchiverConfig, archive: Archive, brokers: ClientThread, segments: Sequence[Segment]
) -> None:
    """Translate the newest positions in the topics, and compare the records at some of them. No group is set."""
    named = re.compile("|".join(map(re.escape, drill.topics)))
    wanted = PositionFilter(as_of_ms=LAST_LONG, groups=_ANY, topics=named)
    asked = GroupRequest(config=config, wanted=wanted, renames={})
    try:
        positions = read_positions(archive, asked, drill.complain)
    except UsageError:  # no positions are archived
        return
    plan = asyncio.run(read_group_plan(archive, brokers.settings, drill.drill, asked, positions, drill.complain))
    for one in plan.open:
        drill.complain(f"{_spell(one)}: {one.reason}")
    for target, why in plan.restored.unreadable.items():
        drill.complain(f"{target}: {why}")
    translated = [one for group in plan.groups for one in group.positions]
    exact = [one for one in translated if one.remarks == (Remark(Kind.EXACT),)]
    objects: dict[tuple[str, int], list[Segment]] = {}
    for segment in segments:
        objects.setdefault((segment.key.topic, segment.key.partition), []).append(segment)
    found = (
        (one, _object_at(one.position.offset, objects.get((one.position.topic, one.position.partition), ())))
        for one in exact
    )
    pairs = [*islice(((one, segment) for one, segment in found if segment is not None), _MOST_COMPARED)]
    drill.groups = {"positions": len(translated), "compared": len(pairs)}
    for one, segment in pairs:
        if not brokers.ask(partial(_is_same_record, archive, one, segment)):
            drill.complain(f"{_spell(one)}: offset {one.position.offset} is translated to another record")


def _spell(one: TranslatedPosition) -> str:
    return f"group {spell_name(one.position.group)} in {one.position.topic}-{one.position.partition}"


def _object_at(offset: int, segments: Sequence[Segment]) -> Segment | None:
    """Return the object of a partition with an offset, of the latest life; None: none has it."""
    found = (one for one in segments if one.facts.base <= offset < one.facts.next)
    return max(found, key=lambda one: one.key.life, default=None)


async def _is_same_record(archive: Archive, one: TranslatedPosition, segment: Segment, client: KafkaClient) -> bool:
    """Return whether archive and target have the same record at a position."""
    here, there, position, place = Tally(), Tally(), one.position, one.target
    part = ObjectPart(segment.object_key, position.offset, position.offset + 1, segment.facts.next)
    for frame in read_parts(archive.store, position.topic, position.partition, [part]):
        frame.table[Column.TIMESTAMP_TYPE] = CREATE_TIME  # as on the target
        here.add(frame)
    if place is not None:
        end = place.offset + 1
        log_range = LogRange(
            topic=place.topic, topic_id=place.topic_id, partition=place.partition, start=place.offset, end=end
        )
        await read_log(client, log_range, there.add)
    return there.records == 1 and (here.records, here.digest) == (1, there.digest)


# --- the end


def _remove(archive: Archive, brokers: ClientThread, drill_id: str, note: DrillNote) -> None:
    """Delete a drill's topics, then its notes. A topic with records that no plan has noted stays, and so do the notes."""
    listed = list_restore_notes(archive, f"{RESTORES}/{drill_id}")
    plans = {one.target: one for one in listed if one.name == PLAN}.values()  # the newest ones
    noted = {one.target: required(found) for one, found in read_each(archive, plans, lambda _, plan: target_ids(plan))}

    async def delete_topics(client: KafkaClient) -> list[str]:
        found = await client.describe_topics(note.scratch.values())
        offsets = await offsets_of(client, found)
        ours = {
            name: one.topic_id
            for name, one in found.items()
            # Killed between its creation and the plan, a drill has noted no id, and has written no record.
            if noted.get(name) == TargetIds(note.target_cluster_id, one.topic_id)
            or (one.topic_id and not any(ends.high_watermark for ends in offsets[name].values()))
        }
        if ours:
            await delete_topics_by_id(client, ours)
        return sorted(found.keys() - ours)

    left = brokers.ask(delete_topics)
    reach("drill.deleted")
    if left:
        raise NotWholeError(
            f"topic {left[0]} has the name of a scratch topic of drill {drill_id}, and another id than it has noted: it is not"
            " deleted; find out who created it, and delete it yourself"
        )
    for prefix in (archive.layout.control_prefix(f"{RESTORES}/{drill_id}"), drill_prefix(archive, drill_id)):
        archive.store.delete([item.key for item in archive.store.list(prefix)])
