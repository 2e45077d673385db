"""Purges and creates targets, by notes and topic ids: a run can be killed between any two steps, and run beside another one."""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence

from archiver.errors import KafkaError, KafkaTemporaryError
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.cluster import Refusal
from archiver.kafka.brokers.codes import Code
from archiver.kafka.topics.admin import KafkaAdmin, ToCreate
from archiver.kafka.topics.deletion import delete_topics_by_id
from archiver.process.running.failpoints import reach
from archiver.restore.plan.request import Existing
from archiver.restore.plan.restore_notes import RestoreNotes
from archiver.restore.purge.purge import Offsets, Purge, grown_problems, unarchived_problems
from archiver.restore.targets.replicas import kept_problems
from archiver.restore.targets.target_survey import Survey, offsets_of

log = logging.getLogger(__name__)

_ATTEMPTS = 300  # for half a minute
_DESCRIBE_PAUSE_S = 0.1  # before brokers are asked for their topics again


class TargetCreation:
    """Creates the target topics of one restore. Topics are deleted by the topic ids that were noted before."""

    def __init__(
        self, admin: KafkaAdmin, notes: RestoreNotes, existing: Existing, to_create: Callable[[str], ToCreate]
    ) -> None:
        self._admin = admin
        self._notes = notes
        self._existing = existing
        self._to_create = to_create

    async def replace(
        self,
        client: KafkaClient,
        survey: Survey,
        names: Sequence[str],
        offsets_at_check: Offsets,
        check_others: Callable[[], None],
    ) -> set[str]:
        """Purge existing topics, and create them. `offsets_at_check`: of topics that a user chose to delete.

        `check_others` raises an error if nothing more may be deleted, because other topics could not be filled.
        """
        purged = {name: survey.purged[name] for name in names if name in survey.purged}
        # 1. Only a purge needs these notes. Without a purge, a single note shows early that this user may put notes.
        noted = names[:1] if self._existing is Existing.EMPTY else names
        self._notes.note_replaced({name: purged.get(name, "") for name in noted}, survey.replicas)
        if purged:
            await self._check_once_more(client, survey, purged, offsets_at_check)
            check_others()
            await self._delete(client, purged)  # 2.
        return await self._create(client, names, purged)  # 3. and its plan is noted before its first claim

    async def add_partitions(self, short: Mapping[str, int]) -> None:
        """Add partitions to topics that brokers created by themselves: while clients ask for such a topic, deleting it would not help."""
        for name, count in short.items():
            log.warning(
                "%s: came by itself when it had been deleted, for a client that asked for it (auto.create.topics.enable), and"
                " is given %d partitions; stop whoever writes to it, or the restore cannot end",
                name,
                count,
            )
        for error in (await self._admin.add_partitions(short)).values():
            if not isinstance(error, KafkaError) or error.code != Code.INVALID_PARTITIONS:
                raise error
            # The topic has as many or more: the broker that described it was stale.
            await asyncio.sleep(_DESCRIBE_PAUSE_S)

    async def _delete(self, client: KafkaClient, purged: Mapping[str, str]) -> None:
        told = "%s: was deleted with all its records, and is created again (--purge-target)"
        await delete_topics_by_id(client, purged, lambda name: log.warning(told, name))
        reach("target.deleted")

    async def _check_once_more(
        self, client: KafkaClient, survey: Survey, purged: Mapping[str, str], offsets_at_check: Offsets
    ) -> None:
        """Refuse a purge if records were written since the survey. Checks as late as possible."""
        now = await offsets_of(client, {name: survey.found[name] for name in purged})
        archived = {name: one for name, one in survey.archived.items() if name in purged}
        survey.problems += await unarchived_problems(client, Purge(purged, now, archived), now)
        survey.problems += grown_problems(offsets_at_check, now)
        kept = {name: count for name, count in survey.replicas.items() if name in purged}
        survey.problems += (await kept_problems(client, kept, purged)).values()
        survey.refuse()

    async def _create(self, client: KafkaClient, names: Collection[str], purged: Mapping[str, str]) -> set[str]:
        """Create targets, and return this run's; those that another run of this restore creates right now serve as well."""
        left = list(names)
        created: set[str] = set()
        refused: dict[str, Refusal] = {}
        for _ in range(_ATTEMPTS):
            refused = await self._admin.create_topics({name: self._to_create(name) for name in left})
            created.update(name for name in left if name not in refused)
            reach("target.created")
            found = await client.describe_topics(left)
            left = [name for name in left if name not in found or found[name].topic_id == purged.get(name)]
            for name in left:
                if name in refused and name not in purged:  # the name of a purged topic may be free a moment later
                    raise refused[name]
            if not left:
                return created
            await asyncio.sleep(_DESCRIBE_PAUSE_S)
        raise refused.get(left[0]) or KafkaTemporaryError(f"topic {left[0]} was created, but no broker names it")
