"""Whoever may write below `control/restores/` of a shared bucket knows every rule of it, and steers nobody's restore with that."""

import copy
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

import archiver.restore.fill.partition_restore
import archiver.restore.fill.sending
from archiver.archive.format.control import encode_fact
from archiver.codec.selection import TopicSelection
from archiver.errors import ArchiverError, NotWholeError, TargetError, UsageError
from archiver.kafka.records.log_reader import LogRange, producer_at
from archiver.restore.plan.request import Existing
from archiver.restore.plan.restore_notes import RestoreNotes
from archiver.restore.report.restore_report import TopicReport
from archiver.restore.targets.target_configs import TargetConfigs
from tests.support.brokers import Broker
from tests.support.foreign_reader import keys_in, s3_client
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_topics import create_topic, produce_values, with_client
from tests.support.produce_doubles import Killed, MortalProduce
from tests.support.round_trip import KEEP_ALL, ArchiveSite
from tests.support.target_topics import (
    archived,
    configs_of,
    id_of,
    log_of,
    on_target,
    records_of,
    restored,
    set_configs,
)

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(240)]

Fact = dict[str, Any]
Forge = Callable[[Fact], object]  # what is changed of a plan, or of a claim
FILLED = {
    "cleanup.policy": "delete",
    "message.timestamp.type": "CreateTime",
    "segment.bytes": str(2**30),
    "segment.ms": str(2**63 - 1),
}


@dataclass(frozen=True, slots=True)
class Forger:
    """May put objects below `control/restores/`, and nothing else."""

    site: ArchiveSite
    target: str
    restore_id: str = "mine"

    def place(self, stream: str) -> str:
        return f"control/restores/{self.restore_id}/{self.target}/{stream}/"

    def read(self, stream: str) -> Fact:
        bucket, key = self.site.bucket, self._keys(stream)[-1]
        fact: Fact = json.loads(s3_client(bucket).get_object(Bucket=bucket.name, Key=key)["Body"].read())
        del fact["sha256"]
        return fact

    def note(self, stream: str, fact: Mapping[str, object]) -> str:
        """As the newest of its stream. Returns its key."""
        key = f"{self.place(stream)}{len(self._keys(stream)):06}.json"
        s3_client(self.site.bucket).put_object(Bucket=self.site.bucket.name, Key=key, Body=encode_fact(fact))
        return key

    def replace(self, stream: str, fact: Mapping[str, object]) -> None:
        """Overwrite the newest of its stream."""
        key = self._keys(stream)[-1]
        s3_client(self.site.bucket).put_object(Bucket=self.site.bucket.name, Key=key, Body=encode_fact(fact))

    def forge(self, stream: str, change: Forge) -> str:
        fact = copy.deepcopy(self.read(stream))
        change(fact)
        return self.note(stream, fact)

    def take_back(self, key: str) -> None:
        s3_client(self.site.bucket).delete_object(Bucket=self.site.bucket.name, Key=key)

    def _keys(self, stream: str) -> Sequence[str]:
        return [key for key in keys_in(self.site.bucket, self.place(stream)) if key.count("/") == 5]


def half_restored(
    site: ArchiveSite,
    broker: Broker,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    batches: int = 3,
    **asked: Any,  # noqa: ANN401
) -> Forger:
    """Killed when some batches were taken."""
    mortal = MortalProduce()
    mortal.live(batches)
    with monkeypatch.context() as patch:
        patch.setattr(archiver.restore.fill.sending, "produce", mortal)
        with pytest.raises(Killed):
            restored(site, broker, topic, restore_id="mine", batch_bytes=300, **asked)
    return Forger(site, f"{topic}.back")


def put(*path: str | int, value: object) -> Forge:
    """Another value at a place of a fact."""

    def change(fact: Any) -> None:  # noqa: ANN401
        for step in path[:-1]:
            fact = fact[step]
        fact[path[-1]] = value

    return change


def part(number: int, at: int, column: int, value: object) -> Forge:
    return put("partitions", number, "parts", at, column, value=value)


def leave_out(at: int, *, number: int = 0) -> Forge:
    """An object, with all that tells of it."""

    def change(fact: Fact) -> None:
        partition = fact["partitions"][number]
        del partition["parts"][at]
        partition["records"] -= partition["facts"].pop(at)[1]

    return change


