"""Groups of topics whose logs were cut back under the archive, and have grown again with other records: restored, and read on.

A log is cut by hand while its broker is down. What a group committed before a cut, above the branch, goes to the branch; what it
committed since, in an epoch of the new log, stays where it is; without an epoch nobody can tell, and it goes to the branch.
"""

import io
import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import pytest
from confluent_kafka import TopicPartition as ClientPartition

from archiver.archive.format.handle import open_archive
from archiver.archive.notes.topics import read_topic
from archiver.cli.main import main
from archiver.config.model import ArchiverConfig
from tests.support.brokers import StartBroker
from tests.support.cluster import cut_log
from tests.support.group_histories import Hands, Stored, next_index
from tests.support.kafka_broker import KafkaBroker
from tests.support.kafka_topics import create_topic, with_client
from tests.support.round_trip import KEEP_ALL, ArchiveSite, errors_of

pytestmark = [pytest.mark.kafka, pytest.mark.s3]

CUTS: Final = 2
PARTITIONS: Final = 4
GROUPS: Final = 5
FIRST_MS: Final = 1_790_000_000_000
Place = tuple[str, int]  # topic and partition


class Said(NamedTuple):
    """A commit: on which log (0: before all cuts), where, and whether its epoch tells which log that was."""

    log: int
    offset: int
    tells: bool


@dataclass
class Ground:
    """Topics on one broker, and one archive of them."""

    broker: KafkaBroker
    site: ArchiveSite
    draw: random.Random
    topics: Sequence[str]
    ends: dict[Place, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0]))  # of batches
    said: dict[tuple[str, str, int], Said] = field(default_factory=dict)  # by group, topic, partition
    values: int = 0

    @property
    def places(self) -> list[Place]:
        return [(topic, number) for topic in self.topics for number in range(PARTITIONS)]

    def write(self, hands: Hands) -> None:
        """Small batches, so that there are many places to cut."""
        for _ in range(self.draw.randint(2, 5)):
            for topic in self.topics:
                records = []
                for number in range(PARTITIONS):
                    count = self.draw.choice([1, 2, 7])
                    self.ends[topic, number].append(self.ends[topic, number][-1] + count)
                    records += [(number, self.record()) for _ in range(count)]
                hands.write(topic, records)

    def record(self) -> Stored:
        self.values += 1
        return Stored(-1, FIRST_MS + self.values, b"v-%d" % self.values)

    def commit(self, hands: Hands, log: int) -> None:
        for group in range(GROUPS):
            for topic in self.topics:
                chosen = [number for number in range(PARTITIONS) if self.draw.random() < 0.6]
                if chosen:
                    self.commit_one(hands, f"{topic}.{group}", topic, chosen, log)

    def commit_one(self, hands: Hands, group: str, topic: str, partitions: Iterable[int], log: int) -> None:
        epochs = hands.epochs(topic, PARTITIONS)
        positions = []
        for number in partitions:
            offset = self.draw.randint(0, self.ends[topic, number][-1])
            tells = self.draw.random() < 0.6
            self.said[group, topic, number] = Said(log, offset, tells)
            positions.append(
                ClientPartition(topic, number, offset, leader_epoch=epochs[number])
                if tells
                else ClientPartition(topic, number, offset)
            )
        hands.commit(group, positions)

    def back_up(self) -> None:
        for topic in self.topics:
            assert not errors_of(self.site.back_up_with(self.broker.bootstrap, topic, groups="topic"))

    def cut(self) -> None:
        """Each log behind a batch, or not at all; then the broker leads on in a new epoch."""
        self.broker.stop()
        for topic, number in self.places:
            ends = self.ends[topic, number]
            if self.draw.random() < 0.8:
                kept = self.draw.randint(1, len(ends))
                del ends[kept:]
                cut_log(self.broker, topic, number, ends[-1])
        self.broker.start()
        with_client(self.broker.bootstrap, lambda client: client.offsets(self.places))

    def branches(self, topic: str, partition: int) -> list[int]:
        """Where each branch of a partition begins, as the archive has noted."""
        storage = ArchiverConfig.model_validate(self.site.config(self.broker.bootstrap, [topic])).storage
        fact = read_topic(open_archive(storage), topic)
        assert fact is not None
        return [life.branches[partition].offset for life in fact.lives if partition in life.branches]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("count", [1, pytest.param(20, marks=pytest.mark.long)])
