"""Clusters on which a test sets target topics up and restores into them. Independent clients check the result."""

import contextlib
import io
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml
from confluent_kafka import TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but not marked so
    AdminClient,
    ConfigResource,
    ConfigSource,
    OffsetSpec,
)
from confluent_kafka.admin._acl import AclOperation as Op
from confluent_kafka.admin._resource import ResourceType as Kind

import archiver.restore.fill.partition_restore
import archiver.restore.fill.sending
from archiver.cli.main import main
from archiver.demo.sandbox import fetch_kafka
from archiver.restore.plan.restore_notes import RestoreNotes
from tests.support.brokers import CACHE, KAFKA_41
from tests.support.compiled import jars_with
from tests.support.foreign_reader import s3_client
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_broker import KafkaBroker
from tests.support.kafka_topics import create_topic, recreate_topic
from tests.support.produce_doubles import Killed, MortalProduce
from tests.support.raw_produce import produce_records
from tests.support.records import NOW_MS, Rec
from tests.support.round_trip import KEEP_ALL, ArchiveSite
from tests.support.secure_broker import PASSWORD, USER, Certificates, SecureBroker
from tests.support.secure_broker import Right as Granted
from tests.support.target_states import CASES, FILLED, Case, Cluster, Mode, Right, Source, Standing, Story
from tests.support.zookeeper import KAFKA_28, WITHOUT_TOPIC_IDS, ZooKeeperBroker

if TYPE_CHECKING:
    from mypy_boto3_s3.type_defs import ObjectIdentifierTypeDef

Rows = Mapping[int, Sequence[Rec]]

