"""A broker and a store on which commands run as a user with chosen rights. Independent clients check what they did."""

import contextlib
import io
import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, cast

import boto3
import fastavro
import pytest
import yaml
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclOperation as Op
from confluent_kafka.admin._resource import ResourceType

from archiver.archive.format.control import encode_fact
from archiver.archive.format.handle import open_archive
from archiver.archive.notes.drills import SCRATCH
from archiver.archive.notes.topics import PartitionSource
from archiver.archive.segments.segment_facts import facts_from_metadata
from archiver.archive.segments.segment_writer import OpenSegment
from archiver.archive.segments.spool import Spool
from archiver.cli.main import main
from archiver.config.model import StorageConfig
from archiver.groups.target.application import apply_positions
from archiver.groups.target.application_decisions import ApplicationReport, WantedGroup, WantedPosition
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.groups.group_positions import positions_of
from archiver.kafka.topics.cluster_parts import NOTED, Part
from archiver.store.port import ObjectKind
from archiver.store.shared import _open_once
from tests.support.brokers import Bucket
from tests.support.copied_topic import complete_copy, copy_place, role_entry
from tests.support.foreign_reader import s3_client
from tests.support.frames import frame_of
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_backup_files import KafkaBackupFolder, Segment
from tests.support.kafka_topics import create_topic, delete_topic, produce_values, producer_of, with_client
from tests.support.log_directories import LogDirectory, batch
from tests.support.processes import end_of
from tests.support.records import Rec
from tests.support.rights_table import Case, Kind, Right
from tests.support.round_trip import KEEP_ALL, ArchiveSite
from tests.support.secure_broker import PASSWORD, USER, SecureBroker
from tests.support.segments import NO_LIMIT, content_of
from tests.support.service import Instance, eventually
from tests.support.target_stage import own_topics
from tests.support.target_topics import set_configs

ORDERS: Final = "orders"
RECORDS: Final = {0: (b"one", b"two"), 1: (b"three",)}
PREFIX: Final = "team/archive"
GROUP: Final = "billing"
OFFSETS: Final = "__consumer_offsets"
KEPT: Final = "kept"  # the topic of which instances keep copies
COORDINATION: Final = "_compacted_log_backup_coordination"
_SECONDS: Final = 1 / 86_400  # in days
_CLUSTER: Final = "kafka-cluster"
_SPARK_S: Final = 90.0
_ON_TARGETS: Final = {
    Right.DESCRIBE: Op.DESCRIBE,
    Right.CREATE: Op.CREATE,
    Right.READ: Op.READ,
    Right.WRITE: Op.WRITE,
    Right.DELETE: Op.DELETE,
    Right.ALTER_CONFIGS: Op.ALTER_CONFIGS,
    Right.DESCRIBE_CONFIGS: Op.DESCRIBE_CONFIGS,
}
_ON_TOPICS: Final = {
    Right.READ_TOPICS: Op.READ,
    Right.DESCRIBE_TOPICS: Op.DESCRIBE,
    Right.TOPIC_CONFIGS: Op.DESCRIBE_CONFIGS,
}
_OTHERS: Final = {
    Right.READ_COORDINATION: (ResourceType.TOPIC, COORDINATION, Op.READ),
    Right.WRITE_COORDINATION: (ResourceType.TOPIC, COORDINATION, Op.WRITE),
    Right.CREATE_COORDINATION: (ResourceType.TOPIC, COORDINATION, Op.CREATE),
    Right.READ_OFFSETS: (ResourceType.TOPIC, OFFSETS, Op.READ),
    Right.OFFSETS_CONFIGS: (ResourceType.TOPIC, OFFSETS, Op.DESCRIBE_CONFIGS),
    Right.DESCRIBE_GROUPS: (ResourceType.GROUP, "*", Op.DESCRIBE),
    Right.CREATE_ANY: (ResourceType.BROKER, _CLUSTER, Op.CREATE),
    Right.CLUSTER: (ResourceType.BROKER, _CLUSTER, Op.DESCRIBE),
    Right.CLUSTER_CONFIGS: (ResourceType.BROKER, _CLUSTER, Op.DESCRIBE_CONFIGS),
    Right.ALTER_CLUSTER: (ResourceType.BROKER, _CLUSTER, Op.ALTER),
    Right.ALTER_CLUSTER_CONFIGS: (ResourceType.BROKER, _CLUSTER, Op.ALTER_CONFIGS),
}
IN_STORE: Final = {
    Right.GET: ("s3:GetObject", ""),
    Right.PUT: ("s3:PutObject", ""),
    Right.PUT_NOTES: ("s3:PutObject", "control/restores/"),
    Right.PUT_FOLDS: ("s3:PutObject", "control/group-folds/"),
    Right.PUT_HOLDS: ("s3:PutObject", "control/holds/"),
    Right.PUT_RUNS: ("s3:PutObject", "control/runs/"),
    Right.PUT_ROLES: ("s3:PutObject", "control/roles/"),
    Right.PUT_TOPICS: ("s3:PutObject", "control/topics/"),
    Right.PUT_DRILLS: ("s3:PutObject", "control/drills/"),
    Right.PUT_SWEEPS: ("s3:PutObject", "control/"),
    Right.DELETE_TOPICS: ("s3:DeleteObject", "topics/"),
    Right.DELETE_COPIES: ("s3:DeleteObject", "compacted/"),
    Right.DELETE_MOMENTS: ("s3:DeleteObject", "control/moments/"),
    Right.DELETE_CONTROL: ("s3:DeleteObject", "control/"),
    Right.TAG: ("s3:PutObjectTagging", ""),
}
IN_SECOND: Final = {Right.GET_SECOND: "s3:GetObject", Right.PUT_SECOND: "s3:PutObject"}


