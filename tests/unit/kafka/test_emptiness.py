"""What proves that a log is empty behind an offset: each thing that a broker may tell otherwise leaves it unproved (decision 24)."""

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from archiver.errors import KafkaError, KafkaTemporaryError
from archiver.kafka.brokers.calls import EARLIEST_LOCAL_TIMESTAMP, ListedOffset, ListOffsetsCall
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.codes import broker_error
from archiver.kafka.records import emptiness
from archiver.kafka.records.emptiness import prove_empty
from archiver.kafka.records.fetch import Fetched, FetchProblem, FetchTarget
from archiver.kafka.topics.configs import TopicConfigs

TARGET = FetchTarget(topic="t", topic_id="id", partition=0, offset=100)
NOTHING = Fetched(
    topic="t",
    partition=0,
    records=memoryview(b""),
    aborted=(),
    high_watermark=160,
    last_stable_offset=150,
    log_start_offset=0,
    by_topic_id=True,
    error=None,
)
FENCED = 74
REFUSED = broker_error(29, "configs of topic t could not be read", right="DescribeConfigs on topic t")


@dataclass
class Leader:
    """What it answers, one after the other. By default: all is on its disk, and nothing comes."""

    local_starts: list[int] = field(default_factory=lambda: [0, 0])
    epochs: list[int] = field(default_factory=lambda: [7, 7, 7])  # when it is asked for each offset
    version: int = 8
    answer: Fetched = NOTHING
    configs: dict[str, str] | None = field(default_factory=dict)  # None: refused

    async def leader(self, *_: object) -> int:
        return 1

    def forget_leaders(self, topic: str) -> None:
        pass

    async def send(self, _: int, call: ListOffsetsCall) -> list[ListedOffset]:
        epoch = self.epochs.pop(0)
        asked = cast("Any", call)
        is_local = asked._timestamp == EARLIEST_LOCAL_TIMESTAMP
        call.knows_local_start = is_local and self.version >= 8
        code = FENCED if asked._leader_epoch not in {-1, epoch} else 0
        offset = self.local_starts.pop(0) if is_local else 160
        return [ListedOffset(topic="t", partition=0, error_code=code, offset=offset, leader_epoch=epoch)]


@pytest.fixture
def leader(monkeypatch: pytest.MonkeyPatch) -> Leader:
    made = Leader()

    async def fetch(*_: object, **__: object) -> list[Fetched]:
        return [made.answer]

    async def configs(*_: object) -> tuple[dict[str, TopicConfigs], dict[str, KafkaError]]:
        if made.configs is None:
            return {}, {"t": cast("KafkaError", REFUSED)}
        return {"t": TopicConfigs(effective=made.configs, own={})}, {}

    monkeypatch.setattr(emptiness, "fetch", fetch)
    monkeypatch.setattr(emptiness, "topic_configs_each", configs)
    return made


def proved(leader: Leader) -> int:
    """How far beyond the offset."""
    return asyncio.run(prove_empty(cast("KafkaClient", leader), TARGET)).reaches - TARGET.offset


def advice(leader: Leader) -> str:
    return asyncio.run(prove_empty(cast("KafkaClient", leader), TARGET)).advice(TARGET.offset)


def test_it_is_empty_up_to_the_last_stable_offset_of_the_answer(leader: Leader) -> None:
    assert proved(leader) == 50


@pytest.mark.parametrize("starts", [[101, 101], [0, 101]], ids=["before", "meanwhile"])
def test_what_is_in_the_tier_proves_nothing(leader: Leader, starts: list[int]) -> None:
    leader.local_starts = starts
    assert proved(leader) == 0


@pytest.mark.parametrize(
    "answer",
    [
        replace(NOTHING, error=FetchProblem.THROTTLED),
        replace(NOTHING, records=memoryview(b"batch")),
        replace(NOTHING, last_stable_offset=-1),
    ],
    ids=["an error", "a record", "no end"],
)
def test_another_answer_proves_nothing(leader: Leader, answer: Fetched) -> None:
    leader.answer = answer
    assert proved(leader) == 0


@pytest.mark.parametrize("epochs", [[7, 8, 8], [7, 7, 8]], ids=["at once", "while it was asked"])
def test_another_leader_proves_nothing(leader: Leader, epochs: list[int]) -> None:
    leader.epochs = epochs
    with pytest.raises((KafkaError, KafkaTemporaryError)):
        proved(leader)


@pytest.mark.parametrize(
    ("switch", "version"),
    [
        ("confluent.tier.enable", 8),
        ("confluent.tier.enable", 7),
        ("redpanda.remote.read", 8),
        ("remote.storage.enable", 7),
    ],
)
def test_a_tier_of_another_make_proves_nothing(leader: Leader, switch: str, version: int) -> None:
    leader.configs, leader.version = {switch: "true"}, version
    assert proved(leader) == 0


def test_a_tier_of_apache_kafka_is_known_by_the_local_start(leader: Leader) -> None:
    leader.configs = {"remote.storage.enable": "true", "confluent.tier.enable": "false"}
    assert proved(leader) == 50


def test_configs_that_may_not_be_read_prove_nothing(leader: Leader) -> None:
    leader.configs = None
    assert "grant this user DescribeConfigs on topic t" in advice(leader)
    leader.local_starts, leader.epochs = [0, 0], [7, 7, 7]
    assert proved(leader) == 0