NOTES: Final = ("control/restores/", "control/index/")  # of a restore: the index knows how many notes there are
_REQUEST_S = 30.0
_WEEK_MS = 7 * 24 * 3_600_000
_LARGEST_BATCH = 20 * 1024 * 1024
_POLICIES: Final = {
    "create.topic.policy.class.name": "Limits$Create",
    "alter.config.policy.class.name": "Limits$Alter",
    "log.retention.ms": "3600000",
    "limits.alter.most.retention.ms": str(_WEEK_MS),  # also of topics that are created
    "limits.alter.never": "segment.ms",
}
_OF_2_8: Final = {"retention.ms": "-1", "delete.retention.ms": "12345678", "max.message.bytes": str(_LARGEST_BATCH)}
_ARCHIVED: Final = {**KEEP_ALL, "max.message.bytes": str(_LARGEST_BATCH), "delete.retention.ms": "12345678"}
_ALLOWED: Final = {
    Cluster.POLICIES: {**KEEP_ALL, "retention.ms": str(_WEEK_MS), "max.message.bytes": str(_LARGEST_BATCH)},
    Cluster.OLD_FORMAT: _OF_2_8,
    Cluster.WITHOUT_IDS: _OF_2_8,
}
_OPERATIONS: Final = {right: Op[right.name] for right in Right}


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as an administrator sees it: its own configs, and where each partition begins and ends."""

    topic_id: str
    configs: Mapping[str, str]
    ends: Mapping[int, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Picture:
    """All topics of a cluster but those of cases that are done, the records of one, and the objects of the archive."""

    topics: Mapping[str, Topic]
    records: Rows
    objects: Mapping[str, str]  # their ETags, by their keys


@dataclass(frozen=True, slots=True)
class Said:
    """What a command has answered; `problems` are the lines that it complains with."""

    exit_code: int
    problems: tuple[str, ...]
    out: str


class Stage:
    """All clusters, and one archive of topics that were on the ordinary one."""

    def __init__(self, site: ArchiveSite, oracle: JavaOracle, brokers: Mapping[Cluster, KafkaBroker]) -> None:
        self.site = site
        self._oracle = oracle
        self._brokers = brokers
        self._admins = {
            cluster: AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
            for cluster, broker in brokers.items()
        }
        self._now_ms = time.time_ns() // 1_000_000
        self._archived: dict[str, Rows] = {}
        self._done: set[str] = set()
        site.write_config(self._ordinary, ".*")
        for source, first_ms in ((Source.OLD, NOW_MS), (Source.YOUNG, self._now_ms)):
            self._fill(source, _records_of("ours", 6, 3, first_ms=first_ms))
        site.back_up(self._ordinary, *Source)
        for cluster in brokers:
            if cluster is not Cluster.GUARDED:  # which is the ordinary one
                self._make(cluster, "bystander", _records_of("theirs", 3, first_ms=self._now_ms))

    # --- what is there before the restore

    def set_up(self, case: Case) -> Rows:
        """Bring the target into its state; returns the records that it has, and that are not a restore's."""
        match case.state.story:
            case None:
                return self._create(case, case.state.standing)
            case Story.CREATED | Story.HALF_RESTORED | Story.RESTORED as story:
                is_first = case.mode in {Mode.PLAIN, Mode.REPARTITION} or case.state.cluster is Cluster.WITHOUT_IDS
                former = self._create(case, None if is_first or story is Story.CREATED else FILLED)
                self._restore_before(case, story)
                return former
            case Story.BEGUN_ELSEWHERE:
                self._restore_before(case, Story.HALF_RESTORED, "--id", "another")
                return {}
            case Story.ARCHIVED | Story.ARCHIVED_IN_PART as story:
                former = self._archive(case.target, _records_of("ours", 6, 3))
                return self._more(case, former) if story is Story.ARCHIVED_IN_PART else former
            case Story.REPLACED | Story.RECREATED | Story.RECREATED_ARCHIVED_IN_PART as story:
                self._archive(case.target, _records_of("ours", 6, 3))
                recreate_topic(self._ordinary, case.target, 2, KEEP_ALL)
                former = _records_of("theirs", 2, 2, first_ms=self._now_ms)
                self._write(self._ordinary, case.target, former)
                if story is not Story.REPLACED:
                    self.site.back_up(self._ordinary, case.target)
                return self._more(case, former) if story is Story.RECREATED_ARCHIVED_IN_PART else former

    def archived(self, case: Case) -> Rows:
        """What is to come back."""
        return self._archived[case.source]

    def final_configs(self, case: Case) -> Mapping[str, str] | None:
        """Those of a topic that a restore has made; None: the cluster has not taken all that was archived."""
        if case.state.cluster is Cluster.POLICIES:
            return None
        known = _ARCHIVED.keys() & _ALLOWED.get(case.state.cluster, _ARCHIVED).keys()
        return {name: _ARCHIVED[name] for name in known} | {"retention.ms": "-1", "retention.bytes": "-1"}

    def _create(self, case: Case, standing: Standing | None) -> Rows:
        if standing is None:
            return {}
        sizes = [standing.records] * (standing.partitions or case.partitions)
        written = _records_of("theirs", *sizes, first_ms=self._now_ms)
        self._make(case.state.cluster, case.target, written, standing.configs)
        return written

    def _restore_before(self, case: Case, story: Story, *more: str) -> None:
        def die(*_: object) -> None:
            raise Killed

        mortal = MortalProduce()
        mortal.live(3 if story is Story.HALF_RESTORED else 10**6)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(archiver.restore.fill.sending, "produce", mortal)
            if story is Story.CREATED:
                patch.setattr(RestoreNotes, "note_plans", die)
            if story is Story.RESTORED:
                assert self.restore(case).exit_code == 0
            else:
                with pytest.raises(Killed):
                    self.restore(case, "--batch-bytes", "100", *more)

    def _archive(self, topic: str, rows: Rows) -> Rows:
        self._fill(topic, rows)
        self.site.back_up(self._ordinary, topic)
        return rows

    def _fill(self, topic: str, rows: Rows) -> None:
        self._make(Cluster.ORDINARY, topic, rows, _ARCHIVED)
        self._archived[topic] = rows

    def _more(self, case: Case, former: Rows) -> Rows:
        """One record that is not archived."""
        late = replace(former[0][-1], offset=len(former[0]), value=b"late")
        produce_records(self._ordinary, case.target, [late])
        return {**former, 0: [*former[0], late]}

    def _make(self, cluster: Cluster, topic: str, rows: Rows, configs: Mapping[str, str] | None = None) -> None:
        bootstrap = self._brokers[cluster].bootstrap
        create_topic(bootstrap, topic, len(rows), {**_ALLOWED.get(cluster, KEEP_ALL), **(configs or {})})
        self._write(bootstrap, topic, rows)

    @staticmethod
    def _write(bootstrap: str, topic: str, rows: Rows) -> None:
        for number, records in rows.items():
            produce_records(bootstrap, topic, records, size=2, partition=number)

    @property
    def _ordinary(self) -> str:
        return self._brokers[Cluster.ORDINARY].bootstrap

    # --- the command

    def restore(self, case: Case, *more: str) -> Said:
        """By the command, in this process."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(self.arguments(case, *more))
        return said_with(code, out.getvalue(), err.getvalue())

    def arguments(self, case: Case, *more: str) -> list[str]:
        folder, cluster = self.site.folder, case.state.cluster
        target = folder / f"{cluster}.yaml"
        target.write_text(yaml.safe_dump({"kafka": self._way_in(cluster)}))
        command = [
            "restore",
            "-c",
            str(folder / "archive.yaml"),
            "--target",
            str(target),
            "--quiet",
            "--format",
            "json",
        ]
        return [*command, *case.options, *more]

    def _way_in(self, cluster: Cluster) -> dict[str, Any]:
        broker = self._brokers[cluster]
        if cluster is not Cluster.GUARDED or not isinstance(broker, SecureBroker):
            return {"bootstrap.servers": broker.bootstrap}
        return {
            "bootstrap.servers": broker.address("SASL"),
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "PLAIN",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        }

    def discard_target(self, case: Case, seen: Picture) -> None:
        """Forget the target of a case, and delete the notes of its restores: else each case takes longer than the one before."""
        self._done.add(case.target)
        notes: list[ObjectIdentifierTypeDef] = [{"Key": key} for key in seen.objects if key.startswith(NOTES)]
        if notes:
            s3_client(self.site.bucket).delete_objects(Bucket=self.site.bucket.name, Delete={"Objects": notes})

    # --- what is there

    def picture(self, case: Case) -> Picture:
        """By Kafka's Java consumer, librdkafka, and boto3."""
        cluster = case.state.cluster
        topics = own_topics(self._admins[cluster], self._done)
        records: Rows = {}
        if case.target in topics:
            records = self._oracle.consume(self._brokers[cluster].bootstrap, case.target).records
        return Picture(topics, records, _objects(self.site))


