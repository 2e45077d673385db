"""Writes the offset map of a restored partition, from archived offsets to target offsets (docs/format.md §10)."""

from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import OffsetMapKey
from archiver.archive.restores.offset_map import OffsetMapFacts, OffsetMapWriter, put_offset_map
from archiver.errors import NotWholeError
from archiver.process.output.text import spell_count
from archiver.process.running.failpoints import reach
from archiver.restore.plan.claims import PartitionClaim
from archiver.restore.plan.task import RestoreTask, read_wanted


def put_map(archive: Archive, offsets: OffsetMapWriter, task: RestoreTask) -> str:
    """Put the offset map of a restored partition, unless the archive has it. Returns its key."""
    key = _map_key(archive, task)
    facts = OffsetMapFacts(
        restore_id=task.restore_id,
        source_topic=task.origin.topic,
        source_life=task.origin.life,
        source_partition=task.partition,
        source_next=max(offsets.source_next, *(part.end_offset or 0 for part in task.parts), 0),
        target_cluster_id=task.target_cluster_id,
        target_topic=task.target_topic,
        target_topic_id=task.target_topic_id,
        target_partition=task.partition,
        target_next=offsets.target_next,
        records=offsets.records,
        runs=offsets.runs,
    )
    put_offset_map(archive.store, key, offsets, facts)
    reach("map.put")
    return key


def keep_map(archive: Archive, claim: PartitionClaim, task: RestoreTask, records: int) -> str:
    """Return the key of a verified partition's offset map. A missing map is made again, from the archive's records alone."""
    key = _map_key(archive, task)
    if archive.store.head(key) is None:
        offsets = OffsetMapWriter(claim.start_offset)
        for frame in read_wanted(archive, task, claim.skipped, None):
            offsets.add(frame)
        if offsets.records != records:
            raise NotWholeError(
                f"{key}: is gone, and of the {spell_count(records, 'record')} the archive has {offsets.records} now"
            )
        put_map(archive, offsets, task)
    return key


def _map_key(archive: Archive, task: RestoreTask) -> str:
    found = OffsetMapKey(
        restore_id=task.restore_id,
        topic=task.target_topic,
        partition=task.partition,
        topic_id=task.target_topic_id or task.target_cluster_id,
    )
    return archive.layout.offset_map_key(found)