KEY, FROM, _, _, CHOSEN = range(5)
PLANS: dict[str, tuple[Forge, type[ArchiverError], str]] = {
    "another target": (put("target", value="live"), NotWholeError, "not a plan of a restore"),
    "another source": (put("source", value="SOURCE2"), UsageError, "was begun with topic"),
    "a life that is not": (put("life", value=7), NotWholeError, "is of life 7"),
    "behind a live topic": (put("appends", value=True), UsageError, "was begun with --into-existing"),
    "another number of partitions": (put("repartition", value=2), NotWholeError, "dealt out to"),
    "an object of another topic": (part(0, 1, KEY, "topics/SOURCE2/partition=0/SOURCE2+0-00000000000000000020.data"), NotWholeError, "is not where its objects are"),
    "an object left out": (leave_out(1), NotWholeError, "leaves out topics/"),
    "fewer offsets": (put("partitions", 0, "selection", "last_offset", value=35), NotWholeError, "as its selection of"),
    "chosen records": (part(0, 0, CHOSEN, "control/restores/mine/TARGET/0/chosen/" + "0" * 24 + ".offsets"), NotWholeError, "chosen"),
    "what is missing": (put("partitions", 0, "missing", value=["an object"]), NotWholeError, "without --skip-damaged"),
    "partitions that are not": (lambda fact: fact["partitions"].append({**fact["partitions"][1], "partition": 2}), NotWholeError, "3 partitions of 2"),
    "fewer partitions": (lambda fact: fact["partitions"].pop(), NotWholeError, "has other objects of .*-1 than an earlier plan"),
    "a piece from elsewhere": (put("partitions", 0, "pieces", value=["../../../other/x/plan/0-" + "0" * 24]), NotWholeError, "is no piece of partition 0"),
    "another request": (put("terms", "skips_damage", value=True), UsageError, "was begun with other options"),
    "texts for numbers": (part(0, 0, FROM, "0"), NotWholeError, "where a number from 0 to"),
}  # fmt: skip
CLAIMS: dict[str, tuple[Forge, str]] = {
    "a later beginning": (put("start_offset", value=10), "begins at offset 10 of a topic that was empty"),
    "verified too early": (put("verified", value={"records": 5, "digest": "0" * 16, "bytes": 5, "leader_epoch": 0}), "records of partition 0 were verified, and 60 are planned"),
}  # fmt: skip


def named(forge: Forge, forger: Forger, topic: str) -> Forge:
    """With the names of this test."""

    def change(fact: Fact) -> None:
        forge(fact)
        text = json.dumps(fact).replace("SOURCE2", f"{topic}.other").replace("SOURCE", topic)
        fact.update(json.loads(text.replace("TARGET", forger.target)))

    return change


