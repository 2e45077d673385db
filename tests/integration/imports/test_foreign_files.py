"""Files of other tools and of Kafka 0.7: imported by the command, restored to a broker, and read there by Java's own consumer."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from archiver.imports.tools.avro_layouts import KEEP, TRIVADIS
from archiver.upkeep.object_check import Level
from tests.golden import test_osodevops as osodevops
from tests.support.brokers import Broker
from tests.support.foreign_reader import keys_in
from tests.support.java_oracle import JavaOracle
from tests.support.records import Rec
from tests.support.round_trip import ArchiveSite
from tests.unit.imports import test_avro_layouts as avro
from tests.unit.imports import test_kafka_07 as old

pytestmark = [pytest.mark.kafka, pytest.mark.s3]

Content = tuple[int, bytes | None, bytes | None, tuple[tuple[bytes, bytes | None], ...]]


def imported(site: ArchiveSite, broker: Broker, kind: str, *arguments: str, code: int = 0) -> dict[str, Any]:
    site.write_config(broker.bootstrap)
    done = site.run("import", kind, *arguments, "--format", "json")
    assert done.returncode == code, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def restored(site: ArchiveSite, broker: Broker, oracle: JavaOracle, topic: str) -> dict[int, list[Content]]:
    assert site.verify(broker.bootstrap, (), Level.RECORDS).is_whole
    site.restore(broker.bootstrap, topics=topic, skips_damage=True)
    found = oracle.consume(broker.bootstrap, topic).records
    return {partition: list(map(content, records)) for partition, records in found.items()}


def content(record: Rec) -> Content:
    return record.timestamp, record.key, record.value, record.headers


@pytest.mark.parametrize("name", osodevops.ARCHIVES)
def test_an_osodevops_archive_comes_back(
    site: ArchiveSite, broker_41: Broker, java_oracle: JavaOracle, topic: str, name: str
) -> None:
    arguments = (str(osodevops.HERE / name), "--cluster-id", "C1", "--rename", f"orders={topic}")
    planned = imported(site, broker_41, "osodevops", *arguments, "--dry-run")
    assert [(one["offsets"], one["records"]) for one in planned["planned"]] == [
        ([100, 155], 45),
        ([0, 24], 23),
        ([0, 0], 0),
    ]
    done = imported(site, broker_41, "osodevops", *arguments)
    assert [(one["next"], one["records"]) for one in done["imported"]] == [(155, 45), (24, 23), (0, 0)]
    again = imported(site, broker_41, "osodevops", *arguments)
    assert [one["records"] for one in again["imported"]] == [0, 0, 0]
    back = restored(site, broker_41, java_oracle, topic)
    assert back == {number: list(map(content, osodevops.listed(number))) for number in range(3)}


def test_a_log_of_kafka_07_comes_back(
    site: ArchiveSite, broker_41: Broker, java_oracle: JavaOracle, topic: str, tmp_path: Path
) -> None:
    logs = old.Directory(tmp_path / "logs")
    sets = [pack(b"".join(old.new(b"%d" % number) for number in range(3))) for pack in old.PACKED.values()]
    first = old.old(b"a") + old.flipped(old.new(b"bad"), 11) + b"".join(sets)
    logs.write(first, old.new(b"z"), topic=topic, at=500)
    arguments = (str(logs.path), "--cluster-id", "C1", "--keep-positions")
    done = imported(site, broker_41, "kafka-0.7", *arguments, code=3)
    ((hole,),) = [one["holes"] for one in done["imported"]]
    assert (hole["until"], hole["cause"]) == (2, "unreadable")
    begins = done["planned"][0]["file_begins"]
    assert sorted(begins.values()) == [[500, 0], [500 + len(first), 11]]
    back = restored(site, broker_41, java_oracle, topic)
    assert [value for _, _, value, _ in back[0]] == [b"a", *[b"0", b"1", b"2"] * 3, b"z"]
    assert back[0][0] == (-1, None, b"a", ((b"kafka-0.7-position", b"500"),))


@pytest.mark.parametrize("layout", [TRIVADIS, KEEP])
def test_avro_files_come_back(
    site: ArchiveSite, broker_41: Broker, java_oracle: JavaOracle, topic: str, tmp_path: Path, layout: str
) -> None:
    files = avro.Folder(tmp_path / "files", layout)
    records = [avro.rec(number, b"k" if number % 3 else None, b"%d" % number, ((b"h", b"x"),)) for number in range(300)]
    files.write(0, records[:200])
    files.write(100, records[100:])
    arguments = (str(files.path), "--cluster-id", "C1", "--rename", f"orders={topic}", "--layout", layout)
    imported(site, broker_41, "avro", *arguments)
    assert restored(site, broker_41, java_oracle, topic) == {0: list(map(content, records))}


def test_wrong_input_writes_nothing(site: ArchiveSite, broker_41: Broker, tmp_path: Path) -> None:
    site.write_config(broker_41.bootstrap)
    empty = tmp_path / "empty"
    empty.mkdir()
    copy = tmp_path / "copy"
    shutil.copytree(osodevops.HERE / "plain", copy)
    for arguments in (
        ("osodevops", str(empty)),
        ("osodevops", str(osodevops.HERE / "lz4")),  # its manifest has no cluster
        ("osodevops", str(copy), str(osodevops.HERE / "plain")),
        ("kafka-0.7", str(copy), "--cluster-id", "C1"),
        ("avro", str(copy), "--layout", "trivadis", "--cluster-id", "C1"),
    ):
        done = site.run("import", *arguments)
        assert (done.returncode, done.stdout) == (2, ""), arguments
        assert len(done.stderr.splitlines()) == 1
    assert keys_in(site.bucket) == []