def said_with(code: int, out: str, err: str) -> Said:
    """What a command complains with, but for how it goes on."""
    lines = [line.removeprefix("archiver: ") for line in err.splitlines() if line.startswith("archiver: ")]
    return Said(code, tuple(line for line in lines if " is not done; when that is mended, " not in line), out)


def _records_of(mark: str, *sizes: int, first_ms: int = NOW_MS) -> dict[int, list[Rec]]:
    """Each is told apart from all others by its value, if it has one, and by its header; one is large."""

    def record(number: int, at: int) -> Rec:
        where = b"%d/%d" % (number, at)
        value = {0: bytes(3000) + where, 1: None}.get(at, b"%s %s" % (mark.encode(), where))
        if mark != "ours":
            value = b"%s %s" % (mark.encode(), where)
        return Rec(at, first_ms + at, 0, b"key " + where, value, ((b"at", where),) if mark == "ours" else ())

    return {number: [record(number, at) for at in range(size)] for number, size in enumerate(sizes)}


def own_topics(admin: AdminClient, unwanted: Collection[str] = ()) -> dict[str, Topic]:
    """All but Kafka's own, which brokers make when they like."""
    found = admin.list_topics(timeout=_REQUEST_S).topics
    names = [name for name in found if not name.startswith("__") and name not in unwanted]
    described = {name: done.result(_REQUEST_S) for name, done in admin.describe_topics(TopicCollection(names)).items()}
    wanted = [TopicPartition(name, one.id) for name, topic in described.items() for one in topic.partitions]
    specs = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call] # its stubs are incomplete
    starts, ends = (_offsets(admin, wanted, spec) for spec in specs)
    configs = _own_configs(admin, names)
    return {
        name: Topic(
            topic_id=str(topic.topic_id),
            configs=configs[name],
            ends={one.id: (starts[name, one.id], ends[name, one.id]) for one in topic.partitions},
        )
        for name, topic in described.items()
    }