def test_no_value_of_a_plan_or_a_claim_decides_alone(
    broker_41: Broker, topic: str, site: ArchiveSite, java_oracle: JavaOracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restore was killed. Each forgery is refused, and changes nothing; without them it goes on, and all comes back."""
    ours = archived(broker_41, topic, site, records_of(60), records_of(60), compression_type="lz4", retention_ms="777")
    archived(broker_41, f"{topic}.other", site, records_of(60), records_of(60))
    forger = half_restored(site, broker_41, topic, monkeypatch)
    target = forger.target
    standing = log_of(broker_41, target), configs_of(broker_41, target)
    assert 0 < standing[0][1] < 60

    def refused(stream: str, forge: Forge, error: type[ArchiverError], told: str, name: str) -> None:
        key = forger.forge(stream, named(forge, forger, topic))
        try:
            if error is NotWholeError and stream != "plan":
                (report,) = [
                    one for one in restored(site, broker_41, topic, restore_id="mine").partitions if one.error
                ][:1]
                assert (report.exit_code, told in report.error) == (3, True), (name, report)
            else:
                with pytest.raises(error, match=told) as caught:
                    restored(site, broker_41, topic, restore_id="mine")
                assert caught.value.exit_code in {2, 3}, name
        finally:
            forger.take_back(key)

    for name, (forge, error, told) in PLANS.items():
        refused("plan", forge, error, told, name)
        assert (log_of(broker_41, target), configs_of(broker_41, target)) == standing, name
    for name, (forge, told) in CLAIMS.items():
        refused("0", forge, NotWholeError, told, name)
        assert log_of(broker_41, target) == standing[0], name

    place = {key: forger.read("plan")[key] for key in ("format", "target_cluster_id", "target_topic_id")}
    key = forger.note("finished", place)
    with pytest.raises(TargetError, match="was noted as finished by restore mine, and not all of it as verified"):
        restored(site, broker_41, topic, restore_id="mine")
    forger.take_back(key)

    # Configs are those of the archive, whatever was noted; and what has those of the filling is not finished.
    forger.forge("plan", put("final_configs", value={"cleanup.policy": "compact", "max.message.bytes": "100"}))
    forger.forge("plan", put("archived_retention", value={"retention.ms": "1"}))

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(TargetConfigs, "set_archived", die)
        with pytest.raises(Killed):
            restored(site, broker_41, topic, restore_id="mine")
    forger.note("finished", place)
    report = restored(site, broker_41, topic, restore_id="mine")
    assert (report.errors, report.is_finished) == ((), True)
    assert "--add-config retention.ms=777 " in f"{report.retention_command} "
    assert on_target(java_oracle, broker_41, target) == ours
    configs = configs_of(broker_41, target)
    assert (configs["compression.type"], configs.get("cleanup.policy"), "segment.ms" in configs) == ("lz4", None, False)


def test_what_came_behind_a_plan_is_told(
    broker_41: Broker,
    topic: str,
    site: ArchiveSite,
    java_oracle: JavaOracle,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Objects that a plan lacks at its end may have come since: the restore goes on as it was begun, and says what it leaves."""
    ours = archived(broker_41, topic, site, records_of(60), records_of(60))
    forger = half_restored(site, broker_41, topic, monkeypatch)
    shortened = forger.read("plan")
    leave_out(-1)(shortened)
    key = forger.note("plan", shortened)
    with pytest.raises(NotWholeError, match=r"has other objects of .*-0 than an earlier plan there"):
        restored(site, broker_41, topic, restore_id="mine")
    forger.take_back(key)
    forger.replace("plan", shortened)
    with caplog.at_level(logging.WARNING):
        report = restored(site, broker_41, topic, restore_id="mine")
    assert report.errors == ()
    (told,) = [one.getMessage() for one in caplog.records if "goes on as it was planned" in one.getMessage()]
    assert f"the archive of {topic} has 1 object with 20 records behind that, which are not restored" in told
    assert on_target(java_oracle, broker_41, forger.target) == {0: ours[0][:40], 1: ours[1]}


def test_a_live_topic_is_nobodys_begun_restore(
    broker_41: Broker, topic: str, site: ArchiveSite, java_oracle: JavaOracle
) -> None:
    """Facts that name its id and the producers of its records: nothing is written behind them, and its configs stay."""
    archived(broker_41, topic, site, records_of(60))
    live = f"{topic}.live"
    create_topic(broker_41.bootstrap, live, 1, {**KEEP_ALL, "segment.ms": "600000"})
    produce_values(broker_41.bootstrap, live, [b"%d" % at for at in range(40)], enable_idempotence=True)
    where = LogRange(topic=live, topic_id="", partition=0, start=0, end=1)
    writer = with_client(broker_41.bootstrap, lambda client: producer_at(client, where))
    assert writer >= 0

    restored(site, broker_41, topic, restore_id="mine")
    donor, forger = Forger(site, f"{topic}.back"), Forger(site, live)
    place = {"target_topic_id": id_of(broker_41, live)}
    forger.note("0", {**donor.read("0"), **place, "producer_id": writer, "verified": None})
    before = on_target(java_oracle, broker_41, live), configs_of(broker_41, live)

    def attempt(**asked: Any) -> TopicReport:  # noqa: ANN401
        found = site.restore(broker_41.bootstrap, topics=topic, rename=[f"{topic}={live}"], restore_id="mine", **asked)
        return found.topics[0]

    with pytest.raises(TargetError, match="is claimed for restore mine, and no plan was noted for it"):
        attempt()
    forger.note("plan", {**donor.read("plan"), **place, "target": live})
    forger.note(
        "replaced",
        {**place, "format": 1, "target_cluster_id": donor.read("0")["target_cluster_id"], "target_topic_id": ""},
    )
    for asked in ({}, {"existing": Existing.APPEND}, {"existing": Existing.PURGE, "purges_unread": True}):
        with pytest.raises(TargetError, match="has records, and not the configs that a restore gives"):
            attempt(**asked)
        assert (on_target(java_oracle, broker_41, live), configs_of(broker_41, live)) == before
    set_configs(broker_41, live, **FILLED)  # as if its owner had been talked into it
    (error,) = attempt().errors
    assert "the record at offset 39 is not the one of the archive" in error.error
    assert error.exit_code == 3
    assert on_target(java_oracle, broker_41, live) == before[0]


def test_records_dealt_out_go_behind_nobody_elses(broker_41: Broker, topic: str, site: ArchiveSite) -> None:
    """A claim on all partitions of a target: its beginning, its producers, what was verified, and what others have written."""
    archived(broker_41, topic, site, records_of(60), records_of(60))
    restored(site, broker_41, topic, restore_id="mine", repartition=3)
    forger = Forger(site, f"{topic}.back")
    forgeries: list[tuple[Forge, str]] = [
        (lambda fact: fact.update(start_offsets=[0, 5, 0], verified=None), "begins at offset 5"),
        (put("verified", "targets", 0, "records", value=0), "other records were dealt out"),
    ]  # fmt: skip
    forger.take_back(forger.place("finished") + "000000.json")  # else it stays as it is
    set_configs(broker_41, forger.target, **FILLED)
    for forge, told in forgeries:
        key = forger.forge("repartition", forge)
        errors = restored(site, broker_41, topic, restore_id="mine", repartition=3).errors
        assert errors, told
        assert all(told in one.error and one.exit_code == 3 for one in errors), errors
        forger.take_back(key)
    assert restored(site, broker_41, topic, restore_id="mine", repartition=3).errors == ()


def test_a_claim_of_no_record_does_not_count_where_facts_do_not_tell_the_number(
    broker_41: Broker, topic: str, site: ArchiveSite, java_oracle: JavaOracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a window within one object any number may be right, and nothing on the target contradicts that there is none."""
    ours = archived(broker_41, topic, site, records_of(20))
    wanted = TopicSelection(offsets={0: (5, 14)})

    def die(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(archiver.restore.fill.partition_restore, "_fill", die)
        with pytest.raises(Killed):
            restored(site, broker_41, topic, restore_id="mine", wanted=wanted)
    forger = Forger(site, f"{topic}.back")
    forger.forge("0", put("verified", value={"records": 0, "digest": "0" * 16, "bytes": 0, "leader_epoch": 0}))
    report = restored(site, broker_41, topic, restore_id="mine", wanted=wanted)
    assert (report.errors, report.records) == ((), 10)
    found = on_target(java_oracle, broker_41, forger.target)[0]
    assert [one.value for one in found] == [one.value for one in ours[0][5:15]]


def test_a_plan_that_is_noted_while_the_target_is_made_leaves_nothing_out(
    broker_41: Broker, topic: str, site: ArchiveSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that goes on says what came behind its plan. A first run has planned all of it itself."""
    archived(broker_41, topic, site, records_of(60))
    forger, note_plans = Forger(site, f"{topic}.back"), RestoreNotes.note_plans

    def forged(notes: RestoreNotes, *asked: Any) -> object:  # noqa: ANN401
        """As if the shortened plan had been there first."""
        note_plans(notes, *asked)
        shortened = forger.read("plan")
        leave_out(-1)(shortened)
        forger.replace("plan", shortened)
        return note_plans(notes, *asked)

    with monkeypatch.context() as patch:
        patch.setattr(RestoreNotes, "note_plans", forged)
        with pytest.raises(NotWholeError, match="has other objects than this run has planned, and was noted meanwhile"):
            restored(site, broker_41, topic, restore_id="mine")
    assert log_of(broker_41, forger.target) == (0, 0)
