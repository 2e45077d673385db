"""Plays the demo's story in chapters: runs commands as a user types them, and checks results with a plain Kafka client."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import Final

from archiver.demo.shop import (
    CHARGED_TWICE,
    DAYS,
    PAID,
    Counts,
    first_difference,
    make_orders,
    make_payments,
)
from archiver.demo.stage import BUCKET, KAFKA_VERSION, Stage, check_parts, cleaned_up, set_stage
from archiver.demo.teller import Teller
from archiver.demo.witness import SeenRecord, Topic, consume_topic, write_records, write_transaction
from archiver.errors import NotWholeError, TemporaryError, UsageError
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.login.settings import KafkaSettings
from archiver.kafka.topics.admin import KafkaAdmin
from archiver.kafka.topics.configs import topic_configs
from archiver.process.output.shell import spell_command
from archiver.restore.plan.request import RETENTION_KEYS

TOPIC: Final = "orders"
ORDERS_PARTITIONS: Final = 4
CONFIGS: Final[Mapping[str, str]] = {
    "compression.type": "lz4",
    "max.message.bytes": "2097152",
    "retention.ms": "1209600000",  # two weeks: no order of the story is older
}
FEWEST_RECORDS: Final = 1_000

FILES: Final[Mapping[str, str]] = {
    "archive.yaml": """\
kafka:
  bootstrap.servers: {bootstrap}
storage:
  url: s3://{bucket}/production
  endpoint: {endpoint}
topics:
  include: ["orders"]
""",
    "target.yaml": """\
kafka:
  bootstrap.servers: {bootstrap}
""",
    "without_us.py": """\
import boto3, fastavro

s3 = boto3.client("s3", endpoint_url="{endpoint}", region_name="us-east-1")
objects = s3.list_objects_v2(Bucket="{bucket}")["Contents"]
for found in objects:
    print(f"{{found['Size']:>9,}} B  {{found['Key']}}")
