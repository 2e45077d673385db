"""`--purge-target` deletes only what the archive can give back: it is read whole before, and held against what is there."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

import archiver.restore.targets.targets
from archiver.codec.selection import TopicSelection
from archiver.errors import NotWholeError, TargetError
from archiver.kafka.brokers.client import KafkaClient
from archiver.restore.plan.request import Existing
from archiver.restore.plan.restore_notes import RestoreNotes
from tests.support.brokers import Broker, StartBroker
from tests.support.cluster import cut_log
from tests.support.foreign_reader import keys_in, s3_client
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_topics import add_partitions, create_topic, producer_of, recreate_topic
from tests.support.round_trip import KEEP_ALL, ArchiveSite
from tests.support.service import eventually
from tests.support.target_topics import archived, foreign_topic, id_of, log_of, on_target, records_of, restored, write

pytestmark = [pytest.mark.kafka, pytest.mark.s3]


def flip(site: ArchiveSite, key: str) -> None:
    """Change one bit in the middle of an object's last block; its metadata, and so its facts, stay."""
    client = s3_client(site.bucket)
    found = client.get_object(Bucket=site.bucket.name, Key=key)
    body = bytearray(found["Body"].read())
    body[-40] ^= 1
    client.put_object(Bucket=site.bucket.name, Key=key, Body=bytes(body), Metadata=found["Metadata"])


def purged(site: ArchiveSite, broker: Broker, topic: str, **asked: Any) -> Any:  # noqa: ANN401 - a TopicReport
    """Restore a topic in its own place."""
    (report,) = site.restore(broker.bootstrap, topics=topic, existing=Existing.PURGE, **asked).topics
    return report


def refusal(site: ArchiveSite, broker: Broker, topic: str, **asked: Any) -> tuple[int, str]:  # noqa: ANN401
    """What the restore says, and that it has changed nothing, the topic least of all."""
    before, notes = id_of(broker, topic), keys_in(site.bucket, "control/restores/")
    with pytest.raises((TargetError, NotWholeError)) as caught:
        purged(site, broker, topic, **asked)
    assert (id_of(broker, topic), keys_in(site.bucket, "control/restores/")) == (before, notes)
    return caught.value.exit_code, str(caught.value)


@pytest.mark.timeout(180)
def test_what_cannot_be_read_is_known_before_anything_is_purged(
    broker_41: Broker, topic: str, site: ArchiveSite, java_oracle: JavaOracle
) -> None:
    """A dry run tells it, by the command itself, with Spark; a restore refuses; one that was told not to look finds it too late."""
    archived(broker_41, topic, site, records_of(60), records_of(20))
    there = foreign_topic(broker_41, f"{topic}.back", 7, 7)
    key = keys_in(site.bucket, f"topics/{topic}/partition=0/")[1]
    flip(site, key)
    site.write_config(broker_41.bootstrap, topic)
    site.write_target(broker_41.bootstrap)
    command = ["restore", "--target", "target.yaml", "--topics", topic, "--rename", f"{topic}={topic}.back"]
    command += ["--purge-target", "--format", "json"]
    dry = site.run(*command, "--dry-run")
    assert dry.returncode == 3, dry.stdout + dry.stderr
    (line,) = json.loads(dry.stdout)["damage"]
    assert f"target topic {topic}.back is not purged: the archive cannot replace it" in line
    assert f"offsets 20-39 in {key}" in line
    assert line in dry.stderr
    with pytest.raises(NotWholeError) as caught:
        restored(site, broker_41, topic, existing=Existing.PURGE)
    assert str(caught.value) == line
    assert on_target(java_oracle, broker_41, f"{topic}.back") == there
    report = restored(site, broker_41, topic, existing=Existing.PURGE, purges_unread=True)
    assert [(one.partition, one.exit_code, key in one.error) for one in report.errors] == [(0, 3, True)]
    assert log_of(broker_41, f"{topic}.back", 1) == (0, 20)


