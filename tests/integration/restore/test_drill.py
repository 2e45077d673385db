"""`archiver drill`: restores into scratch topics of a real broker, compares, deletes them again, and signs what it found."""

import base64
import json
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import replace

import pytest
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient

from archiver.archive.format.control import append_fact
from archiver.archive.format.handle import Archive
from archiver.archive.notes.drills import SCRATCH
from archiver.archive.notes.topics import read_cluster
from archiver.archive.restores.offset_map import OffsetMap
from archiver.archive.segments.segment import open_segment
from archiver.codec.avro import encode_header
from archiver.config.model import ArchiverConfig, TargetConfig
from archiver.errors import NotWholeError
from archiver.spark.drill import Drill, run_drill
from archiver.store.port import ObjectKind
from tests.integration.groups.test_group_positions import commit
from tests.integration.upkeep.test_verify import object_keys, store_of
from tests.support.brokers import Broker
from tests.support.foreign_reader import keys_in
from tests.support.kafka_topics import create_topic, delete_topic, produce_values, recreate_topic
from tests.support.processes import end_of
from tests.support.real_drills import start_drill
from tests.support.round_trip import KEEP_ALL, ArchiveSite

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(240)]


def scratch_topics(bootstrap: str) -> list[str]:
    found = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(timeout=20).topics
    return [name for name in found if name.startswith(SCRATCH)]


def notes_of_drills(site: ArchiveSite) -> list[str]:
    return [key for key in keys_in(site.bucket, "control/") if key.startswith(("control/drills/", "control/restores/"))]


def settings_of(site: ArchiveSite, bootstrap: str) -> tuple[ArchiverConfig, TargetConfig]:
    config = ArchiverConfig.model_validate(site.config(bootstrap, ()))
    return config, TargetConfig(kafka={"bootstrap.servers": bootstrap})


def drilled(site: ArchiveSite, bootstrap: str, topics: str | None = None, last_ms: int | None = None) -> Drill:
    found = run_drill(*settings_of(site, bootstrap), topics=topics, last_ms=last_ms)
    assert scratch_topics(bootstrap) == []
    assert notes_of_drills(site) == []
    return found


def archive_topics(site: ArchiveSite, bootstrap: str, *topics: str, groups: str = "off") -> None:
    for name in topics:
        create_topic(bootstrap, name, 2, KEEP_ALL)
        for number in range(2):
            produce_values(bootstrap, name, [b"%d" % value for value in range(30)], partition=number)
    for name in topics:
        site.back_up_with(bootstrap, name, groups=groups, segment={"records": 10})


def test_a_drill_of_ten_topics(broker_41: Broker, topic: str, site: ArchiveSite) -> None:
    bootstrap, names = broker_41.bootstrap, [f"{topic}.{number}" for number in range(10)]
    archive_topics(site, bootstrap, *names)
    found = drilled(site, bootstrap)
    assert (found.problems, found.exit_code, found.objects) == ({}, 0, 60)
    assert {name: row["records"] for name, row in found.topics.items()} == dict.fromkeys(names, 60)
    assert found.rto_ms > 0
    assert found.rpo_ms is not None
    assert found.rpo_ms < 600_000

    store, _ = store_of(site)
    damaged, wrong, *_ = names
    key = object_keys(site, damaged)[1]
    before = store.get(key)
    assert before is not None
    put_again(site, key, before[0][:-7] + b"?" + before[0][-6:], before[1])
    found = drilled(site, bootstrap)
    assert found.exit_code == 3
    assert all(damaged in problem for problem in found.problems), found.problems
    put_again(site, key, *before)
    assert drilled(site, bootstrap, topics=f"{topic}.[01]").exit_code == 0

    key = object_keys(site, wrong)[1]
    with_wrong_digest(site, key)
    found = drilled(site, bootstrap)
    assert (found.exit_code, list(found.problems)) == (3, [f"{key}: its records do not add up to its facts: digest"])

    found = drilled(site, bootstrap, topics=f"{topic}.[23]", last_ms=1)
    assert found.exit_code == 3
    assert sum("the sample is empty" in problem for problem in found.problems) == 2
    assert drilled(site, bootstrap, topics=f"{topic}.[23]", last_ms=3_600_000).exit_code == 0


def test_killed_in_every_gap(broker_41: Broker, topic: str, site: ArchiveSite) -> None:
    """The next drill removes what is left, and passes. The archive is as it was."""
    bootstrap = broker_41.bootstrap
    archive_topics(site, bootstrap, f"{topic}.0", f"{topic}.1")
    site.write_config(bootstrap)
    site.write_target(bootstrap)
    before = keys_in(site.bucket)
    for place in ("drill.noted", "target.created", "plan.noted:2", "drill.restored", "drill.deleted"):
        killed = end_of(start_drill(site, failpoint=place), 90)
        assert killed.returncode == -signal.SIGKILL, (place, killed.stderr)
        assert notes_of_drills(site) != []
        assert bool(scratch_topics(bootstrap)) == (place not in {"drill.noted", "drill.deleted"}), place
    assert drilled(site, bootstrap).problems == {}
    assert keys_in(site.bucket) == before


