"""The commands that need no Spark, each once as a user starts it: on a real broker and a real store."""

import json
from typing import Any

import pytest
import yaml
from confluent_kafka import TopicPartition as ClientPartition

from tests.integration.groups.test_group_positions import commit
from tests.support.brokers import Broker
from tests.support.foreign_reader import keys_in
from tests.support.kafka_topics import create_topic, produce_values
from tests.support.report_data import data_in
from tests.support.round_trip import KEEP_ALL, ArchiveSite

pytestmark = [pytest.mark.e2e, pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(300)]


def test_each_command_does_its_work(broker_41: Broker, topic: str, site: ArchiveSite) -> None:
    create_topic(broker_41.bootstrap, topic, 1, KEEP_ALL)
    produce_values(broker_41.bootstrap, topic, [b"%d" % number for number in range(100)])
    group = f"{topic}.group"
    commit(broker_41, group, ClientPartition(topic, 0, 40))
    config = site.config(broker_41.bootstrap, [topic])
    (site.folder / "archive.yaml").write_text(
        yaml.safe_dump(config | {"backup": config["backup"] | {"groups": "snapshot"}})
    )
    site.write_target(broker_41.bootstrap)

    def run(*arguments: str) -> Any:  # noqa: ANN401 - JSON
        done = site.run(*arguments, "--format", "json")
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        return json.loads(done.stdout)

    assert site.run("version").stdout.split()[:2] == ["archiver", run("version")["version"]]
    standings = {row["topic"]: row["standing"] for row in run("topics")["topics"]}
    assert [name for name, standing in standings.items() if standing not in {"not included", "excluded"}] == [topic]
    assert [row["records"] for row in run("backup", "--until-end")["partitions"]] == [100]
    status = run("status")
    (backup,) = status["runs"]
    assert (backup["kind"], backup["outcome"], backup["partitions"]) == ("until-end", "done", 1)
    assert (status["working"], status["durable_through"]) == (True, backup["durable_through"])
    assert topic not in run("status", "--against-kafka")["topics_not_included"]
    assert [row["records"] for row in run("ls")["holdings"]] == [100]
    (key,) = keys_in(site.bucket, f"topics/{topic}/")
    assert run("inspect", key)["records"] == 100
    assert run("compacted", "status")["instances"] == []

    done = site.run("hold", "add", "audit", "--topics", topic, "--reason", "law", "--no-wait")
    assert done.returncode == 0, done.stderr
    assert [hold["name"] for hold in run("hold", "list")["holds"]] == ["audit"]
    assert site.run("hold", "release", "audit").returncode == 0
    (hold,) = run("hold", "list")["holds"]
    assert hold["released"] is not None

    chosen = ("--groups", group)
    (position,) = run("groups", "show", *chosen)["positions"]
    assert (position["group"], position["offset"]) == (group, 40)
    done = site.run("report", "--html", "report.html")
    assert done.returncode == 0, done.stderr
    data = data_in((site.folder / "report.html").read_text(encoding="utf-8"))
    assert [(one["kind"], one["outcome"]) for one in data["status"]["runs"]] == [("until-end", "done")]
    (shown,) = [one for one in data["topics"] if one["topic"] == topic]
    assert [(part["records"], part["next_offset"]) for part in shown["partitions"]] == [(100, 100)]
    assert [one["lag"] for one in data["groups"] if one["group"] == group] == [60]
    site.restore(broker_41.bootstrap, topics=topic, rename=[f"{topic}={topic}.back"], restore_id="mine")
    assert [row["is_finished"] for row in run("restore", "list")["restores"]] == [True]
    (shown,) = run("restore", "show", "mine")["topics"]
    assert (shown["target"], shown["partitions"], shown["records"]) == (f"{topic}.back", 1, 100)
    of = ("--target", "target.yaml", "--restore", "mine")
    (planned,) = run("groups", "translate", *of, *chosen)["groups"]
    assert [row["offset"] for row in planned["positions"]] == [40]
    (applied,) = run("groups", "apply", *of, *chosen)["applied"]["groups"]
    assert [row["outcome"] for row in applied["positions"]] == ["set"]
    (rolled_back,) = run("groups", "rollback", *of)["groups"]
    assert [(row["before"]["offset"], row["wanted"]) for row in rolled_back["positions"]] == [(40, None)]