_OLD_MS: Final = 10 * 24 * 3600 * 1000
_TARGET: Final = {"format": 1, "target_cluster_id": "c", "target_topic_id": "t"}
# The notes of a target that nobody needs any longer, by the names of their streams.
FINISHED_RESTORE: Final[Mapping[str, Mapping[str, Any]]] = {
    "plan": {
        **_TARGET,
        "source": "t",
        "appends": False,
        "partitions": [{"partition": 0, "selection": {}, "parts": [], "facts": []}],
    },
    "0": {**_TARGET, "start_offset": 0, "verified": {"records": 0}},
    "finished": _TARGET,
}
_SOON: Final = {"grace": 0, "min-object-age": 0, "fixed": {"ms": "1h", "segment-ms": 0}}
_SWEPT: Final = {"retention": _SOON, "restores": {"keep": 0}}
_TICK_S: Final = 1.1  # the store's clock has whole seconds, and what was put in this one is too young


@dataclass(frozen=True, slots=True)
class Done:
    """What a command has answered."""

    exit_code: int
    out: str
    lines: Sequence[str]  # of both streams

    @property
    def complaints(self) -> Sequence[str]:
        return [line.removeprefix("archiver: ") for line in self.lines if line.startswith("archiver: ")]


@dataclass(frozen=True, slots=True)
class Picture:
    """All topics but Kafka's own, and all objects of the bucket with their ETags."""

    topics: Mapping[str, object]
    objects: Mapping[str, str]