def _offsets(admin: AdminClient, wanted: Sequence[TopicPartition], spec: Any) -> dict[tuple[str, int], int]:  # noqa: ANN401
    answers = admin.list_offsets(dict.fromkeys(wanted, spec)) if wanted else {}
    return {(one.topic, one.partition): done.result(_REQUEST_S).offset for one, done in answers.items()}


def _own_configs(admin: AdminClient, names: Iterable[str]) -> dict[str, dict[str, str]]:
    resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
    answers = admin.describe_configs(resources) if resources else {}
    own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    return {
        resource.name: {name: one.value for name, one in done.result(_REQUEST_S).items() if one.source == own}
        for resource, done in answers.items()
    }


def _objects(site: ArchiveSite) -> dict[str, str]:
    """All but the notes of runs, which a refused restore leaves, too."""
    pages = s3_client(site.bucket).get_paginator("list_objects_v2").paginate(Bucket=site.bucket.name)
    found = {item["Key"]: item["ETag"] for page in pages for item in page.get("Contents", [])}
    return {key: tag for key, tag in found.items() if not key.startswith("control/runs/")}


@contextmanager
def all_brokers(folder: Path) -> Iterator[Mapping[Cluster, KafkaBroker]]:
    """Started at the same time. The guarded ones are the ordinary ones: who comes in plaintext may do everything there."""
    current, old = fetch_kafka(KAFKA_41, CACHE), fetch_kafka(KAFKA_28, CACHE)
    secure = SecureBroker(current, folder / "secure", Certificates.make(folder / "certificates"))
    limited = jars_with("Limits", current, CACHE, folder / "limits")
    brokers: dict[Cluster, KafkaBroker] = {
        Cluster.ORDINARY: secure,
        Cluster.POLICIES: KafkaBroker(limited, folder / "policies", properties=_POLICIES),
        Cluster.OLD_FORMAT: ZooKeeperBroker(old, folder / "old", properties={"log.message.format.version": "0.10.2"}),
        Cluster.WITHOUT_IDS: ZooKeeperBroker(old, folder / "ids", properties=WITHOUT_TOPIC_IDS),
    }
    with ExitStack() as stack, ThreadPoolExecutor(len(brokers)) as pool:
        for broker in brokers.values():
            stack.callback(broker.kill)
        for done in [pool.submit(broker.start) for broker in brokers.values()]:
            done.result()
        secure.grant(*_rights())
        yield {**brokers, Cluster.GUARDED: secure}


def _rights() -> list[Granted]:
    """Those of all cases at once: each has a topic of its own."""
    granted: list[Granted] = []
    for case in CASES:
        if case.state.cluster is not Cluster.GUARDED:
            continue
        granted += [(Kind.TOPIC, case.target, _OPERATIONS[right]) for right in case.state.rights]
        if Right.CREATE in case.state.rights:  # and topics that stand in for it
            granted.append((Kind.TOPIC, f"{case.target}-", Op.CREATE))
    return granted
