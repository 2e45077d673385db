"""Which configs of a filling a cluster accepts. The cluster here is a rule; integration/restore/test_policies.py asks real ones."""

import asyncio
from collections.abc import Callable, Mapping

from archiver.errors import KafkaError
from archiver.kafka.brokers.cluster import Refusal
from archiver.kafka.brokers.codes import Code, broker_error
from archiver.restore.plan.request import RestoreRequest, Retention
from archiver.restore.plan.restore_plan import FILL_CONFIGS, TopicPlan
from archiver.restore.targets.fill_terms import Accepted, accepted
from archiver.restore.targets.target_configs import final_changes

Configs = Mapping[str, str]
WANTED = {"cleanup.policy": "delete", "retention.ms": "-1", "max.message.bytes": "2147483647", "segment.ms": "9"}
DEFAULTS = {"retention.ms": "1000", "max.message.bytes": "500"}


class Cluster:
    """Refuses what a rule finds wrong."""

    def __init__(self, wrong: Callable[[str, Configs], str], code: int = Code.POLICY_VIOLATION) -> None:
        self._wrong = wrong
        self._code = code
        self.asked: list[int] = []  # of how many topics each question was

    async def ask(self, wanted: Mapping[str, Configs]) -> dict[str, Refusal]:
        if wanted:
            self.asked.append(len(wanted))
        found = {name: self._wrong(name, configs) for name, configs in wanted.items()}
        return {name: broker_error(self._code, f"topic {name}", text) for name, text in found.items() if text}

    def settle(self, names: list[str], *sought: str) -> tuple[dict[str, Accepted], dict[str, Refusal]]:
        return asyncio.run(accepted(self.ask, dict.fromkeys(names, DEFAULTS), WANTED, sought))


def no_large_batches(_: str, configs: Configs) -> str:
    return "too large" if int(configs.get("max.message.bytes", 0)) > 20_971_520 else ""


def test_one_request_is_enough_where_the_cluster_accepts_all() -> None:
    cluster = Cluster(lambda *_: "")
    names = [f"t{number}" for number in range(1000)]
    assert cluster.settle(names, "retention.ms") == (dict.fromkeys(names, Accepted(WANTED)), {})
    assert cluster.asked == [1000]


def test_refused_configs_are_left_out_with_one_request_for_each() -> None:
    cluster = Cluster(no_large_batches)
    agreed, refused = cluster.settle([f"t{number}" for number in range(1000)], "retention.ms")
    assert refused == {}
    left = {name: value for name, value in WANTED.items() if name != "max.message.bytes"}
    assert all(one.configs == left and one.refused.keys() == {"max.message.bytes"} for one in agreed.values())
    assert cluster.asked == [1000] * (2 + len(WANTED))


def test_each_topic_gets_what_the_cluster_accepts_for_it() -> None:
    def wrong(name: str, configs: Configs) -> str:
        most = {"a": 2**31, "b": 900, "c": 700}[name]
        return "too large" if int(configs.get("max.message.bytes", 0)) > most else ""

    agreed, refused = Cluster(wrong, Code.INVALID_CONFIG).settle(["a", "b", "c"])
    assert ({name: len(one.configs) for name, one in agreed.items()}, refused) == ({"a": 4, "b": 3, "c": 3}, {})


def test_largest_retention_is_searched_only_if_asked_for() -> None:
    def wrong(name: str, configs: Configs) -> str:
        most = 86_400_000 if name == "a" else 90_000_001
        return "" if 0 <= int(configs.get("retention.ms", 0)) <= most else "not forever"

    assert "retention.ms" not in Cluster(wrong).settle(["a"])[0]["a"].configs
    agreed, _ = Cluster(wrong).settle(["a", "b"], "retention.ms", "retention.bytes")
    assert [agreed[name].configs["retention.ms"] for name in "ab"] == ["86400000", "90000001"]
    assert agreed["a"].refused.keys() == {"retention.ms"}


def test_retention_is_left_out_if_nothing_above_the_default_is_accepted() -> None:
    def wrong(_: str, configs: Configs) -> str:
        return "no" if "segment.ms" in configs or not 0 <= int(configs.get("retention.ms", 0)) <= 400 else ""

    agreed, _ = Cluster(wrong).settle(["a"], "retention.ms")
    assert agreed["a"].configs == {"cleanup.policy": "delete", "max.message.bytes": "2147483647"}
    assert agreed["a"].refused.keys() == {"retention.ms", "segment.ms"}


def test_configs_that_are_only_refused_together_refuse_the_topic() -> None:
    agreed, refused = Cluster(lambda _, configs: "too many" if len(configs) > 2 else "").settle(["a"])
    assert (agreed, list(refused)) == ({}, ["a"])


def test_topic_that_is_refused_with_any_configs_is_named() -> None:
    agreed, refused = Cluster(lambda name, _: "bad name" if name == "b" else "").settle(["a", "b"])
    assert (list(agreed), list(refused)) == (["a"], ["b"])
    assert "bad name" in str(refused["b"])


def test_other_refusals_are_final() -> None:
    cluster = Cluster(lambda name, _: "there" if name == "b" else "", Code.INVALID_PARTITIONS)
    agreed, refused = cluster.settle(["a", "b"])
    assert (list(agreed), list(refused), cluster.asked) == (["a"], ["b"], [2])
    assert isinstance(refused["b"], KafkaError)


def test_only_what_the_fill_has_set_is_taken_back_in_the_end() -> None:
    topic = TopicPlan(
        source="t", life=0, target="t", partitions=(), final_configs={"segment.ms": "5", "gone": "1"},
        archived_retention={"retention.bytes": "7"},
    )  # fmt: skip
    own = {**FILL_CONFIGS, "segment.bytes": "1000", "retention.ms": "60"}  # the cluster refused these two
    known = {*FILL_CONFIGS, "segment.bytes"}
    kept = {"segment.bytes", "segment.ms", "retention.ms", "retention.bytes"}
    changes = {"segment.ms": "5"} | dict.fromkeys(FILL_CONFIGS.keys() - kept)
    assert final_changes(topic, known, own, RestoreRequest()) == changes
    archived = final_changes(topic, known, own, RestoreRequest(retention=Retention.ARCHIVED))
    assert archived == changes | {"retention.ms": None, "retention.bytes": "7"}
