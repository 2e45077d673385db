"""Notes changes of ACLs, quotas, SCRAM users and broker configs while a backup runs. Its failures are logged, and stop no backup."""

import asyncio
import logging
from typing import Final

from archiver.archive.format.handle import Archive
from archiver.archive.notes.cluster_metadata import note_part, survey_part
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.topics.cluster_parts import NOTED, Part
from archiver.process.output.defects import as_ours
from archiver.process.running.workers import Workers

log = logging.getLogger(__name__)

_EVERY_S: Final = 300.0
_LONGEST_S: Final = 30.0


async def note_cluster_regularly(client: KafkaClient, archive: Archive, pool: Workers) -> None:
    while True:
        await note_cluster(client, archive, pool)
        await asyncio.sleep(_EVERY_S)


async def note_cluster(client: KafkaClient, archive: Archive, pool: Workers) -> None:
    """Put a note of each part that differs from its newest note; several instances may do so at once. Failures are logged."""
    await asyncio.gather(*(_try_to_note(client, archive, pool, part) for part in NOTED))


async def _try_to_note(client: KafkaClient, archive: Archive, pool: Workers, part: Part) -> None:
    try:
        async with asyncio.timeout(_LONGEST_S):
            found = await survey_part(client, part)
            await client.cluster_id()  # raises if another cluster returned this
            is_new = await pool.call(note_part, archive, found)
    except TimeoutError:
        log.warning("the cluster's %s are not noted: no answer within %.0f s; the backup goes on", part, _LONGEST_S)
    except Exception as error:  # noqa: BLE001 - no failure may stop the backup
        log.warning("the cluster's %s are not noted: %s; the backup goes on", part, as_ours(error, part))
    else:
        if is_new and found.unread is not None:
            log.warning("the cluster's %s are not archived, and the backup goes on: %s", part, found.unread)