def test_groups_of_logs_that_were_cut_back(
    new_broker: StartBroker, site: ArchiveSite, topic: str, seed: int, count: int
) -> None:
    broker = new_broker()
    ground = Ground(broker, site, random.Random(f"{seed} cut"), [f"{topic[:60]}.{number}" for number in range(count)])
    for name in ground.topics:
        create_topic(broker.bootstrap, name, PARTITIONS, KEEP_ALL)
    branches_by_log: list[dict[Place, list[int]]] = []
    hands = Hands.of(broker.bootstrap)
    for log in range(CUTS + 1):
        if log:
            ground.cut()
        ground.write(hands)
        ground.back_up()
        branches_by_log.append({place: ground.branches(*place) for place in ground.places})
        ground.write(hands)  # which is not archived before the next cut
        ground.commit(hands, log)
    ground.back_up()
    archived = {name: hands.read(name, PARTITIONS) for name in ground.topics}
    values = {place: [one.value for one in archived[place[0]][place[1]]] for place in ground.places}
    kinds = restore(ground)
    for topic_name, number in ground.places:
        if ground.draw.random() < 0.5:
            values[topic_name, number].append(b"other-0")
            hands.write(f"{topic_name}.back", [(number, Stored(-1, FIRST_MS, b"other-0"))])
    for (group, name), found in read_next(ground, hands).items():
        expected = {
            number: next_value(archived[name][number], values[name, number], where)
            for number in range(PARTITIONS)
            if (where := position(ground.said.get((group, name, number)), (name, number), branches_by_log)) is not None
        }
        told = {
            number: (said, [branches[name, number] for branches in branches_by_log])
            for number in range(PARTITIONS)
            if (said := ground.said.get((group, name, number))) is not None
        }
        assert found == expected, (group, told)
    print(f"{len(ground.said)} positions of seed {seed}: {dict(kinds)}")
    assert kinds["taken to the branch"]


def position(said: Said | None, place: Place, branches_by_log: Sequence[Mapping[Place, list[int]]]) -> int | None:
    """Where a group stands on the last log: below all branches since the log on which its commit surely was made."""
    if said is None:
        return None
    before = len(branches_by_log[said.log][place]) if said.tells else 0
    return min([said.offset, *branches_by_log[-1][place][before:]])


def next_value(records: Sequence[Stored], values: Sequence[bytes], offset: int) -> bytes | None:
    behind = values[next_index(records, offset) :]
    return behind[0] if behind else None


def restore(ground: Ground) -> Counter[str]:
    """Returns how often each kind of remark was made."""
    site, out = ground.site, io.StringIO()
    site.write_config(ground.broker.bootstrap, *ground.topics)
    site.write_target(ground.broker.bootstrap)
    files = ["-c", str(site.folder / "archive.yaml"), "--target", str(site.folder / "target.yaml")]
    with redirect_stdout(out):
        renamed = ["--rename-regex", r"(.*\.\d+)=\1.back", "--topics", r".*\.\d+"]
        assert main(["restore", *renamed, "--groups", r".*\.\d+", "--format", "json", *files]) == 0
    plan: Mapping[str, Any] = json.loads(out.getvalue())["groups"]["plan"]
    return Counter(
        remark["kind"] for group in plan["groups"] for row in group["positions"] for remark in row["remarks"]
    )


def read_next(ground: Ground, hands: Hands) -> dict[tuple[str, str], dict[int, bytes | None]]:
    return {
        (f"{name}.{group}", name): {
            number: value
            for number, (_, value) in hands.next_records(f"{name}.{group}", f"{name}.back", PARTITIONS).items()
        }
        for name in ground.topics
        for group in range(GROUPS)
    }