def test_damage_that_is_skipped_must_leave_something(
    broker_41: Broker, topic: str, site: ArchiveSite, java_oracle: JavaOracle
) -> None:
    ours = archived(broker_41, topic, site, records_of(60))
    foreign_topic(broker_41, f"{topic}.back", 7)
    keys = keys_in(site.bucket, f"topics/{topic}/partition=0/")
    ask: dict[str, Any] = {"existing": Existing.PURGE, "skips_damage": True}
    flip(site, keys[0])
    # The topic itself may have what is damaged; whatever is asked for, it is not deleted.
    code, said = refusal(site, broker_41, topic, skips_damage=True)
    assert (code, f"target topic {topic} is not purged: it is itself the topic that was archived" in said) == (3, True)
    assert restored(site, broker_41, topic, **ask).records == 40
    assert [one.value for one in on_target(java_oracle, broker_41, f"{topic}.back")[0]] == [
        one.value for one in ours[0][20:]
    ]
    for key in keys[1:]:
        flip(site, key)
    foreign_topic(broker_41, f"{topic}.other", 7)
    with pytest.raises(NotWholeError, match="nothing would be in its place"):
        site.restore(broker_41.bootstrap, topics=topic, rename=[f"{topic}={topic}.other"], **ask)
    assert log_of(broker_41, f"{topic}.other") == (0, 7)


@pytest.mark.parametrize("length", [200, 249])
def test_a_topic_with_a_long_name_is_purged(
    broker_41: Broker, topic: str, site: ArchiveSite, java_oracle: JavaOracle, length: int
) -> None:
    """What stands in for its name, while that is taken, is no longer than a name may be."""
    ours = archived(broker_41, topic, site, records_of(20))
    target = (topic + "x" * length)[:length]
    foreign_topic(broker_41, target, 7)
    (report,) = site.restore(
        broker_41.bootstrap, topics=topic, rename=[f"{topic}={target}"], existing=Existing.PURGE
    ).topics
    assert report.errors == ()
    assert on_target(java_oracle, broker_41, target) == ours


def test_a_purge_that_would_leave_nothing(broker_41: Broker, topic: str, site: ArchiveSite) -> None:
    archived(broker_41, topic, site, [])
    foreign_topic(broker_41, f"{topic}.back", 7)
    with pytest.raises(TargetError, match=rf"{topic}.back is not purged: it has records, the archive has none of"):
        restored(site, broker_41, topic, existing=Existing.PURGE)
    assert log_of(broker_41, f"{topic}.back") == (0, 7)
    create_topic(broker_41.bootstrap, f"{topic}.other")
    made = id_of(broker_41, f"{topic}.other")
    site.restore(
        broker_41.bootstrap, topics=topic, rename=[f"{topic}={topic}.other"], existing=Existing.PURGE
    )  # nothing is lost with it
    assert id_of(broker_41, f"{topic}.other") != made


def test_what_is_not_archived_yet_is_not_purged(
    broker: Broker, topic: str, site: ArchiveSite, java_oracle: JavaOracle
) -> None:
    """The target is the archived topic itself; one of its partitions is not known to the archive."""
    ours = archived(broker, topic, site, records_of(60), records_of(10))
    write(broker, topic, records_of(70)[60:], 0)
    add_partitions(broker.bootstrap, topic, 3)
    write(broker, topic, records_of(5), 2)
    code, said = refusal(site, broker, topic, skips_damage=True)
    assert (code, "up to 15 records of it are not in the archive" in said) == (2, True), said
    assert "archiver backup --until-end" in said
    site.back_up(broker.bootstrap, topic, records=20)
    assert purged(site, broker, topic).errors == ()
    assert on_target(java_oracle, broker, topic) == {0: records_of(70), 1: ours[1], 2: records_of(5)}


def test_what_was_never_to_be_archived_is_not_purged(broker_41: Broker, topic: str, site: ArchiveSite) -> None:
    """Offsets that a segment covers, and that it does not have: a backup that was told to begin late."""
    create_topic(broker_41.bootstrap, topic, 1, KEEP_ALL)
    write(broker_41, topic, records_of(30))
    site.write_config(broker_41.bootstrap, topic)
    path = site.folder / "archive.yaml"
    path.write_text(path.read_text().replace("backup:\n", "backup:\n  start: latest\n"))
    assert site.run_within("backup", "--until-end").returncode == 0
    write(broker_41, topic, records_of(40)[30:])
    assert site.run_within("backup", "--until-end").returncode == 0
    code, said = refusal(site, broker_41, topic)
    assert (code, "up to 30 records of it are not in the archive" in said) == (2, True), said