last = s3.get_object(Bucket="{bucket}", Key=objects[-1]["Key"])["Body"]
records = list(fastavro.reader(last))
print(f"{{len(records):,}} records are in the last of them. Number 2 is")
print(records[2])
""",
}


def run_demo(*, records: int, print_text: Callable[[str], object]) -> None:
    """Run the demo with this many records, and print it line by line. Leaves nothing behind, also when interrupted."""
    if records < FEWEST_RECORDS:
        raise UsageError(f"--records {records}: the demo needs {FEWEST_RECORDS:,} or more")
    check_parts()
    teller = Teller(print_text)
    started_s = time.monotonic()
    teller.title("kafka-archiver: a topic is archived, deleted, restored, and compared record by record.")
    try:
        with cleaned_up() as stack:
            teller.chapter("A Kafka and an S3")
            stage = set_stage(stack, teller)
            _Story(stage, teller).play(records)
    except KeyboardInterrupt:
        raise TemporaryError("the demo was interrupted; all that it had started and written is gone") from None
    teller.say("")
    teller.good(f"All of that took {time.monotonic() - started_s:.0f} s.")
    teller.say(f"Kafka and the S3 are stopped, and {stage.folder} is removed.")
    teller.say("Next: README.md for an archive of your own, docs/runbooks.md for running it.")


@dataclass(frozen=True, slots=True)
class _Story:
    stage: Stage
    teller: Teller

    def play(self, records: int) -> None:
        self._introduce()
        self._take_orders(records)
        before, configs = self._consume_topic()
        self._show_orders(before)
        self._back_up()
        self._show_archive()
        self._lose_topic()
        self._restore()
        self._prove(before, configs)

    def _introduce(self) -> None:
        broker, s3 = self.stage.broker, self.stage.s3
        self.teller.say(f"Kafka {KAFKA_VERSION}, a real broker, runs at {broker.bootstrap}.")
        self.teller.say(f"S3, in memory, runs at {s3.endpoint}. Files go to {self.stage.folder}.")
        for name, text in FILES.items():
            filled = text.format(bootstrap=broker.bootstrap, bucket=BUCKET, endpoint=s3.endpoint)
            (self.stage.folder / name).write_text(filled, encoding="utf-8")

    def _take_orders(self, records: int) -> None:
        """Write this many committed records, and some in an aborted transaction."""
        self.teller.chapter("A small shop takes orders")
        payments = records // 400
        start_ms = (int(time.time()) - (DAYS + 1) * 24 * 3600) * 1000  # noqa: TID251 - orders of these days
        orders = list(make_orders(records - payments, start_ms))
        half = len(orders) // 2
        charged_twice = make_payments(payments, start_ms, CHARGED_TWICE)
        paid = make_payments(payments, start_ms, PAID)
        bootstrap = self.stage.broker.bootstrap
        with self.teller.busy("writing orders"):
            asyncio.run(self._admin().create_topic(TOPIC, partitions=ORDERS_PARTITIONS, configs=CONFIGS))
            write_records(bootstrap, TOPIC, orders[:half])
            write_transaction(bootstrap, TOPIC, charged_twice, name="payments", commit=False)
            write_records(bootstrap, TOPIC, orders[half:])
            write_transaction(bootstrap, TOPIC, paid, name="payments", commit=True)
        self.teller.say(f"Topic {TOPIC}, {ORDERS_PARTITIONS} partitions, {_listed(CONFIGS)}.")
        self.teller.say(f"{payments:,} records belong to a transaction that was aborted: nobody may ever see those.")

    def _consume_topic(self) -> tuple[Topic, Mapping[str, str]]:
        """Return the records that a plain consumer sees, and the configs set on the topic."""
        with self.teller.busy("reading the topic with a plain consumer"):
            configs = asyncio.run(self._configs())
            return consume_topic(self.stage.broker.bootstrap, TOPIC), configs

    async def _configs(self) -> Mapping[str, str]:
        async with KafkaClient(self._kafka()) as client:
            return (await topic_configs(client, TOPIC)).own

    def _show_orders(self, topic: Topic) -> None:
        count = Counts.of(topic)
        self.teller.say(f"A plain read_committed consumer sees {count.records:,} records. Among them are")
        self.teller.item(f"{count.tombstones:,} tombstones (a null value) and {count.empty:,} empty values")
        self.teller.item(f"{count.with_headers:,} with headers; {count.doubled:,} have one name twice, and a null")
        self.teller.item(f"{count.paid:,} of a committed transaction and {count.wrongly_charged} of the aborted one")
        self.teller.say("One of them:")
        awkward = (record for record in chain.from_iterable(topic.values()) if len(record.headers) > 1)
        self.teller.shown(_told(next(awkward)))

    def _back_up(self) -> None:
        self.teller.chapter("Back up")
        self._show_file("archive.yaml")
        self._archiver("backup", "--until-end")

    def _show_archive(self) -> None:
        self.teller.chapter("Look into the archive")
        self._archiver("ls", TOPIC)
        self._archiver("cat", TOPIC, "--partition", "0", "--limit", "1")
        self.teller.say("The archive is plain Avro, and needs no program of ours to be read:")
        self._show_file("without_us.py")
        self.teller.command("python without_us.py")
        self._show_run("reading with fastavro", "without_us.py")

    def _lose_topic(self) -> None:
        self.teller.chapter("The disaster")
        with self.teller.busy("deleting the topic"):
            asyncio.run(self._admin().delete_topic(TOPIC))
        self.teller.bad(
            f"Someone deletes the topic {TOPIC}. The broker knows it no more, and all its records are gone."
        )

    def _restore(self) -> None:
        self.teller.chapter("Restore")
        self._show_file("target.yaml")
        self._archiver("restore", "--target", "target.yaml")

    def _prove(self, before: Topic, configs: Mapping[str, str]) -> None:
        self.teller.chapter("The proof")
        after, configs_after = self._consume_topic()
        difference = first_difference(before, after) or _config_difference(configs, configs_after)
        if difference:
            raise NotWholeError(f"the restored topic is not what it was: {difference}")
        count = Counts.of(after)
        self.teller.say("The same plain consumer read the restored topic, and each record was compared:")
        self.teller.good(f"{count.records:,} of {Counts.of(before).records:,} records are equal.")
        self.teller.item("key, value, headers (order, doubles, nulls), timestamp and its type; partition and order")
        self.teller.item(f"{count.tombstones:,} tombstones are null, {count.empty:,} empty values are empty")
        self.teller.item(f"{count.wrongly_charged} records of the aborted transaction came back")
        self.teller.item(f"the topic has its configs again: {_listed(_without_retention(configs_after))}")

    def _kafka(self) -> KafkaSettings:
        return KafkaSettings(bootstrap_servers=self.stage.broker.bootstrap)

    def _admin(self) -> KafkaAdmin:
        return KafkaAdmin(self._kafka())

    def _show_file(self, name: str) -> None:
        self.teller.command(f"cat {name}")
        self.teller.shown((self.stage.folder / name).read_text(encoding="utf-8"))

    def _archiver(self, *arguments: str) -> None:
        """Run an archiver command as a process and print its output."""
        self.teller.command(spell_command(["archiver", *arguments]))
        self._show_run(f"archiver {arguments[0]}", "-m", "archiver", *arguments)

    def _show_run(self, doing: str, *arguments: str) -> None:
        started_s = time.monotonic()
        with self.teller.busy(doing):
            printed = self.stage.run_python(*arguments)
        self.teller.shown(printed)
        self.teller.aside(f"{time.monotonic() - started_s:.1f} s, with the start of the program")


def _told(record: SeenRecord) -> str:
    headers = ", ".join(f"{name}={'null' if value is None else value.decode()}" for name, value in record.headers)
    moment = datetime.fromtimestamp(record.timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return "\n".join(
        (
            f"key      {(record.key or b'').decode()}",
            f"value    {(record.value or b'').decode()}",
            f"headers  {headers}",
            f"time     {moment}",
        )
    )


def _without_retention(configs: Mapping[str, str]) -> Mapping[str, str]:
    return {name: value for name, value in configs.items() if name not in RETENTION_KEYS}


def _config_difference(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    was, now = _listed(_without_retention(before)), _listed(_without_retention(after))
    return "" if was == now else f"its configs were {was} and are {now}"


def _listed(configs: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(configs.items()))