def test_a_topic_that_is_not_the_drills_stays(broker_41: Broker, topic: str, site: ArchiveSite) -> None:
    """One with records has taken the name of a scratch topic; and a forged note names a topic that is in use."""
    bootstrap = broker_41.bootstrap
    archive_topics(site, bootstrap, topic)
    site.write_config(bootstrap)
    site.write_target(bootstrap)
    assert end_of(start_drill(site, failpoint="drill.restored"), 90).returncode == -signal.SIGKILL
    (name,) = scratch_topics(bootstrap)
    recreate_topic(bootstrap, name, 1, KEEP_ALL)
    produce_values(bootstrap, name, [b"theirs"])
    with pytest.raises(NotWholeError, match=f"topic {name} has the name of a scratch topic .*: it is not deleted"):
        drilled(site, bootstrap)
    assert scratch_topics(bootstrap) == [name]
    delete_topic(bootstrap, name)
    assert drilled(site, bootstrap).problems == {}

    archive = Archive(*store_of(site))
    cluster_id = read_cluster(archive)
    forged = {"format": 1, "target_cluster_id": cluster_id, "scratch": {topic: topic}}
    append_fact(archive, "drills/forged", lambda _: forged)
    with pytest.raises(NotWholeError, match="is not the name of a scratch topic"):
        run_drill(*settings_of(site, bootstrap))
    assert topic in AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=20).topics


def test_positions_of_groups_are_translated_and_compared(
    broker_41: Broker, topic: str, site: ArchiveSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    bootstrap = broker_41.bootstrap
    create_topic(bootstrap, topic, 2, KEEP_ALL)
    for number in range(2):
        produce_values(bootstrap, topic, [b"%d" % value for value in range(30)], partition=number)
    commit(broker_41, f"{topic}.group", ClientPartition(topic, 0, 12), ClientPartition(topic, 1, 30))
    site.back_up_with(bootstrap, topic, groups="snapshot", segment={"records": 10})
    found = drilled(site, bootstrap)
    assert (found.problems, found.groups) == ({}, {"positions": 2, "compared": 1})  # the other is at the end

    translate = OffsetMap.translate
    monkeypatch.setattr(OffsetMap, "translate", lambda of, offsets: translate(of, offsets) + (offsets == 12))
    monkeypatch.setattr(OffsetMap, "translate_back", lambda _, targets: targets - (targets == 13))
    found = drilled(site, bootstrap)
    told = f"group {topic}.group in {topic}-0: offset 12 is translated to another record"
    assert (found.exit_code, list(found.problems)) == (3, [told])


def test_a_report_is_signed_and_checked(broker_41: Broker, topic: str, site: ArchiveSite) -> None:
    """By the installed command, with Spark; openssl and jq check the signature, too."""
    archive_topics(site, broker_41.bootstrap, topic)
    site.write_config(broker_41.bootstrap)
    site.write_target(broker_41.bootstrap)
    folder = site.folder
    for words in ("genpkey -algorithm ed25519 -out private.pem", "pkey -in private.pem -pubout -out public.pem"):
        subprocess.run(["openssl", *words.split()], cwd=folder, check=True)
    typed = ("--target", "target.yaml", "--last", "1h", "--report", "report.json", "--sign-key", "private.pem")
    done = site.run("drill", *typed, "--format", "json", timeout_s=150)
    assert done.returncode == 0, (done.stdout, done.stderr)
    signed = json.loads((folder / "report.json").read_text())
    assert signed == json.loads(done.stdout)
    report = signed["report"]
    assert (report["passed"], report["topics"][topic]["records"], report["objects"]) == (True, 60, 6)
    assert scratch_topics(broker_41.bootstrap) == notes_of_drills(site) == []

    def check(*more: str) -> subprocess.CompletedProcess[str]:
        return site.run_within("drill", "--check", "report.json", "--key", "public.pem", *more)

    assert check().returncode == 0
    (folder / "report.json").write_text(json.dumps(signed, indent=4, sort_keys=False))  # laid out anew
    assert json.loads(check("--format", "json").stdout) == report
    (folder / "signature").write_bytes(base64.b64decode(signed["signature"]))
    subprocess.run("jq -jcS .report report.json > canonical", shell=True, cwd=folder, check=True)
    verify = "pkeyutl -verify -pubin -inkey public.pem -rawin -in canonical -sigfile signature"
    assert subprocess.run(["openssl", *verify.split()], cwd=folder, check=False).returncode == 0

    report["topics"][topic]["records"] += 1
    (folder / "report.json").write_text(json.dumps(signed))
    forged = check()
    assert (forged.returncode, "do not trust the report" in forged.stderr) == (3, True)


def put_again(site: ArchiveSite, key: str, content: bytes, metadata: Mapping[str, str]) -> None:
    store, _ = store_of(site)
    store.delete([key])
    assert store.put_if_absent(key, content, metadata, kind=ObjectKind.SEGMENT)


def with_wrong_digest(site: ArchiveSite, key: str) -> None:
    """The digest alone differs; all checksums are right."""
    found = store_of(site)[0].get(key)
    assert found is not None
    body = open_segment(*found, key)
    assert body.facts is not None
    facts = replace(body.facts, digest=body.facts.digest ^ 1)
    header = encode_header(body.header.codec, body.header.sync, facts.to_header())
    put_again(site, key, header + bytes(body.content[body.header.size :]), facts.to_metadata())