class RightsStage:
    """One archive that readers and restores share; a backup has one of its own, and a restore a target."""

    def __init__(self, site: ArchiveSite, broker: SecureBroker, oracle: JavaOracle) -> None:
        self._site = site
        self._broker = broker
        self._oracle = oracle
        self._admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        self._kafka = {
            "bootstrap.servers": broker.address("SASL"),
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "PLAIN",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        }
        self._logs = LogDirectory(site.folder / "logs")
        self._logs.write(0, batch(0), batch(1))
        self._logs.note_cluster("C1")
        self._files = KafkaBackupFolder(site.folder / "files")
        self._files.write(ORDERS, 0, Segment(0).add(Rec(0, 0, 0, None, b"0"), Rec(1, 0, 0, None, b"1")))
        create_topic(broker.bootstrap, ORDERS, len(RECORDS), KEEP_ALL)
        create_topic(broker.bootstrap, KEPT, len(RECORDS), {"cleanup.policy": "compact"})
        for partition, values in RECORDS.items():
            produce_values(broker.bootstrap, ORDERS, list(values), partition=partition)
            _write_keyed(broker.bootstrap, KEPT, values, partition)
        self._commit(ORDERS)
        anybody = {"bootstrap.servers": broker.bootstrap}
        prepared = self._write("prepared.yaml", self._config(PREFIX, {"groups": "snapshot"}, {}) | {"kafka": anybody})
        assert _run(["backup", "--until-end", "-c", prepared]).exit_code == 0
        (self._object, *_) = keys_below(site.bucket, f"{PREFIX}/topics/")
        self.group = json.loads(_run(["config", "show", "-c", prepared, "--format", "json"]).out)["backup.group"]

    def _commit(self, topic: str) -> None:
        consumer = Consumer({"bootstrap.servers": self._broker.bootstrap, "group.id": GROUP})
        consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
        consumer.close()

    # --- a case

    def set_up(self, case: Case) -> None:
        """Make what must be there before, and grant what is granted."""
        if case.command.standing is not None:
            create_topic(self._broker.bootstrap, target_of(case), 2, {**KEEP_ALL, **case.command.standing})
            produce_values(self._broker.bootstrap, target_of(case), [b"theirs"])
            self._commit(target_of(case))
        if case.command.kind in {Kind.TRANSLATION, Kind.APPLICATION}:
            renamed = ["--topics", ORDERS, "--rename", f"{ORDERS}={target_of(case)}", "--id", target_of(case)]
            of_all = self._write("anybody.yaml", {"kafka": {"bootstrap.servers": self._broker.bootstrap}})
            prepared = str(self._site.folder / "prepared.yaml")
            assert _run(["restore", "-c", prepared, "--target", of_all, *renamed]).exit_code == 0
        if case.command.kind is Kind.INSTANCE and COORDINATION in own_topics(self._admin):
            delete_topic(self._broker.bootstrap, COORDINATION)
        own = {
            Kind.ROLLBACK: self._set_group,
            Kind.COPIED: self._put_role_log,
            Kind.SWEEP: self._archive_old_records,
            Kind.SAME: self._put_cluster_notes,
            Kind.LACKING: self._put_cluster_notes,
            **dict.fromkeys((Kind.GONE, Kind.COMPARED, Kind.CLEARED), self._archive_own_topic),
        }
        if case.command.kind in own:
            own[case.command.kind](case)
        if case.command.kind is Kind.HELD:
            prepared = self._write("own.yaml", self._config(prefix_of(case), {}, {}))
            assert _run([*case.command.typed, "-c", prepared]).exit_code == 0
        if case.command.kind is Kind.FOLD:
            anybody: dict[str, Any] = {"kafka": {"bootstrap.servers": self._broker.bootstrap}}
            folded = self._write("own.yaml", self._config(prefix_of(case), {"groups": "topic"}, {}) | anybody)
            assert _run(["backup", "--until-end", "-c", folded]).exit_code == 0
        self._broker.grant(*(self._acl(case, right) for right in case.rights if not right.is_of_store))

    def _archive_old_records(self, case: Case) -> None:
        """Of four old records the broker has one. A first sweep notes what the topic keeps. There are notes of a finished restore."""
        topic, bootstrap = topic_of(case), self._broker.bootstrap
        create_topic(bootstrap, topic, configs={"retention.ms": "-1"})
        producer, old_ms = producer_of(bootstrap, **{"linger.ms": 0}), time.time_ns() // 1_000_000 - _OLD_MS
        for number in range(4):
            producer.produce(topic, b"old", timestamp=old_ms + number)
            assert producer.flush(30) == 0
        own = self._config(prefix_of(case), {"groups": "off", "segment": {"records": 1}}, {})
        own |= {"kafka": {"bootstrap.servers": bootstrap}, "topics": {"include": [topic]}, "retention": _SOON}
        path = self._write("own.yaml", own)
        assert _run(["backup", "--until-end", "-c", path]).exit_code == 0
        where = TopicPartition(topic, 0, 3)
        self._admin.delete_records([where])[where].result(20)
        set_configs(self._broker, topic, retention_ms="3600000")  # not before: the broker would be first
        time.sleep(_TICK_S)
        assert _run(["retention", "-c", path]).exit_code == 0
        for name, fact in FINISHED_RESTORE.items():
            key = f"{prefix_of(case)}/control/restores/old/{topic}/{name}/000000.json"
            s3_client(self._site.bucket).put_object(Bucket=self._site.bucket.name, Key=key, Body=encode_fact(fact))
        time.sleep(_TICK_S)

    def _archive_own_topic(self, case: Case) -> None:
        """A topic that is deleted then; or of which copies have a record more than Kafka, at the offset of a marker."""
        topic, bootstrap = topic_of(case), self._broker.bootstrap
        create_topic(bootstrap, topic, configs={"cleanup.policy": "compact"})
        producer = producer_of(bootstrap, transactional_id=topic)
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(topic, b"v", key=b"kept", timestamp=1000)
        producer.commit_transaction(30)
        own = self._config(prefix_of(case), {"groups": "off"}, {}) | {"kafka": {"bootstrap.servers": bootstrap}}
        path = self._write("own.yaml", own | {"topics": {"include": [topic]}})
        assert _run(["backup", "--until-end", "-c", path]).exit_code == 0
        if case.command.kind is Kind.GONE:
            delete_topic(bootstrap, topic)
            return
        archive = open_archive(StorageConfig.model_validate(own["storage"]))
        (item,) = archive.store.list(f"{prefix_of(case)}/topics/{topic}/")
        info = archive.store.head(item.key)
        facts = None if info is None else facts_from_metadata(info.metadata, item.key)
        assert facts is not None
        source = PartitionSource(topic=topic, partition=0, life=0, topic_id=facts.topic_id, cluster_id=facts.cluster_id)
        segment = OpenSegment(source, 0, NO_LIMIT, Spool(self._site.folder))
        segment.append(frame_of([Rec(0, 1000, 0, b"kept", b"v"), Rec(1, 1000, 0, b"gone", b"v")]), 0)
        segment.cover(2, leader_epoch=facts.leader_epoch, source_bytes=1, stable_end=2)
        finished = segment.finish()
        instances = "ab" if case.command.kind is Kind.CLEARED else "a"
        for number, name in enumerate(instances):
            key = f"{prefix_of(case)}/{copy_place(topic, 0, name, number)}{item.key.rpartition('/')[2]}"
            metadata = finished.facts.to_metadata()
            archive.store.put_if_absent(key, content_of(finished), metadata, kind=ObjectKind.SEGMENT)
            key, content = role_entry(topic, 0, number + 1, holder=complete_copy(name, number, 2), replaced="topics/")
            archive.store.put_if_absent(f"{prefix_of(case)}/{key}", content, {}, kind=ObjectKind.FACT)
        if case.command.kind is Kind.CLEARED:  # a store's clock has whole seconds, and times of puts have parts of them
            put_at = max(item.last_modified for item in archive.store.list(f"{prefix_of(case)}/"))
            eventually(lambda: archive.store.now() > put_at)

    def _put_cluster_notes(self, case: Case) -> None:
        """Of a cluster with nothing, or with an ACL and a quota that this one does not have."""
        rows: dict[str, list[list[str]]] = {part: [] for part in NOTED}
        if case.command.kind is Kind.LACKING:
            rows["acls"] = [["DENY", f"User:{target_of(case)}", "*", "READ", "TOPIC", "t", "LITERAL"]]
            rows["quotas"] = [[json.dumps({"user": target_of(case)}), "producer_byte_rate", "1000.0"]]
        for part, some in rows.items():
            fact = {"format": 1, "part": part, "rows": some, "unread": None}
            key = f"{prefix_of(case)}/control/cluster-metadata/{part}/000000.json"
            s3_client(self._site.bucket).put_object(Bucket=self._site.bucket.name, Key=key, Body=encode_fact(fact))

    def _put_role_log(self, case: Case) -> None:
        """Of a copy that was read to the end of the log."""
        anybody: dict[str, Any] = {"kafka": {"bootstrap.servers": self._broker.bootstrap}}
        topics = {"topics": {"include": [topic_of(case)]}}
        own = self._write("own.yaml", self._config(prefix_of(case), {"groups": "off"}, {}) | anybody | topics)
        assert _run(["backup", "--until-end", "-c", own]).exit_code == 0
        key, content = role_entry(topic_of(case), 0, 0, holder=complete_copy("a", 0, 0, len(RECORDS[0])))
        s3_client(self._site.bucket).put_object(
            Bucket=self._site.bucket.name, Key=f"{prefix_of(case)}/{key}", Body=content
        )

    def _set_group(self, case: Case) -> None:
        """One position goes back to where it was, and one goes."""
        target, group = target_of(case), group_of(case)
        bootstrap = self._broker.bootstrap
        create_topic(bootstrap, target, 2)
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
        consumer.commit(offsets=[TopicPartition(target, 0, 1)], asynchronous=False)
        consumer.close()
        storage = self._config(PREFIX, {}, {})["storage"]

        async def body(client: KafkaClient) -> ApplicationReport:
            topic_id = (await client.describe_topics([target]))[target].topic_id
            positions = [WantedPosition(target, topic_id, partition, 0) for partition in range(2)]
            wanted = {group: WantedGroup(source_group=group, positions=positions)}
            archive = open_archive(StorageConfig.model_validate(storage))
            return await apply_positions(client, archive, group, wanted, print, as_of_ms=None, is_dry_run=False)

        assert with_client(bootstrap, body).exit_code == 0

    def _acl(self, case: Case, right: Right) -> tuple[ResourceType, str, Op]:
        if right in _ON_TARGETS:
            return ResourceType.TOPIC, target_of(case), _ON_TARGETS[right]
        if right in _ON_TOPICS:
            return ResourceType.TOPIC, topic_of(case), _ON_TOPICS[right]
        if right is Right.CREATE_LIKE:
            return ResourceType.TOPIC, f"{target_of(case)}-", Op.CREATE
        if right in {Right.READ_GROUP, Right.READ_INSTANCE, Right.DESCRIBE_GROUP}:
            own = {Kind.SERVICE: f"group-{case.number}", Kind.INSTANCE: f"group-{case.number}-a"}
            operation = Op.DESCRIBE if right is Right.DESCRIBE_GROUP else Op.READ
            return ResourceType.GROUP, own.get(case.command.kind, self.group), operation
        if right in {Right.READ_GROUPS, Right.DELETE_GROUPS}:
            return ResourceType.GROUP, group_of(case), Op.READ if right is Right.READ_GROUPS else Op.DELETE
        return _OTHERS[right]

    def run(self, case: Case) -> Done:
        """As somebody with the rights of the case alone."""
        with acting(self._site.bucket, self._statements(case)) as environment:
            if case.command.kind in {Kind.SERVICE, Kind.INSTANCE}:
                return self._run_service(case, environment)
            arguments = [
                *(
                    one.format(
                        object=f"s3://{self._site.bucket.name}/{self._object}",
                        topic=topic_of(case),
                        logs=self._logs.path,
                        files=self._files.path,
                        new=self._site.folder / f"new-{case.number}",
                        second=f"{self._site.bucket.url}/{second_of(case)}",
                    )
                    for one in case.command.typed
                )
            ]
            arguments += self._arguments(case)
            if not case.command.has_spark:
                return _run(arguments)
            done = end_of(self._site.command(*arguments, **environment), _SPARK_S)
            return Done(done.returncode, done.stdout, (done.stdout + done.stderr).splitlines())

    def _arguments(self, case: Case) -> list[str]:
        tree = self._config(prefix_of(case), case.command.backup, case.command.storage)
        if case.command.kind is Kind.CLEARED:
            tree["compacted"] = {"enabled": True, "instances": ["a", "b"], "clear.delay": 0}
        if case.command.kind in {Kind.GONE, Kind.COMPARED}:
            tree["topics"]["include"] = [topic_of(case)]
            tree["backup"]["group"] = self.group
        config = self._write("archive.yaml", tree | (_SWEPT if case.command.kind is Kind.SWEEP else {}))
        verbose = ["-c", config, "--verbose"]
        more = {
            Kind.TRANSLATION: ["--restore", target_of(case)],
            Kind.APPLICATION: ["--restore", target_of(case), "--rename-group", f"{GROUP}={group_of(case)}"],
            Kind.SAME: [],
            Kind.LACKING: [],
            Kind.ROLLBACK: ["--restore", group_of(case)],
            Kind.DRILL: ["--topics", ORDERS],
        }
        if case.command.kind in more:
            target = self._write("target.yaml", {"kafka": self._kafka})
            return [*verbose, "--format", "json", "--target", target, *more[case.command.kind]]
        if case.command.kind is not Kind.RESTORE:
            has_rows = case.command.typed[0] in {"cat", "hold", "report"} or case.command.kind is Kind.CLEARED
            return [*verbose, *([] if has_rows else ["--format", "json"])]
        target = self._write("target.yaml", {"kafka": self._kafka})
        named = ["--rename-group", f"{GROUP}={group_of(case)}"] if "--groups" in case.command.typed else []
        return [*verbose, "--target", target, "--topics", ORDERS, "--rename", f"{ORDERS}={target_of(case)}", *named]

    def _run_service(self, case: Case, environment: Mapping[str, str]) -> Done:
        """Until it has archived all, or has said what it lacks."""
        config = self._config(prefix_of(case), {**case.command.backup, "group": f"group-{case.number}"}, {})
        config["topics"]["refresh"] = "1s"
        config["backup"]["segment"] = {"age": "1s"}
        arguments: Sequence[str] = ()
        if case.command.kind is Kind.INSTANCE:  # alone, it makes the next copy, too
            config["topics"]["include"] = [KEPT]
            times = {"log.backup.length.days": 2 * _SECONDS, "takeover": "1s", "interval": "100ms", "clear.delay": "1s"}
            config["compacted"] = {"enabled": True, "instances": ["a", "b"], **times}
            arguments = ("--instance", "a", "--initial-role", "active")
        name, typed = f"service-{case.number}", case.command.typed
        instance = Instance(self._site, config, name, environment, command=typed, arguments=arguments)
        is_stuck = case.loss is not None and not case.loss.is_borne

        def has_come_to_it() -> bool:
            if is_stuck:
                return instance.process.poll() is not None or re.search(says(self, case), instance.log) is not None
            is_told = case.loss is None or re.search(says(self, case), instance.log) is not None
            return is_told and self._has_all(case)

        try:
            eventually(has_come_to_it, "neither done nor refused")
            code = instance.process.poll()
            return Done(instance.stop() if code is None else code, "", instance.log.splitlines())
        finally:
            instance.kill()

    def _has_all(self, case: Case) -> bool:
        if case.command.kind is Kind.INSTANCE:
            return self._has_turned(case)
        return archived_values(self._site.bucket, prefix_of(case), ORDERS) == {k: list(v) for k, v in RECORDS.items()}

    def _has_turned(self, case: Case) -> bool:
        """Whether a second copy has all, and the first is gone, and so are old notes; or may not go."""
        copies = {
            number: copied_values(self._site.bucket, prefix_of(case), KEPT, number) for number in range(len(RECORDS))
        }
        notes = keys_below(self._site.bucket, f"{prefix_of(case)}/control/moments/a/")
        are_gone = all(min(found, default=0) > 0 for found in copies.values())
        are_few = bool(notes) and not notes[0].endswith("/000000.json")
        return (
            all(len(found) > (0 if are_gone else 1) for found in copies.values())
            and all(list(RECORDS[number]) in found.values() for number, found in copies.items())
            and are_gone == (case.missing is not Right.DELETE_COPIES)
            and are_few == (case.missing is not Right.DELETE_MOMENTS)
        )

    def _statements(self, case: Case) -> Iterator[Mapping[str, Any]]:
        bucket, prefix = f"arn:aws:s3:::{self._site.bucket.name}", prefix_of(case)
        for right, root in ((Right.LIST, prefix), (Right.LIST_SECOND, second_of(case))):
            if right in case.rights:
                below = {"StringLike": {"s3:prefix": [f"{root}/*"]}}
                yield {"Effect": "Allow", "Action": ["s3:ListBucket"], "Resource": [bucket], "Condition": below}
        if Right.PUT_RUNS in case.rights:  # without it, old notes of runs stay
            resource = f"{bucket}/{prefix}/control/runs/*"
            yield {"Effect": "Allow", "Action": ["s3:DeleteObject"], "Resource": [resource]}
        for right in case.rights:
            if right in IN_STORE:
                action, sub = IN_STORE[right]
                yield {"Effect": "Allow", "Action": [action], "Resource": [f"{bucket}/{prefix}/{sub}*"]}
            elif right in IN_SECOND:
                resource = f"{bucket}/{second_of(case)}/*"
                yield {"Effect": "Allow", "Action": [IN_SECOND[right]], "Resource": [resource]}
        if case.missing is Right.TAG:  # AWS asks for it with a put that has tags, and MinIO does not
            tagged = {"StringLike": {"s3:RequestObjectTag/team": "*"}}
            yield {"Effect": "Deny", "Action": ["s3:PutObject"], "Resource": [f"{bucket}/*"], "Condition": tagged}

    def _config(self, prefix: str, backup: Mapping[str, object], storage: Mapping[str, object]) -> dict[str, Any]:
        tree = self._site.config("", [ORDERS])
        return {
            **tree,
            "kafka": self._kafka,
            "storage": {**tree["storage"], "url": f"{self._site.bucket.url}/{prefix}", **storage},
            "backup": {**tree["backup"], **backup},
        }

    def _write(self, name: str, tree: Mapping[str, Any]) -> str:
        path = self._site.folder / name
        path.write_text(yaml.safe_dump(tree))
        return str(path)

    # --- what came of it

    def picture(self) -> Picture:
        return Picture(own_topics(self._admin), objects_of(self._site.bucket))

    def assert_whole(self, case: Case, done: Done) -> None:
        """All that the command is for is there, but for what a right is optional for."""
        command = case.command
        if command.kind in {Kind.BACKUP, Kind.SERVICE}:
            assert self._has_all(case)
            assert self._kept_positions(case) == self._wanted_positions(case)
        elif command.kind is Kind.RESTORE:
            if "--dry-run" not in command.typed:
                self._assert_restored(case)
        elif command.kind in {Kind.ROLLBACK, Kind.APPLICATION}:
            self._assert_group_stands(case, is_set="--dry-run" not in command.typed)
        elif command.typed[0] in {"cat", "query"}:
            rows = [json.loads(line) for line in done.out.splitlines()]
            found = [
                (row["partition"], row["value"]["utf8"] if command.typed[0] == "cat" else row["value"]) for row in rows
            ]
            assert sorted(found) == sorted(
                (number, value.decode()) for number, some in RECORDS.items() for value in some
            )
        elif command.typed[0] in {"ls", "verify", "export"} and command.kind is Kind.READER:
            told = json.loads(done.out)
            rows = told.get("exported", told.get("holdings", ()))
            assert told["whole"] if command.typed[0] == "verify" else sum(row["records"] for row in rows) == 3
        elif command.typed[0] == "groups":
            self._assert_groups_told(case, json.loads(done.out))
        elif command.kind in {Kind.GONE, Kind.COMPARED, Kind.IMPORT} or command.typed[0] in {
            "cluster",
            "compacted",
            "copy",
            "drill",
            "hold",
            "report",
            "retention",
        }:
            self._assert_kept(case, done)
        elif command.typed[0] in {"inspect", "status"}:
            told = json.loads(done.out)
            assert told["working"] if command.typed[0] == "status" else told["records"] == len(RECORDS[0])
        else:
            assert [(row["topic"], row["standing"]) for row in json.loads(done.out)["topics"]] == [(ORDERS, "archived")]

    def _assert_kept(self, case: Case, done: Done) -> None:
        if case.command.kind is Kind.DRILL:
            told = json.loads(done.out)["report"]
            assert (told["topics"][ORDERS]["records"], told["objects"], told["groups"]["positions"]) == (3, 2, 1)
            assert not [name for name in own_topics(self._admin) if name.startswith(SCRATCH)]
            return
        if case.command.typed[0] == "copy":
            root, copied = prefix_of(case), second_of(case)
            below = [key.removeprefix(root) for key in keys_below(self._site.bucket, f"{root}/topics/")]
            assert keys_below(self._site.bucket, f"{copied}/topics/") == [f"{copied}{key}" for key in below]
            return
        if case.command.typed[0] == "report":
            assert ORDERS in (self._site.folder / f"new-{case.number}").read_text(encoding="utf-8")
        elif case.command.typed[0] == "cluster":
            self._assert_cluster_told(case.command.kind, json.loads(done.out))
        elif case.command.kind is Kind.IMPORT:
            assert [row["records"] for row in json.loads(done.out)["imported"]] == [2]
        elif case.command.kind in {Kind.HOLD, Kind.HELD}:
            assert len(keys_below(self._site.bucket, f"{prefix_of(case)}/control/holds/audit/")) == 1
        elif case.command.kind in {Kind.GONE, Kind.COMPARED}:
            stream = {Kind.GONE: "topics", Kind.COMPARED: "roles"}[case.command.kind]
            keys = keys_below(self._site.bucket, f"{prefix_of(case)}/control/{stream}/{topic_of(case)}/")
            assert len(keys) == (1 if case.missing is Right.PUT_ROLES else 2)  # it has put one
        elif case.command.kind is Kind.SWEEP:
            left = keys_below(self._site.bucket, f"{prefix_of(case)}/topics/")
            sweeps = case.missing in {None, Right.DELETE_CONTROL} and "--last" not in case.command.typed
            notes = keys_below(self._site.bucket, f"{prefix_of(case)}/control/restores/old/")
            assert len(left) == (1 if sweeps else 4)
            assert bool(notes) == (
                "--last" in case.command.typed or case.missing not in {None, Right.DELETE_TOPICS, *_ON_TOPICS}
            )
        else:
            self._assert_copies_told(case, done)

    def _assert_copies_told(self, case: Case, done: Done) -> None:
        if case.command.kind is Kind.CLEARED:
            copies = [
                key.partition("/compacted/")[2]
                for key in keys_below(self._site.bucket, f"{prefix_of(case)}/compacted/")
            ]
            assert [key[0] for key in copies] == ["b"]
        elif case.command.kind is Kind.COPIED:
            assert [row["lag"] for row in json.loads(done.out)["partitions"]] == [0]
        elif case.command.kind is Kind.READER:
            assert json.loads(done.out)["partitions"] == []  # no instance has worked here
        # An instance is stopped when it has all.

    @staticmethod
    def _assert_cluster_told(kind: Kind, told: Mapping[str, Any]) -> None:
        if kind is Kind.READER:
            assert {part["part"]: part["unread"] for part in told["parts"]} == dict.fromkeys(Part)
        else:
            added = [one["part"] for one in told["changes"] if one["state"] == "added"]
            assert added == (["acls", "quotas"] if kind is Kind.LACKING else [])
            assert told["is_applied"] is (kind is Kind.LACKING)

    def _assert_groups_told(self, case: Case, told: Mapping[str, Any]) -> None:
        if case.command.kind is Kind.TRANSLATION:
            (group,) = told["groups"]
            assert [(row["target_topic"], row["offset"]) for row in group["positions"]] == [(target_of(case), 1)]
        elif case.command.kind is Kind.FOLD:
            made = {row["key"] for row in told["partitions"] if row["state"] == "folded"}
            below = keys_below(self._site.bucket, f"{prefix_of(case)}/control/group-folds/")
            assert made
            assert {key for key in below if key.endswith(".avro")} == made
        else:
            assert [(row["group"], row["offset"]) for row in told["positions"]] == [(GROUP, 1)]

    def _assert_group_stands(self, case: Case, *, is_set: bool) -> None:
        stands = with_client(self._broker.bootstrap, lambda client: positions_of(client, group_of(case)))
        assert {place: one.offset for place, one in stands.items()} == ({(target_of(case), 0): 1} if is_set else {})

    def _assert_restored(self, case: Case) -> None:
        found = self._oracle.consume(self._broker.bootstrap, target_of(case)).records
        values = {number: [record.value for record in records] for number, records in found.items()}
        if "--into-existing" in case.command.typed:
            assert values == {0: [b"theirs", *RECORDS[0]], 1: list(RECORDS[1])}
        elif "--repartition" in case.command.typed:
            assert sorted(value for some in values.values() for value in some if value) == [b"one", b"three", b"two"]
        else:
            assert values == {number: list(some) for number, some in RECORDS.items()}
        if "--groups" in case.command.typed:
            self._assert_group_stands(case, is_set=case.missing is not Right.READ_GROUPS)

    def _kept_positions(self, case: Case) -> set[str]:
        below = [key.removeprefix(prefix_of(case) + "/") for key in keys_below(self._site.bucket, prefix_of(case))]
        kept = {"topic"} if any(key.startswith(f"topics/{OFFSETS}/") for key in below) else set()
        (*_, last) = ["", *(key for key in below if key.startswith("control/group-positions/"))]
        if not last:
            return kept
        got = s3_client(self._site.bucket).get_object(Bucket=self._site.bucket.name, Key=f"{prefix_of(case)}/{last}")
        return kept | {"snapshot", *(json.loads(got["Body"].read())["groups"].keys() & {GROUP})}

    @staticmethod
    def _wanted_positions(case: Case) -> set[str]:
        match case.command.backup["groups"], case.missing:
            case ("topic" | "auto", missing) if missing is not Right.READ_OFFSETS:
                return {"topic"}
            case ("snapshot", missing) if missing is not Right.DESCRIBE_GROUPS:
                return {"snapshot", GROUP}
            case ("snapshot", _) | ("auto", _):
                return {"snapshot"}
            case _:
                return set()

    def assert_nothing_begun(self, case: Case, before: Picture) -> None:
        """But for what a backup notes before it archives anything, and other topics; and what a rollback notes before it sets a group back."""
        after = self.picture()
        hints = {COORDINATION}
        assert {name: after.topics[name] for name in after.topics.keys() - hints} == {
            name: before.topics[name] for name in before.topics.keys() - hints
        }
        new = after.objects.keys() - before.objects.keys()
        others: tuple[str, ...] = ()
        if case.command.kind in {Kind.BACKUP, Kind.SERVICE, Kind.INSTANCE, Kind.IMPORT}:
            root = prefix_of(case)
            others = (f"{root}/control/", f"{root}/topics/{OFFSETS}/", f"{root}/README.txt")
        elif case.command.kind is Kind.ROLLBACK:
            others = (f"{prefix_of(case)}/control/restores/{group_of(case)}/@groups/",)
        runs = f"{prefix_of(case)}/control/runs/"  # a failed run puts a note, and deletes old ones
        others += (runs, f"{second_of(case)}/control/probe/")
        assert not [key for key in new if not key.startswith(others)]
        kept = {key: etag for key, etag in before.objects.items() if not key.startswith(runs)}
        assert kept.items() <= after.objects.items()