def test_a_log_that_was_cut_back_is_not_purged_for_its_numbers(
    new_broker: StartBroker, topic: str, site: ArchiveSite
) -> None:
    """It ends below the archive, and has other records there since."""
    broker = new_broker()
    archived(broker, topic, site, records_of(100))
    broker.stop()
    cut_log(broker, topic, 0, 50)
    broker.start()
    write(broker, topic, records_of(70, mark=b"other")[50:])
    code, said = refusal(site, broker, topic)
    assert (code, "up to 20 records of it are not in the archive" in said) == (2, True), said


def test_what_comes_while_the_archive_is_read_is_seen(
    broker_41: Broker, topic: str, site: ArchiveSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A producer writes when all has been looked at; and again when it is noted that the topic goes."""
    archived(broker_41, topic, site, records_of(10))
    noted = RestoreNotes.note_replaced

    def write_and_note(*arguments: Any) -> None:  # noqa: ANN401
        write(broker_41, topic, records_of(11)[10:])
        noted(*arguments)

    before = id_of(broker_41, topic)
    monkeypatch.setattr(RestoreNotes, "note_replaced", write_and_note)
    with pytest.raises(TargetError, match="up to 1 record of it is not in the archive"):
        purged(site, broker_41, topic)
    assert (id_of(broker_41, topic), log_of(broker_41, topic)) == (before, (0, 11))


def test_only_some_of_it_in_its_own_place(broker_41: Broker, topic: str, site: ArchiveSite) -> None:
    """All of it is archived, so what is left out is still there."""
    archived(broker_41, topic, site, records_of(60))
    assert purged(site, broker_41, topic, wanted=TopicSelection(offsets={0: (0, 29)})).records == 30


# --- which topic it is


def test_a_topic_that_the_archive_cannot_name_is_not_purged(broker_41: Broker, topic: str, site: ArchiveSite) -> None:
    """Its control facts are gone: nothing tells whether the topic is the one that was archived, with 80 records more."""
    archived(broker_41, topic, site, records_of(20))
    write(broker_41, topic, records_of(100)[20:])
    client = s3_client(site.bucket)
    for key in keys_in(site.bucket, f"control/topics/{topic}/"):
        client.delete_object(Bucket=site.bucket.name, Key=key)
    code, said = refusal(site, broker_41, topic, skips_damage=True, purges_unread=True)
    assert (code, "it may be this very one; run `archiver backup --until-end`" in said) == (2, True), said
    site.back_up(broker_41.bootstrap, topic)
    assert purged(site, broker_41, topic).records == 100


def test_a_topic_that_was_archived_without_an_id_is_not_purged(
    broker_41: Broker, topic: str, site: ArchiveSite
) -> None:
    """Its life has an empty id: it may be the topic that has an id now. A backup archives that as another life."""
    archived(broker_41, topic, site, records_of(20))
    write(broker_41, topic, records_of(100)[20:])
    client = s3_client(site.bucket)
    (key,) = keys_in(site.bucket, f"control/topics/{topic}/")
    note = json.loads(client.get_object(Bucket=site.bucket.name, Key=key)["Body"].read())
    note["lives"][0]["topic_id"] = ""
    del note["sha256"]
    client.put_object(Bucket=site.bucket.name, Key=key, Body=json.dumps(note).encode())
    code, said = refusal(site, broker_41, topic)
    assert (code, "it may be this very one; run `archiver backup --until-end`" in said) == (2, True), said
    assert log_of(broker_41, topic) == (0, 100)
    site.back_up(broker_41.bootstrap, topic)
    assert purged(site, broker_41, topic).records == 100


def test_another_archived_topic_is_not_purged_for_this_one(broker_41: Broker, topic: str, site: ArchiveSite) -> None:
    """By --rename: what is not archived of the target is lost with it all the same, and what is damaged may be there alone."""
    archived(broker_41, f"{topic}.back", site, records_of(60))
    archived(broker_41, topic, site, records_of(20))
    write(broker_41, f"{topic}.back", records_of(100)[60:])
    with pytest.raises(TargetError, match=rf"{topic}\.back is not purged: it is itself .* up to 40 records"):
        restored(site, broker_41, topic, existing=Existing.PURGE)
    site.back_up(broker_41.bootstrap, f"{topic}.back")
    flip(site, keys_in(site.bucket, f"topics/{topic}.back/")[1])
    with pytest.raises(NotWholeError, match="may have the only whole copy of what is damaged"):
        restored(site, broker_41, topic, existing=Existing.PURGE, skips_damage=True)
    assert log_of(broker_41, f"{topic}.back") == (0, 100)


@pytest.mark.parametrize("asked", [{"wanted": TopicSelection(partitions=frozenset({0}))}, {"life": 0}], ids=str)
def test_all_of_a_topic_is_read_before_some_of_it_takes_its_place(
    broker_41: Broker, topic: str, site: ArchiveSite, asked: dict[str, Any]
) -> None:
    """The whole topic goes, also the partitions, and the life, that are not asked for."""
    archived(broker_41, topic, site, records_of(60), records_of(60))
    if "life" in asked:
        recreate_topic(broker_41.bootstrap, topic, 2, KEEP_ALL)
        write(broker_41, topic, records_of(30), 1)
        site.back_up(broker_41.bootstrap, topic, records=20)
    damaged = [key for key in keys_in(site.bucket, f"topics/{topic}") if f"{topic}+1" in key or "+1-" in key]
    damaged = [key for key in damaged if ("@1" in key) == ("life" in asked)]
    flip(site, damaged[-1])
    code, said = refusal(site, broker_41, topic, **asked)
    assert (code, "may have the only whole copy of what is damaged" in said, damaged[-1] in said) == (3, True, True)


@pytest.mark.parametrize("way", ["times", "offsets"])
def test_what_is_asked_for_has_no_record(broker_41: Broker, topic: str, site: ArchiveSite, way: str) -> None:
    """Facts of objects do not tell it: the times lie between two records of one, the offsets are of an aborted transaction."""
    create_topic(broker_41.bootstrap, topic, 1, KEEP_ALL)
    records = records_of(10)
    write(broker_41, topic, records)
    producer = producer_of(broker_41.bootstrap, transactional_id=topic)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"never")
    producer.flush(30)
    producer.abort_transaction(30)
    eventually(lambda: log_of(broker_41, topic) == (0, 12))
    write(broker_41, topic, [replace(one, timestamp=one.timestamp + 100_000) for one in records])
    site.back_up(broker_41.bootstrap, topic)
    foreign_topic(broker_41, f"{topic}.back", 7)
    between = records[-1].timestamp + 1_000
    wanted = {
        "times": TopicSelection(from_ms=between, until_ms=between + 1_000),
        "offsets": TopicSelection(offsets={0: (10, 11)}),
    }[way]
    for skips_damage in (False, True):
        with pytest.raises((NotWholeError, TargetError), match="nothing would be in its place"):
            restored(site, broker_41, topic, existing=Existing.PURGE, wanted=wanted, skips_damage=skips_damage)
    assert log_of(broker_41, f"{topic}.back") == (0, 7)


def test_a_topic_that_takes_its_place_meanwhile_is_not_purged(
    broker_41: Broker, topic: str, site: ArchiveSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the same name, with another id."""
    archived(broker_41, topic, site, records_of(10))
    foreign_topic(broker_41, f"{topic}.back", 7)
    prepare = archiver.restore.targets.targets.Targets.prepare

    def replace_it() -> None:
        recreate_topic(broker_41.bootstrap, f"{topic}.back", 1, KEEP_ALL)
        write(broker_41, f"{topic}.back", records_of(50))

    async def replace_and_prepare(self: Any, client: KafkaClient, names: Sequence[str], *more: Any) -> Any:  # noqa: ANN401
        await asyncio.to_thread(replace_it)
        return await prepare(self, client, names, *more)

    monkeypatch.setattr(archiver.restore.targets.targets.Targets, "prepare", replace_and_prepare)
    with pytest.raises(TargetError, match="it was not there when the restore began"):
        restored(site, broker_41, topic, existing=Existing.PURGE)
    assert log_of(broker_41, f"{topic}.back") == (0, 50)


def test_what_was_aborted_is_nothing_that_could_be_lost(broker_41: Broker, topic: str, site: ArchiveSite) -> None:
    """At the end of a partition, and as all that another one has: no object has those offsets."""
    archived(broker_41, topic, site, records_of(20), [])
    producer = producer_of(broker_41.bootstrap, transactional_id=topic)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"never", partition=0)
    producer.produce(topic, b"never", partition=1)
    producer.flush(30)
    producer.abort_transaction(30)
    eventually(lambda: [log_of(broker_41, topic, number) for number in (0, 1)] == [(0, 22), (0, 2)])
    site.back_up(broker_41.bootstrap, topic)
    assert purged(site, broker_41, topic).records == 20
