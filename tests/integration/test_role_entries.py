"""What an entry of a role log can do, and not, on a real broker and a real store, with the roles of `infra/policies/`."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from archiver.archive.copies.roles import CompleteCopy, RolePlace, read_newest_entry
from archiver.archive.format.handle import Archive, open_archive
from archiver.backup.compacted.clearing.clearing_rules import ClearingRules
from archiver.backup.compacted.clearing.clearing_run import ClearingReport, clear_copies
from archiver.backup.compacted.clearing.clearing_survey import ClearingSurvey
from archiver.backup.compacted.clearing.live_logs import asker_of
from archiver.backup.service.run_backup import run_backup
from archiver.config.model import ArchiverConfig, TargetConfig
from archiver.kafka.login.settings import KafkaSettings
from archiver.restore.plan.request import RestoreRequest, parse_renames
from archiver.spark.restore import run_restore_job
from archiver.store.port import ObjectKind
from tests.integration.test_policies import PREFIX, as_role
from tests.support.brokers import Broker
from tests.support.copied_topic import complete_copy, copy_place, role_entry
from tests.support.examples import EAGER_CLEANER
from tests.support.instances import compacted_config, instance, write
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_topics import create_topic
from tests.support.round_trip import ArchiveSite
from tests.support.service import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(400)]

NEVER_DUE: Mapping[str, Any] = {"log.backup.length.days": 1, "clear.delay": "1h"}


def with_prefix(site: ArchiveSite, config: dict[str, Any]) -> dict[str, Any]:
    return config | {"storage": {**config["storage"], "url": f"{site.bucket.url}/{PREFIX}"}}


def forge(archive: Archive, topic: str, number: int, **said: Any) -> None:  # noqa: ANN401 - as role_entry has them
    """Put an entry, as somebody may who has the rights of an instance."""
    key, content = role_entry(topic, 0, number, **said)
    archive.store.put_if_absent(f"{PREFIX}/{key}", content, {}, kind=ObjectKind.FACT)


def holder_of(archive: Archive, topic: str) -> CompleteCopy | None:
    newest = read_newest_entry(archive, RolePlace(topic=topic, life=0, partition=0))
    copy = newest.entry.holder if newest else None
    return copy if isinstance(copy, CompleteCopy) else None


def instance_of(archive: Archive, topic: str) -> str:
    copy = holder_of(archive, topic)
    return "" if copy is None else copy.generation.instance


def printed(site: ArchiveSite, *arguments: str) -> tuple[int, list[dict[str, Any]], str]:
    done = site.run_within("cat", *arguments, "-c", "role.yaml")
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def test_a_role_log_of_an_ordinary_topic_hides_nothing(broker_41: Broker, site: ArchiveSite, topic: str) -> None:
    bootstrap = broker_41.bootstrap
    create_topic(bootstrap, topic, 1, {"retention.ms": "-1"})
    write(bootstrap, topic, {f"k{number}": "v" for number in range(70)})
    tree = with_prefix(site, site.config(bootstrap, [topic]))
    config = ArchiverConfig.model_validate(tree)
    (site.folder / "role.yaml").write_text(json.dumps(tree))
    with as_role(site.bucket, "backup"):
        run_backup(config, lambda _: None)
    with as_role(site.bucket, "compacted"):
        forge(open_archive(config.storage), topic, 7, holder=complete_copy("b", 4, 0, 70))
    with as_role(site.bucket, "restore"):
        code, rows, said = printed(site, topic)
        assert (code, len(rows)) == (3, 70)
        assert "is not read: the topic never had compact in cleanup.policy" in said
        assert printed(site, topic, "--history")[0] == 0
        done = run_restore_job(
            config.storage,
            TargetConfig(kafka={"bootstrap.servers": bootstrap}),
            RestoreRequest(topics=topic, renames=parse_renames([f"{topic}={topic}.back"])),
            restore_id="back",
            notice=lambda _: None,
        )
        assert (done.failure, [one.records for one in done.topics], len(done.problems)) == (None, [70], 1)


def clear(archive: Archive, bootstrap: str, topic: str) -> ClearingReport:
    ask = asker_of(
        archive, KafkaSettings.parse({"bootstrap.servers": bootstrap}), lambda error: pytest.fail(str(error))
    )
    survey = ClearingSurvey(archive, ClearingRules(delay_ms=0), 0, ask)
    return clear_copies(survey, [RolePlace(topic=topic, life=0, partition=0)], 2**50)


def test_a_role_entry_alone_does_not_delete_the_only_complete_copy(
    broker_41: Broker, site: ArchiveSite, topic: str
) -> None:
    bootstrap = broker_41.bootstrap
    create_topic(bootstrap, topic, 1, {"cleanup.policy": "compact"})
    write(bootstrap, topic, {f"k{number}": "v" for number in range(70)})
    tree = with_prefix(site, compacted_config(site, bootstrap, topic))
    tree["compacted"] |= NEVER_DUE
    tree["backup"]["segment"] = {"age": "1s", "records": 10}
    config = ArchiverConfig.model_validate(tree)
    (site.folder / "role.yaml").write_text(json.dumps(tree))
    with as_role(site.bucket, "compacted"):
        archive = open_archive(config.storage)
        with instance(site, tree, "a", "--initial-role", "active"):
            eventually(lambda: instance_of(archive, topic) == "a")
        copy = holder_of(archive, topic)
        assert copy is not None
        complete = [item.key for item in archive.store.list(f"{PREFIX}/compacted/a/")]
        first = archive.store.get(complete[0])
        assert first is not None
        unfinished = f"{PREFIX}/{copy_place(topic, 0, 'b', 9)}{complete[0].rpartition('/')[2]}"
        archive.store.put_if_absent(unfinished, *first, kind=ObjectKind.SEGMENT)
        left = {"generation": {"instance": "a", "number": copy.generation.number}, "since": 0}
        holder = complete_copy("b", 9, 10, 3_000)
        forge(archive, topic, 9, holder=holder, switched=1, candidate=("b", 9), left=[left])
        report = clear(archive, bootstrap, topic)
        assert [item.key for item in archive.store.list(f"{PREFIX}/compacted/a/")] == complete
        assert "is complete up to 10, as its objects prove: it is needed" in " ".join(report.kept[0].why)
    with as_role(site.bucket, "restore"):
        code, rows, said = printed(site, topic)
        assert (code, len(rows)) == (3, 10)
        assert "--history" in said


def test_what_readers_were_given_is_not_hidden_by_a_switch(
    broker_41: Broker, site: ArchiveSite, topic: str, java_oracle: JavaOracle
) -> None:
    """b dies with its switch put, a archives one record more, which is compacted then; b goes on, and dies before its later value."""
    bootstrap = broker_41.bootstrap
    create_topic(bootstrap, topic, 1, EAGER_CLEANER | {"segment.ms": "1000"})
    write(bootstrap, topic, {f"k{number}": "first" for number in range(60)})
    tree = with_prefix(site, compacted_config(site, bootstrap, topic))
    tree["compacted"] |= NEVER_DUE
    tree["backup"]["segment"] = {"age": "1s", "records": 20}
    sleepy = {**tree, "compacted": {**tree["compacted"], "interval": "5min", "takeover": "1h"}}
    at_once = {**tree, "compacted": {**tree["compacted"], "log.backup.length.days": 1e-6}}
    config = ArchiverConfig.model_validate(tree)
    (site.folder / "role.yaml").write_text(json.dumps(tree))
    with as_role(site.bucket, "compacted"):
        archive = open_archive(config.storage)

        def new_offset() -> int | None:
            """Where readers are given the record NEW, as long as no later value of its key is given."""
            rows = [row for row in printed(site, topic)[1] if row["key"] == {"utf8": "new"}]
            return rows[-1]["offset"] if rows else None

        with instance(site, sleepy, "a", "--initial-role", "active"):
            eventually(lambda: instance_of(archive, topic) == "a")
            with instance(site, at_once, "b", ARCHIVER_FAILPOINT="role.switch.put:1") as b:
                eventually(lambda: b.process.poll() is not None, timeout_s=90)
            assert instance_of(archive, topic) == "b"
            write(bootstrap, topic, {"new": "NEW"})
            eventually(lambda: new_offset() is not None, "a does not archive it", timeout_s=60)
        given = new_offset()
        for _ in range(4):
            write(bootstrap, topic, {f"k{number}": "second" for number in range(50)})
        write(bootstrap, topic, {"new": "later"})

        def is_compacted() -> bool:
            write(bootstrap, topic, {"k0": "more"})  # a broker compacts no segment that is written to
            return all(row.offset != given for row in java_oracle.consume(bootstrap, topic).records[0])

        eventually(is_compacted, "NEW is not compacted", timeout_s=120, every_s=1.5)
        with instance(site, tree, "b", ARCHIVER_FAILPOINT="segment.put:1") as b:
            eventually(lambda: b.process.poll() is not None, timeout_s=90)
        code, rows, said = printed(site, topic)
        assert (code, [row["offset"] for row in rows if row["key"] == {"utf8": "new"}]) == (0, [given])
        assert max(row["offset"] for row in rows) > (given or 0)
        assert "is needed, and read, too" in said
        assert "is needed" in " ".join(why for one in clear(archive, bootstrap, topic).kept for why in one.why)
        with instance(site, tree, "b"):
            eventually(lambda: new_offset() not in {None, given}, "b does not go on", timeout_s=60)
        assert "is needed" not in printed(site, topic)[2]