def says(stage: RightsStage, case: Case) -> str:
    """What the loss of its right is told by, as a regular expression."""
    assert case.loss is not None
    names = {
        "{target}": rf"{SCRATCH}\w+-\d+" if case.command.kind is Kind.DRILL else re.escape(target_of(case)),
        "{topic}": re.escape(topic_of(case)),
        "{group}": re.escape(stage.group),
    }
    text = case.loss.says
    for name, value in names.items():
        text = text.replace(name, value)
    return text


def target_of(case: Case) -> str:
    """Of a drill, the prefix of its scratch topics."""
    return SCRATCH if case.command.kind is Kind.DRILL else f"back.{case.number}"


def topic_of(case: Case) -> str:
    """What is archived."""
    if case.command.kind in {Kind.SWEEP, Kind.GONE, Kind.COMPARED, Kind.CLEARED}:
        return f"old-{case.number}"
    return KEPT if case.command.kind in {Kind.INSTANCE, Kind.COPIED} else ORDERS


def group_of(case: Case) -> str:
    """Also the id of the restore by which it was set."""
    return f"set.{case.number}"


def prefix_of(case: Case) -> str:
    has_own = case.command.kind in {
        Kind.BACKUP,
        Kind.SERVICE,
        Kind.IMPORT,
        Kind.FOLD,
        Kind.INSTANCE,
        Kind.COPIED,
        Kind.SAME,
        Kind.LACKING,
        Kind.HOLD,
        Kind.HELD,
        Kind.GONE,
        Kind.COMPARED,
        Kind.CLEARED,
        Kind.SWEEP,
    }
    return f"fresh/{case.number}" if has_own else PREFIX


