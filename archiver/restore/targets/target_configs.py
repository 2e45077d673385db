"""Sets the configs of targets: those of the filling before the first record is sent, and the archived configs when all records are verified."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from archiver.archive.format.store_clock import machine_now_ms
from archiver.archive.segments.record_counts import Count
from archiver.errors import ArchiverError, KafkaError
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.cluster import Refusal, TopicDescription
from archiver.kafka.topics.admin import KafkaAdmin
from archiver.kafka.topics.configs import topic_configs_each, wait_until_changed
from archiver.process.running.failpoints import reach
from archiver.restore.plan.request import RETENTION_KEYS, RestoreRequest, Retention
from archiver.restore.plan.restore_plan import FILL_CONFIGS, UNLIMITED, TopicPlan
from archiver.restore.plan.target_limits import expiring_records, oversized_partitions
from archiver.restore.targets.fill_terms import is_as_filled, is_of_configs
from archiver.restore.targets.replicas import KEY, unmet_in_the_end, wanted_in_the_end

Configs = Mapping[str, str]
Changes = Mapping[str, str | None]  # None: back to the cluster's own

OTHER_CONFIGS = (
    "give --target-config NAME=VALUE for another value, or --target-config NAME= to leave the archived one out"
)
_LAST_CONFIG = "segment.ms"  # its absence does not stop the fill


@dataclass(frozen=True, slots=True)
class Finish:
    """The final configs of a topic, or why they were not set, and the records that its retention lets brokers delete."""

    changes: Changes = field(default_factory=dict)  # applied ones
    is_done: bool = True  # nothing is left to set; False: the configs of the filling still hold
    left_out: tuple[str, ...] = ()  # unknown to the brokers
    refusal: ArchiverError | None = None  # of all configs when it is not done, else of one that was left out
    retention: str = ""  # the final one, if the restore set it
    inherits_retention: bool = False  # from the cluster: the topic had none
    expiring: Count | None = None  # records that the brokers delete for it
    oversized: int = 0  # partitions whose oldest records they may delete


class TargetConfigs:
    """Sets the configs of targets, with a few requests for all topics together."""

    def __init__(self, admin: KafkaAdmin) -> None:
        self._admin = admin

    async def set_for_filling(
        self, client: KafkaClient, found: Mapping[str, TopicDescription], wanted: Mapping[str, Configs]
    ) -> None:
        """Set the configs of topics that exist, and return when their leaders' logs have them; created topics have theirs at once.

        A broker shows a change a moment before its logs follow it, and applies changes one after the other. So a last change is
        requested once the others are shown: when that one is shown, too, the logs follow the others.
        """
        changes: dict[str, dict[str, str | None]] = {name: dict(configs) for name, configs in wanted.items() if configs}
        if not changes:
            return
        last = max(changes)
        its_last = _LAST_CONFIG if _LAST_CONFIG in changes[last] else max(changes[last])
        one_more = {last: {its_last: changes[last].pop(its_last)}}
        leaders = _leaders(found)
        everywhere = {last: {node for nodes in leaders.values() for node in nodes}}
        for some, nodes in ((changes, leaders), (one_more, everywhere)):
            for error in (await self._admin.alter_configs_of_topics(some)).values():
                raise error
            reach("fill.configured")
            await wait_until_changed(client, some, nodes)

    async def set_archived(
        self, client: KafkaClient, topics: Mapping[str, TopicPlan], request: RestoreRequest
    ) -> dict[str, Finish]:
        """Set the archived configs, and remove those of the fill. Each topic gets all of them or, if one is refused, none."""
        configs, unknown = await topic_configs_each(client, topics)
        changes = {
            name: final_changes(topics[name], found.effective, found.own, request) for name, found in configs.items()
        }
        wanted = [name for name, some in changes.items() if wanted_in_the_end(some) > 1]
        found = await client.describe_topics(wanted) if wanted else {}
        unmet = await unmet_in_the_end(client, changes, {name: min(one.replicas) for name, one in found.items()})
        changes |= {name: without_unmet(changes[name]) for name in unmet}
        refused = await self._admin.alter_configs_of_topics(changes)
        left_out = {name: KafkaError(f"topic {name}: {told}") for name, told in unmet.items()}
        return {
            name: Finish(is_done=False, refusal=_with_way_past(refused[name]))
            if name in refused
            else Finish(
                changes[name], left_out=_unknown_of(topics[name], configs[name].effective), refusal=left_out.get(name)
            )
            for name in changes
        } | {name: Finish(is_done=False, refusal=error) for name, error in unknown.items()}

    @staticmethod
    async def as_filled(client: KafkaClient, names: Iterable[str]) -> set[str]:
        """Return the topics with the configs of a fill: they are not finished, whatever their notes."""
        found, _ = await topic_configs_each(client, names)
        return {name for name, configs in found.items() if is_as_filled(configs.own)}

    async def with_retention(
        self, client: KafkaClient, finished: Mapping[str, tuple[TopicPlan, Finish]], request: RestoreRequest
    ) -> dict[str, Finish]:
        """Return the limits of the final retention, if any, and the records that it lets the brokers delete if it was asked for."""
        changes = {name: finish.changes for name, (_, finish) in finished.items()}
        sets = request.sets_retention
        if changes and sets:
            await wait_until_changed(client, changes, _leaders(await client.describe_topics(changes)))
        holding, _ = await topic_configs_each(client, changes)
        now_ms = machine_now_ms()
        found = {}
        for name, (topic, finish) in finished.items():
            if name not in holding:  # deleted just now, perhaps: it was finished
                found[name] = finish
                continue
            configs = holding[name].effective
            limits = {
                key: configs[key] for key in RETENTION_KEYS if key in configs and (sets or configs[key] != UNLIMITED)
            }
            told = replace(finish, retention=",".join(f"{key}={value}" for key, value in limits.items()))
            if sets:
                told = replace(
                    told,
                    inherits_retention=not (topic.archived_retention or topic.given_retention),
                    expiring=expiring_records(topic, configs, now_ms),
                    oversized=oversized_partitions(topic, configs),
                )
            found[name] = told
        return found


def _with_way_past(error: Refusal) -> Refusal:
    return KafkaError(f"{error}; {OTHER_CONFIGS}") if is_of_configs(error) else error


def _unknown_of(topic: TopicPlan, known: Collection[str]) -> tuple[str, ...]:
    return tuple(sorted(topic.final_configs.keys() - known))


def _leaders(found: Mapping[str, TopicDescription]) -> dict[str, set[int]]:
    return {name: set(described.leaders.values()) for name, described in found.items()}


def without_unmet(changes: Changes) -> Changes:
    """Leave out min.insync.replicas, which requires more replicas than exist."""
    return {name: value for name, value in changes.items() if name != KEY}


def _known_of(configs: Configs, known: Collection[str]) -> dict[str, str]:
    return {name: value for name, value in configs.items() if name in known}


def final_changes(topic: TopicPlan, known: Collection[str], own: Configs, request: RestoreRequest) -> Changes:
    """Return the changes from a filled topic's `own` configs to the final ones: those of the archive, and the requested ones.

    Configs that the fill did not set stay: its cluster refused those. Retention stays as it was for the filling, unless the
    archived one is wanted, or another one was given. A requested config is set even if the cluster does not know it: the cluster
    refuses that beforehand.
    """
    is_archived = request.retention is Retention.ARCHIVED
    filled = (name for name, value in FILL_CONFIGS.items() if own.get(name) == value and name not in RETENTION_KEYS)
    taken_back = dict.fromkeys([*filled, *(name for name in RETENTION_KEYS if is_archived and name in own)])
    retained = topic.archived_retention if is_archived else {}
    asked = {name: topic.final_configs[name] for name in request.target_configs if name in topic.final_configs}
    return {**taken_back, **_known_of(topic.final_configs, known), **asked, **_known_of(retained, known)}
