"""One full cycle by the installed command, held at each step against Kafka's own consumer and a foreign reader of the archive."""

import json
import random
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import yaml

from tests.support.cat_lines import cat_line
from tests.support.chaos.traffic import Style, Topic, Voice
from tests.support.chaos.traffic import Tally as Sent
from tests.support.examples import EAGER_CLEANER
from tests.support.foreign_reader import keys_in, read_partitions
from tests.support.java_oracle import JavaOracle
from tests.support.records import NOW_MS, Rec, classes_of, generate, missing_classes
from tests.support.round_trip import ArchiveSite
from tests.support.service import eventually, running, service_config, until_archived
from tests.worlds.brokers import Brokers
from tests.worlds.clusters import GROUP
from tests.worlds.commands import Commands
from tests.worlds.tally import Partitions, Tally
from tests.worlds.world import Kafka, Step

ORDERS, CLOCK, DEALS, ACCOUNTS = "orders", "clock", "deals", "accounts"
TOPICS: Final = (ORDERS, CLOCK, DEALS, ACCOUNTS)
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
COPY: Final = "copy."
FIRST_LIFE: Final = "first-life."

_ALL_BIG_BYTES = 15_000_000  # of the records that are big in the first topic, together
_LARGE_BYTES = 300_000
_RATE = 120  # records a second of each producer under load
_KILLS = ("", "segment.put:2", "commit.sent")  # at random, and at places between two effects