def second_of(case: Case) -> str:
    """The prefix of the second archive."""
    return f"second/{case.number}"


def _run(arguments: Sequence[str]) -> Done:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(arguments)
    return Done(code, out.getvalue(), (out.getvalue() + err.getvalue()).splitlines())


@contextmanager
def acting(bucket: Bucket, statements: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, str]]:
    """Have this process come to the store as somebody with these rights alone; gives what another process needs for that."""
    sts = boto3.client(
        "sts",
        endpoint_url=bucket.s3.endpoint,
        aws_access_key_id=bucket.s3.access_key,
        aws_secret_access_key=bucket.s3.secret_key,
        region_name="us-east-1",
    )
    nothing = {"Effect": "Allow", "Action": ["s3:GetObject"], "Resource": ["arn:aws:s3:::nobodys/nothing"]}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [*statements, nothing]})
    given = sts.assume_role(RoleArn="arn:any:of:any:role:any", RoleSessionName="test", Policy=policy)["Credentials"]
    sts.close()
    environment = {
        "AWS_ACCESS_KEY_ID": given["AccessKeyId"],
        "AWS_SECRET_ACCESS_KEY": given["SecretAccessKey"],
        "AWS_SESSION_TOKEN": given["SessionToken"],
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, text in environment.items():
            patch.setenv(name, text)
        _open_once.cache_clear()  # what the one before had opened
        yield environment
    _open_once.cache_clear()


def objects_of(bucket: Bucket, prefix: str = "") -> dict[str, str]:
    pages = s3_client(bucket).get_paginator("list_objects_v2").paginate(Bucket=bucket.name, Prefix=prefix)
    return {item["Key"]: item["ETag"] for page in pages for item in page.get("Contents", [])}


def keys_below(bucket: Bucket, prefix: str) -> list[str]:
    return sorted(objects_of(bucket, prefix))


def archived_values(bucket: Bucket, prefix: str, topic: str) -> dict[int, list[bytes]]:
    """By fastavro."""
    found: dict[int, list[bytes]] = {}
    for key in keys_below(bucket, f"{prefix}/topics/{topic}/"):
        body = s3_client(bucket).get_object(Bucket=bucket.name, Key=key)["Body"].read()
        for record in cast("Iterator[dict[str, Any]]", fastavro.reader(io.BytesIO(body))):
            found.setdefault(record["partition"], []).append(record["value"])
    return found


def _write_keyed(bootstrap: str, topic: str, values: Sequence[bytes], partition: int) -> None:
    """Each under a key of its own."""
    producer = producer_of(bootstrap)
    for value in values:
        producer.produce(topic, value, key=value, partition=partition)
    assert producer.flush(30) == 0


def copied_values(bucket: Bucket, prefix: str, topic: str, partition: int) -> dict[int, list[bytes]]:
    """Of each generation of instance a that stands, the values, by fastavro. One may be deleted meanwhile."""
    found: dict[int, list[bytes]] = {}
    for key in keys_below(bucket, f"{prefix}/compacted/a/topics/{topic}/partition={partition}/"):
        with contextlib.suppress(s3_client(bucket).exceptions.NoSuchKey):
            body = s3_client(bucket).get_object(Bucket=bucket.name, Key=key)["Body"].read()
            number = int(key.partition("/generation=")[2].partition("/")[0])
            records = cast("Iterator[dict[str, Any]]", fastavro.reader(io.BytesIO(body)))
            found.setdefault(number, []).extend(record["value"] for record in records)
    return found
