"""Which configs a cluster takes, found out with few questions. The cluster here is a rule; real ones are asked in integration/test_policies.py."""

import asyncio
from collections.abc import Callable, Mapping

from archiver.errors import KafkaError
from archiver.kafka.cluster import Refusal
from archiver.kafka.codes import Code, broker_error
from archiver.restore.accepted_configs import Agreed, ConfigSearch

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

    def settle(self, names: list[str], *sought: str) -> tuple[dict[str, Agreed], dict[str, Refusal]]:
        too_large = {name: 2**63 - 1 if "retention" in name else 2**31 - 1 for name in sought}
        return asyncio.run(ConfigSearch(self.ask, WANTED, too_large, lambda _: DEFAULTS).find(names))


def no_large_batches(_: str, configs: Configs) -> str:
    return "too large" if int(configs.get("max.message.bytes", 0)) > 20_971_520 else ""


def test_one_question_is_enough_where_all_is_taken() -> None:
    cluster = Cluster(lambda *_: "")
    names = [f"t{number}" for number in range(1000)]
    assert cluster.settle(names, "max.message.bytes") == (dict.fromkeys(names, Agreed(WANTED)), {})
    assert cluster.asked == [1000]


def test_a_thousand_topics_are_asked_about_as_one() -> None:
    cluster = Cluster(no_large_batches)
    agreed, refused = cluster.settle([f"t{number}" for number in range(1000)], "max.message.bytes")
    assert refused == {}
    assert {one.configs["max.message.bytes"] for one in agreed.values()} == {"20971520"}
    assert all(
        one.configs.keys() == WANTED.keys() and one.refused.keys() == {"max.message.bytes"} for one in agreed.values()
    )
    assert sorted(cluster.asked)[-2:] == [999, 1000]
    assert len(cluster.asked) < 45
    assert sum(cluster.asked) < 2045


def test_a_topic_that_does_not_take_what_others_like_it_take_is_asked_for_itself() -> None:
    def wrong(name: str, configs: Configs) -> str:
        most = 700 if name == "c" else 900
        return "too large" if int(configs.get("max.message.bytes", 0)) > most else ""

    agreed, refused = Cluster(wrong).settle(["a", "b", "c"], "max.message.bytes")
    assert ({name: one.configs["max.message.bytes"] for name, one in agreed.items()}, refused) == (
        {"a": "900", "b": "900", "c": "700"},
        {},
    )


def test_what_may_not_be_set_at_all_or_only_below_what_holds_is_left_out() -> None:
    def wrong(_: str, configs: Configs) -> str:
        return "no" if "segment.ms" in configs or int(configs.get("max.message.bytes", 0)) > 400 else ""

    agreed, _ = Cluster(wrong).settle(["a"], "max.message.bytes", "segment.ms")
    assert agreed["a"].configs == {"cleanup.policy": "delete", "retention.ms": "-1"}
    assert agreed["a"].refused.keys() == {"max.message.bytes", "segment.ms"}


def test_a_limit_is_sought_only_where_that_was_asked_for() -> None:
    def wrong(_: str, configs: Configs) -> str:
        return "" if 0 <= int(configs.get("retention.ms", 0)) <= 86_400_000 else "not forever"

    assert "retention.ms" not in Cluster(wrong).settle(["a"], "max.message.bytes")[0]["a"].configs
    assert Cluster(wrong).settle(["a"], "retention.ms")[0]["a"].configs["retention.ms"] == "86400000"


def test_what_is_refused_whatever_it_is_given_is_told() -> None:
    agreed, refused = Cluster(lambda name, _: "bad name" if name == "b" else "").settle(["a", "b"])
    assert (list(agreed), list(refused)) == (["a"], ["b"])
    assert "bad name" in str(refused["b"])


def test_other_refusals_are_not_bargained_about() -> None:
    cluster = Cluster(lambda name, _: "there" if name == "b" else "", Code.INVALID_PARTITIONS)
    agreed, refused = cluster.settle(["a", "b"], "max.message.bytes")
    assert (list(agreed), list(refused), cluster.asked) == (["a"], ["b"], [2])
    assert isinstance(refused["b"], KafkaError)