class Cycle:
    """Runs once. The tally tells what came of it, also when it ended early."""

    def __init__(self, kafka: Kafka, site: ArchiveSite, oracle: JavaOracle, seed: int) -> None:
        self.tally = Tally()
        self._kafka, self._brokers = kafka, Brokers(kafka)
        self._site, self._commands = site, Commands(site)
        self._oracle = oracle
        self._rng = random.Random(seed)
        self._source: dict[str, Partitions] = {}  # of the first life, as the consumer saw it
        self._configs: dict[str, dict[str, str]] = {}

    def run(self) -> None:
        for step in (
            self._fill,
            self._back_up_until_end,
            self._back_up_under_load,
            self._verify,
            self._lose_and_restore,
            self._restore_again,
            self._begin_new_lives,
        ):
            begun_s = time.monotonic()
            step()
            print(f"{step.__name__}: {time.monotonic() - begun_s:.1f} s")

    # --- records of every class

    def _fill(self) -> None:
        of_logs = self._kafka.of_logs
        self._brokers.create(ORDERS, 4, of_logs)  # the last one stays empty
        self._brokers.create(CLOCK, 2, {**of_logs, "message.timestamp.type": "LogAppendTime"})
        self._brokers.create(DEALS, 2, of_logs)
        self._brokers.create(ACCOUNTS, 1, EAGER_CLEANER)
        big_bytes = self._kafka.big_bytes
        big_every = 400 * len(CODECS) * big_bytes // _ALL_BIG_BYTES
        for number, codec in enumerate(CODECS):
            records = generate(self._rng.getrandbits(32), 400, big_bytes=big_bytes, big_every=big_every)
            self._brokers.write(ORDERS, records, codec, number % 3)
        self._produce(CLOCK, {0: self._records(100), 1: self._records(50)}, compression_type="gzip")
        for number, commit in enumerate((True, False, True, False)):
            name = f"deal-{number}"
            self._produce(DEALS, {0: self._records(40), 1: self._records(30)}, transactional_id=name)
            self._oracle.end_transaction(name, commit=commit)
        self._fill_accounts()
        self._source = {topic: self._consume(topic) for topic in TOPICS}
        seen = [record for records in self._source[ORDERS].values() for record in records]
        assert missing_classes(classes_of(seen)) == []
        self._kafka.settle([ORDERS, DEALS])
        self._configs = {topic: self._brokers.configs(topic) for topic in TOPICS}

    def _fill_accounts(self) -> None:
        """Compacted: each key once, but for the newest segment's. A later record makes the broker begin one."""
        for at in range(4):
            now_ms = NOW_MS + at * 10_000
            rows = [Rec(0, now_ms, 0, b"%d" % key, None if key % 5 == at else b"%d" % at) for key in range(60)]
            self._produce(ACCOUNTS, {0: rows[at * 10 :]})
        self._produce(ACCOUNTS, {0: [Rec(0, NOW_MS + 100_000, 0, b"last", b"")]})

        def is_compacted() -> bool:
            keys = [record.key for record in self._consume(ACCOUNTS)[0]]
            return len(set(keys)) == len(keys)

        eventually(is_compacted, "the broker does not compact", every_s=0.5)

    def _records(self, count: int) -> list[Rec]:
        return generate(self._rng.getrandbits(32), count, raw=False, big_bytes=_LARGE_BYTES, big_every=25)

    def _produce(self, topic: str, records: Mapping[int, Sequence[Rec]], **properties: str) -> None:
        self._oracle.produce(self._kafka.bootstrap, topic, records, **properties)

    def _consume(self, topic: str) -> Partitions:
        return self._oracle.consume(self._kafka.bootstrap, topic).records

    # --- there

    def _back_up_until_end(self) -> None:
        refused = self._kafka.refused_topic
        self._kafka.let_back_up([*TOPICS, *([refused.name] if refused else [])])
        self._write_configs()
        with self._kafka.while_reading():
            begun = self._archive_all()
        assert begun == sum(len(rows) for topic in self._source.values() for rows in topic.values())
        for topic in TOPICS:
            self.tally.compare(topic, self._source[topic], read_partitions(self._site.bucket, topic))
        assert self._archive_all() == 0

    def _archive_all(self) -> int:
        """The records that were archived. What is refused is named."""
        refused = self._kafka.refused_topic
        expected = refused.exit_code if refused else 0
        done = self._commands.run(Step.UNTIL_END, "backup", "--until-end", "--format", "json", expected=expected)
        if refused:
            assert re.search(refused.says, done.said), done.said
        return sum(int(row["records"]) for row in done.json["partitions"])

    def _write_configs(self) -> None:
        for name, include in (("archive.yaml", self._included()), ("sound.yaml", list(TOPICS))):
            (self._site.folder / name).write_text(yaml.safe_dump(self._config(include)))
        (self._site.folder / "target.yaml").write_text(yaml.safe_dump({"kafka": dict(self._kafka.settings)}))

    def _included(self) -> list[str]:
        refused = self._kafka.refused_topic
        return [*TOPICS, *([re.escape(refused.name)] if refused else [])]

    def _config(self, include: Sequence[str]) -> dict[str, Any]:
        config = service_config(self._site, "", *include, group=GROUP, **{"session-timeout": "3s"})
        config["backup"]["segment"]["records"] = 300
        return config | {"kafka": dict(self._kafka.settings)}

    def _back_up_under_load(self) -> None:
        styles = {ORDERS: (Style.PLAIN, 3), CLOCK: (Style.IDEMPOTENT, 2), DEALS: (Style.TRANSACTIONAL, 2)}
        topics = [Topic(name, style, partitions, _RATE) for name, (style, partitions) in styles.items()]
        seeds = [str(self._rng.getrandbits(32)) for _ in topics]
        voices = [Voice(self._kafka.bootstrap, topic, seed, Sent()) for topic, seed in zip(topics, seeds, strict=True)]
        config, refused = self._config(self._included()), self._kafka.refused_topic
        with speaking(voices):
            for number, failpoint in enumerate(_KILLS):
                self._kill_one(config, f"killed-{number}", failpoint)
        with running(self._site, config, "last") as instance:
            for topic in TOPICS:
                self._source[topic] = until_archived(
                    self._site, self._oracle, self._kafka.bootstrap, topic, timeout_s=90
                )
            code = instance.stop()
            assert code in ((refused.exit_code, 4) if refused else (0,)), code  # 4: a record of it was held
        for topic in TOPICS:
            self.tally.compare(topic, self._consume(topic), read_partitions(self._site.bucket, topic))
            self.tally.records += sum(map(len, self._source[topic].values()))

    def _kill_one(self, config: Mapping[str, Any], name: str, failpoint: str) -> None:
        with running(self._site, config, name, ARCHIVER_FAILPOINT=failpoint) as instance:
            if failpoint:
                eventually(lambda: instance.process.poll() is not None, f"it never comes to {failpoint}")
            else:
                eventually(lambda: instance.total("archiver_records_total") > 0, "it archives nothing")
                time.sleep(self._rng.uniform(0, 1))  # a moment that nobody chose
                instance.kill()
            assert instance.process.returncode == -9, instance.log[-3000:]
        self.tally.kills += 1

    # --- is it there?

    def _verify(self) -> None:
        for topic in TOPICS:
            found = self._commands.run_here(Step.VERIFY, "ls", topic, "--format", "json").json["holdings"]
            counted = {row["partition"]: row["records"] for row in found if row["records"]}
            expected = {number: len(rows) for number, rows in self._source[topic].items() if rows}
            self.tally.compare_values(f"ls {topic}", expected, counted)
        for level in ("listing", "counts"):
            self._commands.run_here(Step.VERIFY, "verify", "-c", "sound.yaml", "--level", level)
        all_of_it = ("--level", "records", "--against-kafka", "--format", "json")
        with self._kafka.while_reading():
            done = self._commands.run(Step.VERIFY, "verify", "-c", "sound.yaml", *all_of_it)
        self.tally.compare_values("verify", (True, self.tally.records), (done.json["whole"], done.json["compared"]))

    # --- and back

    def _lose_and_restore(self) -> None:
        self._brokers.delete(TOPICS)
        self._kafka.let_restore(TOPICS)
        done = self._commands.run(Step.RESTORE, *self._restore_all(), "--format", "json")
        assert filled(done.json) == self.tally.records
        for topic in TOPICS:
            self.tally.compare(f"restored {topic}", as_restored(self._source[topic]), self._without_offsets(topic))
            self.tally.compare_values(
                f"configs of {topic}", kept(self._configs[topic]), kept(self._brokers.configs(topic))
            )

    def _restore_again(self) -> None:
        """With the same id nothing happens; with another one, under other names, all of it comes once more."""
        before = {topic: self._consume(topic) for topic in TOPICS}
        done = self._commands.run_here(Step.RESTORE_AGAIN, *self._restore_all(), "--format", "json")
        assert filled(done.json) == 0
        for topic in TOPICS:
            self.tally.compare(f"{topic} again", before[topic], self._consume(topic))
        self._kafka.let_restore([f"{COPY}{topic}" for topic in TOPICS])
        renamed = ("--id", "other", "--rename-regex", rf"(.*)={COPY}\1")
        self._commands.run_here(Step.RESTORE_AGAIN, *self._restore_all(), *renamed)
        for topic in TOPICS:
            found = self._without_offsets(f"{COPY}{topic}")
            self.tally.compare(f"copy of {topic}", as_restored(self._source[topic]), found)

    def _restore_all(self) -> Sequence[str]:
        """Of a topic that was refused, the archive has the shape alone, and the cluster still all of it."""
        chosen = ("--topics", "|".join(TOPICS)) if self._kafka.refused_topic else ()
        return ("restore", "--target", "target.yaml", *self._kafka.restore_options, *chosen)

    def _without_offsets(self, topic: str) -> Partitions:
        return {number: [row.without_offset() for row in rows] for number, rows in self._consume(topic).items()}

    # --- lives

    def _begin_new_lives(self) -> None:
        """One topic is another one now, longer in one partition and shorter in the next; the others are what was restored."""
        self._brokers.delete([ORDERS])
        self._brokers.create(ORDERS, 4, self._kafka.of_logs)
        for partition, count in ((0, len(self._source[ORDERS][0]) + 50), (1, 20)):
            others = generate(self._rng.getrandbits(32), count)
            self._brokers.write(ORDERS, others, "zstd", partition)
        self._kafka.let_back_up(TOPICS)
        self._commands.run(Step.NEW_LIFE, "backup", "--until-end", "-c", "sound.yaml")
        for topic in TOPICS:
            life = self._newest_life(topic)
            now = self._consume(topic)
            self.tally.compare(f"{topic}@{life}", now, read_partitions(self._site.bucket, f"{topic}@{life}"))
            self.tally.compare(f"{topic} as it was", self._source[topic], read_partitions(self._site.bucket, topic))
            self.tally.records += sum(map(len, now.values()))
        self._read_lives()
        self._commands.run_here(Step.NEW_LIFE, "verify", "-c", "sound.yaml")

    def _read_lives(self) -> None:
        lives = {"0": self._source[ORDERS], self._newest_life(ORDERS): self._consume(ORDERS)}
        for life, expected in lives.items():
            said = self._commands.run_here(Step.NEW_LIFE, "cat", ORDERS, "--life", life).out
            wanted = [cat_line(row, number) for number in sorted(expected) for row in expected[number]]
            self.tally.compare_values(f"cat --life {life}", wanted, [json.loads(line) for line in said.splitlines()])
        target = f"{FIRST_LIFE}{ORDERS}"
        self._kafka.let_restore([target])
        chosen = ("--topics", ORDERS, "--life", "0", "--rename", f"{ORDERS}={target}")
        restore = ("restore", "--target", "target.yaml", *self._kafka.restore_options)
        self._commands.run_here(Step.NEW_LIFE, *restore, *chosen)
        self.tally.compare(target, as_restored(self._source[ORDERS]), self._without_offsets(target))

    def _newest_life(self, topic: str) -> str:
        found = (re.match(rf"topics/{topic}@(\d+)/", key) for key in keys_in(self._site.bucket, f"topics/{topic}@"))
        lives = {int(match[1]) for match in found if match}
        assert lives, f"{topic}: no new life was begun"
        return str(max(lives))


@contextmanager
def speaking(voices: Sequence[Voice]) -> Iterator[None]:
    for voice in voices:
        voice.start()
    try:
        yield
    finally:
        for voice in voices:
            voice.stop()
    for voice in voices:
        if voice.failure:
            raise voice.failure


def filled(result: Mapping[str, Any]) -> int:
    tasks = [task for topic in result["topics"] for task in topic["partitions"]]
    return sum(task["records"] - task["already_there"] for task in tasks)


def as_restored(source: Partitions) -> Partitions:
    """No producer can write LogAppendTime: all come back with CreateTime. The target gives offsets of its own."""
    return {number: [replace(row, offset=0, timestamp_type=0) for row in rows] for number, rows in source.items()}


def kept(configs: Mapping[str, str]) -> dict[str, str]:
    """Retention is left unlimited, and told."""
    return {name: text for name, text in configs.items() if not name.startswith("retention.")}
