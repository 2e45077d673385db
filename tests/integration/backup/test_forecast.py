"""`backup --dry-run` and `topics` before there is a bucket: what they tell is what a backup then archives."""

import json
from typing import Any

import pytest
import yaml

from tests.support.brokers import Broker
from tests.support.foreign_reader import keys_in
from tests.support.kafka_topics import create_topic, produce_values
from tests.support.round_trip import KEEP_ALL, ArchiveSite

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(180)]


def test_a_dry_run_tells_what_a_backup_then_archives(broker_41: Broker, topic: str, site: ArchiveSite) -> None:
    create_topic(broker_41.bootstrap, topic, 3, KEEP_ALL)
    config = site.config(broker_41.bootstrap, [topic])
    file = site.folder / "archive.yaml"

    def told(*arguments: str, exit_code: int = 0) -> Any:  # noqa: ANN401 - JSON
        done = site.run(*arguments, "--format", "json")
        assert done.returncode == exit_code, (arguments, done.stdout, done.stderr)
        return json.loads(done.stdout)

    file.write_text(yaml.safe_dump({name: one for name, one in config.items() if name != "storage"}))
    assert [row["standing"] for row in told("topics")["topics"] if row["topic"] == topic] == ["archived"]
    assert {row["in_archive"] for row in told("topics")["topics"]} == {None}
    produce_values(broker_41.bootstrap, topic, [b"v" * 1000] * 50, partition=1)
    (row,) = told("backup", "--dry-run")["topics"]
    assert (row["partitions"], row["behind"], row["offsets"], row["is_new"]) == (3, 1, 50, True)
    assert 50_000 < row["bytes"] < 60_000

    file.write_text(yaml.safe_dump({**config, "storage": {**config["storage"], "url": "s3://no-such-bucket-here/p"}}))
    assert {row["in_archive"] for row in told("topics", exit_code=1)["topics"]} == {None}

    file.write_text(yaml.safe_dump(config))
    assert told("backup", "--dry-run")["offsets"] == 50
    assert keys_in(site.bucket) == []
    assert [sum(row["records"] for row in told("backup", "--until-end")["partitions"])] == [50]
    produce_values(broker_41.bootstrap, topic, [b"v"] * 7, partition=2)
    (row,) = told("backup", "--dry-run")["topics"]
    assert (row["behind"], row["offsets"], row["is_new"]) == (1, 7, False)
    text = site.run("backup", "--dry-run")
    assert "a backup would archive at most 7 records, about " in text.stdout
