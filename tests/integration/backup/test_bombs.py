"""Batches that are small as they are sent and large when they are open: the same records come back, in a process that stays small."""

import sys
from typing import Final

import pytest
import yaml
from confluent_kafka import Producer

from archiver.process.running.children import start_child
from tests.support import bombs
from tests.support.brokers import Broker
from tests.support.forked_commands import COMMAND
from tests.support.kafka_topics import create_topic
from tests.support.processes import end_of
from tests.support.raw_produce import produce_raw
from tests.support.round_trip import KEEP_ALL, ArchiveSite, environment_of

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(180)]

MEMORY_BYTES: Final = 16 << 20  # the least that can be given
PROGRAM_BYTES: Final = 160 << 20  # of the 256 MiB of docs/reference.md, without the pages of libraries
VALUE_BYTES: Final = 100_000_000
# The pages of libraries are left out: how many of them the kernel maps depends on how it keeps the files, and it takes them back.
MEASURE: Final = """
import re, subprocess, sys, time
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
most = 0
while process.poll() is None:
    with open(f"/proc/{process.pid}/status") as status:
        most = max(most, *map(int, re.findall(r"RssAnon:\\s*(\\d+)", status.read())), 0)
    time.sleep(0.002)
print(most * 1024)
sys.exit(process.returncode)
"""


def peak_of(site: ArchiveSite, *arguments: str) -> int:
    """Return how much memory of its own the installed command had at most; it must end well."""
    command = [sys.executable, "-c", MEASURE, str(COMMAND), *arguments]
    done = end_of(
        start_child(command, stdout=-1, stderr=-1, text=True, cwd=site.folder, env=environment_of(site.bucket)), 120.0
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_a_process_stays_small(broker_41: Broker, topic: str, site: ArchiveSite) -> None:
    """4 million headers, a value of 100 MB and 200,000 records, each in a batch of some KB; beside them a plain producer."""
    create_topic(broker_41.bootstrap, topic, configs=KEEP_ALL)
    sent = [bombs.headers(4_000_000, b"\0\0"), bombs.value(VALUE_BYTES), bombs.tiny_records(200_000)]
    assert sum(map(len, sent[:2])) < 50_000
    produce_raw(broker_41.bootstrap, topic, sent)
    producer = Producer({"bootstrap.servers": broker_41.bootstrap})
    producer.produce(topic, b"last", partition=0)
    assert producer.flush(20) == 0
    config = site.config(broker_41.bootstrap, [topic])
    config["backup"]["memory"] = MEMORY_BYTES
    (site.folder / "archive.yaml").write_text(yaml.safe_dump(config))
    assert peak_of(site, "backup", "--until-end") <= MEMORY_BYTES + PROGRAM_BYTES + VALUE_BYTES
    assert peak_of(site, "cat", topic, "--from-offset", "1") <= PROGRAM_BYTES + 2 * VALUE_BYTES
    assert site.run("verify", "--level", "records", "--against-kafka").returncode == 0
