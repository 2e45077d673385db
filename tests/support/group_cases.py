"""Drawn cases: one topic and its groups up to a disaster, which are backed up in between (what they do: group_histories)."""

import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from confluent_kafka import TopicPartition as ClientPartition

from tests.support.group_histories import ALWAYS, REMOVED, Hands, History, Said, Stored, moment_ms
from tests.support.kafka_topics import create_topic, delete_topic
from tests.support.round_trip import KEEP_ALL, ArchiveSite, errors_of
from tests.support.service import eventually

OFFSETS: Final = "__consumer_offsets"
SOON_CLEAN: Final = {  # when it is compacted
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.0",
    "min.compaction.lag.ms": "0",
}
MOST_TRIES: Final = 150


class Draw(NamedTuple):
    """What cases are drawn from. `lives`: that many, and not one or two."""

    seed: int
    lives: int | None = None
    by_spark: bool = False


@dataclass
class Case:
    """One topic and its groups."""

    hands: Hands
    site: ArchiveSite
    drawn: Draw
    draw: random.Random
    topic: str
    history: History = field(default_factory=History)
    tally: Counter[str] = field(default_factory=Counter)
    steps: list[str] = field(default_factory=list)
    moments: list[int] = field(default_factory=list)
    made: set[str] = field(default_factory=set)  # topics that are there
    values: int = 0

    def run(self) -> None:
        self.partitions = self.draw.randint(1, 4)
        self.groups = [f"{self.topic}.{name}" for name in "abcd"[: self.draw.randint(1, 4)]]
        self.lives = self.drawn.lives or (2 if self.chance(0.25) else 1)
        self.fate = self.draw.choice(["kept", "deleted", "deletion archived"])
        for life in range(self.lives):
            self.live(life)
        if self.fate == "deletion archived":
            self.back_up_groups()
        self.tally += Counter({"cases": 1, f"lives: {self.lives}": 1, self.fate: 1})

    def chance(self, share: float) -> bool:
        return self.draw.random() < share

    def told(self, step: str) -> None:
        self.steps.append(f"  {step}")

    def clean_up(self) -> None:
        for name in self.made:
            delete_topic(self.hands.bootstrap, name)

    # --- a life of the topic

    def live(self, life: int) -> None:
        is_last = life == self.lives - 1
        self.create(self.topic, SOON_CLEAN if (is_compacted := self.chance(0.05)) else {})
        for _ in range(self.draw.randint(1, 3)):
            self.go_on(life, is_compacted=is_compacted)
        self.back_up_records(life)
        if self.chance(0.4):  # and nobody archives it
            self.write(life)
        for _ in range(self.draw.randint(1, 4) if self.chance(0.9) else 0):
            self.commit_some(life)
            self.moments.append(moment_ms())
        if self.lives == 1 and self.fate != "deletion archived" and self.chance(0.15):
            self.delete_a_group(life)
        if self.chance(0.5) or (is_last and self.fate != "deletion archived"):
            self.back_up_groups()
        if not is_last or self.fate != "kept":
            self.told("delete the topic")
            self.delete(self.topic)
            self.hands.wait_until_forgotten(self.groups, self.topic, self.partitions)

    def go_on(self, life: int, *, is_compacted: bool) -> None:
        self.write(life)
        if self.chance(0.3):
            self.delete_some_records()
        if self.chance(0.5):
            self.commit_some(life)
        if self.chance(0.3):
            self.back_up_records(life)
        if is_compacted:
            self.compact(life)

    def create(self, topic: str, configs: Mapping[str, str]) -> None:
        self.told(f"create {topic} with {self.partitions} partitions {configs or ''}")
        create_topic(self.hands.bootstrap, topic, self.partitions, {**KEEP_ALL, **configs})
        self.made.add(topic)

    def delete(self, topic: str) -> None:
        delete_topic(self.hands.bootstrap, topic)
        self.made.remove(topic)

    def write(self, life: int) -> None:
        for _ in range(self.draw.randint(1, 4)):
            chosen = self.draw.sample(range(self.partitions), self.draw.randint(1, self.partitions))
            records = [one for number in chosen for one in self.records(life, number, self.draw.choice([1, 3, 20]))]
            way = self.draw.choice(["plain", "committed", "aborted"])
            self.told(f"write {len(records)} records to {sorted(chosen)}, {way}")
            if way == "plain":
                self.hands.write(self.topic, records)
            else:
                self.hands.write_in_transaction(self.topic, records, commits=way == "committed")

    def records(self, life: int, partition: int, count: int) -> Iterator[tuple[int, Stored]]:
        now_ms = moment_ms()
        for _ in range(count):
            self.values += 1
            timestamp = now_ms + self.draw.choice([0, 0, -5_000, 5_000]) + self.draw.randint(-500, 500)
            yield partition, Stored(-1, timestamp, b"%d-%d-%d" % (life, partition, self.values))

    def delete_some_records(self) -> None:
        for number, (start, end) in enumerate(self.bounds()):
            if end > start and self.chance(0.4):
                below = self.draw.randint(start, end)
                self.told(f"delete the records of {number} below {below}")
                self.hands.delete_records(self.topic, number, below)

    def compact(self, life: int) -> None:
        """Until the cleaner has passed; a backup begins only when it is still."""
        self.told("compact")
        self.hands.set_policy(self.topic, "compact")
        has_been = len(self.read()[0])
        for written in range(1, MOST_TRIES):
            # Brokers begin a segment by the times of records, and clean those before.
            ((number, record),) = self.records(life, 0, 1)
            self.hands.write(self.topic, [(number, record._replace(timestamp=record.timestamp + 1_000 * written))])
            time.sleep(0.2)
            if len(self.read()[0]) < has_been + written:
                break
        else:
            raise AssertionError("not compacted")
        self.hands.set_policy(self.topic, "delete")
        eventually(self.is_still, "the cleaner goes on")
        self.tally["compacted"] += 1

    def is_still(self) -> bool:
        before = self.read()
        time.sleep(0.3)
        return before == self.read()

    def read(self) -> list[list[Stored]]:
        return self.hands.read(self.topic, self.partitions)

    def bounds(self) -> list[tuple[int, int]]:
        return self.hands.bounds(self.topic, self.partitions)

    # --- backups

    def back_up_records(self, life: int) -> None:
        bounds = self.bounds()
        for number, records in enumerate(self.read()):
            self.history.archived[life, number].update({one.offset: one for one in records})
            self.history.ends[life, number] = bounds[number][1]
        with_groups = self.chance(0.5)
        self.told(f"back up records{' and groups' if with_groups else ''}; the logs are {bounds}")
        self.back_up(self.topic, "topic" if with_groups else "off")

    def back_up_groups(self) -> None:
        self.told("back up groups")
        self.back_up(OFFSETS, "topic")

    def back_up(self, topic: str, groups: str) -> None:
        assert not errors_of(self.site.back_up_with(self.hands.bootstrap, topic, groups=groups))

    # --- positions

    def commit_some(self, life: int) -> None:
        group = self.draw.choice(self.groups)
        bounds = self.bounds()
        chosen = self.draw.sample(range(self.partitions), self.draw.randint(1, self.partitions))
        said = {number: self.place(life, number, *bounds[number]) for number in chosen}
        metadata = self.draw.choice(["", "ü", f"{self.values}"])
        way = self.draw.choice(["plain", "plain", "plain", "committed", "aborted"])
        self.told(f"{group} commits {said} {metadata!r}, {way}")
        positions = [ClientPartition(self.topic, number, offset, metadata) for number, offset in said.items()]
        if way == "plain":
            self.hands.commit(group, positions)
        else:
            self.hands.commit_in_transaction(group, positions, commits=way == "committed")
        at_ms = moment_ms()
        if way != "aborted":
            for number, offset in said.items():
                self.history.said[group, number].append(Said(life, at_ms, offset, metadata))

    def place(self, life: int, partition: int, start: int, end: int) -> int:
        """An offset of each kind: at the start, in a hole, of a record, at the end, and beyond."""
        archived = self.history.archived[life, partition]
        holes = [offset for offset in range(end) if archived and offset not in archived]
        return self.draw.choice(
            [
                0,
                start,
                end,
                max(end - 1, 0),
                max(archived, default=-1) + 1,
                self.draw.choice(list(archived) or [0]),
                self.draw.randint(0, end),
                self.draw.randint(0, end),
                self.draw.choice(holes or [0]),
                self.draw.choice([end + 7, 2**61]),
            ]
        )

    def delete_a_group(self, life: int) -> None:
        """While another one stands in the topic: else nobody could tell whether the topic was deleted."""
        group = self.draw.choice(self.groups)
        spoke = [number for (name, number) in list(self.history.said) if name == group]
        if not any(self.history.position(group, number, life, ALWAYS) for number in spoke):
            return
        if not self.history.stands(life, group):
            return
        self.told(f"delete {group}")
        self.hands.delete_group(group)
        at_ms = moment_ms()
        for number in spoke:
            if self.history.position(group, number, life, ALWAYS):
                self.history.said[group, number].append(Said(life, at_ms, REMOVED, ""))
        self.tally["groups deleted"] += 1
