"""What a restore was asked for: which topics, into which, in which order, and under which id."""

from dataclasses import replace
from typing import Any

import pytest

from archiver.codec.selection import TopicSelection
from archiver.errors import UsageError
from archiver.restore.plan.request import (
    Existing,
    RestoreRequest,
    Retention,
    parse_patterns,
    parse_renames,
    parse_target_configs,
)

NAMES = ["payments", "orders", "orders.dead", "__consumer_offsets"]


def test_topics_are_chosen_by_full_match_and_renamed() -> None:
    request = RestoreRequest(topics="orders|pay.*", renames={"orders": "orders.back"})
    assert request.targets(NAMES) == {"orders": "orders.back", "payments": "payments"}
    assert list(RestoreRequest().targets(NAMES)) == ["orders", "orders.dead", "payments"]
    assert list(RestoreRequest(topics="__consumer_offsets|orders").targets(NAMES)) == ["__consumer_offsets", "orders"]


@pytest.mark.parametrize(
    ("topics", "renames", "message"),
    [
        ("nothing", [], "no archived topic matches nothing"),
        ("(", [], "not a regular expression"),
        ("", [], "--topics: is empty; give a regular expression, or leave it out"),
        ("orders", ["payments=p"], "--rename of payments: not among"),
        (None, ["orders=payments"], "two topics would be restored into payments"),
        (None, ["orders=orders_dead"], "orders_dead and orders.dead are one name to Kafka"),
        (None, ["orders=a.b", "payments=a_b"], "such as with --rename payments=NEW"),
        (None, ["orders"], "must be OLD=NEW"),
        (None, ["orders=a", "orders=b"], "each OLD once"),
        (None, ["orders=a/b"], "cannot be a topic's name"),
    ],
)
def test_what_cannot_be_is_refused(topics: str | None, renames: list[str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        RestoreRequest(topics=topics, renames=parse_renames(renames)).targets(NAMES)
    assert message in str(caught.value)


def test_topics_are_renamed_by_pattern_unless_by_name() -> None:
    request = RestoreRequest(
        topics="orders.*", renames={"orders": "o"}, patterns=parse_patterns([r"orders\.(.*)=\1.again", "orders=y"])
    )
    assert request.targets(NAMES) == {"orders": "o", "orders.dead": "dead.again"}


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(=x", "--rename-regex (: not a regular expression"),
        ("orders", "must be REGEX=NEW"),
        (r"(orders)=\2", "invalid group reference 2"),
        (r"(orders)=\1/x", "'orders/x' cannot be a topic's name"),
        (".*=all", "two topics would be restored into all"),
        ("order=copy", "--rename-regex order: matches none of the topics that are restored"),
    ],
)
def test_a_pattern_that_makes_no_name_is_refused(pattern: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        RestoreRequest(patterns=parse_patterns([pattern])).targets(NAMES)
    assert message in str(caught.value)


def test_an_order_that_no_topic_follows_is_noted() -> None:
    """It changes nothing of what comes back, so it is not refused; but whoever typed it wants some topics soon."""
    targets = RestoreRequest(topics="orders.*").targets(NAMES)
    assert RestoreRequest(first="payment").notes(targets) == [
        "--first payment: matches none of the topics that are restored; the largest go first"
    ]
    assert RestoreRequest(first="order").notes(targets)  # the whole name has to match
    assert RestoreRequest(first="orders").notes(targets) == []
    assert RestoreRequest().notes(targets) == []


def test_how_it_is_done_makes_no_other_restore() -> None:
    plain = RestoreRequest().default_id("s3://archive", "cluster")
    assert RestoreRequest(first="a", rate_bytes=5, batch_bytes=9).default_id("s3://archive", "cluster") == plain
    assert RestoreRequest(target_configs={"a": "b"}).default_id("s3://archive", "cluster") == plain
    wanted = TopicSelection(partitions=frozenset({1, 2}), offsets={1: (5, 9)}, from_ms=7)
    others: list[dict[str, Any]] = [
        {"wanted": wanted},
        {"wanted": replace(wanted, until_ms=9)},
        {"existing": Existing.APPEND},
        {"retention": Retention.ARCHIVED},
        {"replication_factor": 2},
        {"skips_damage": True},
        {"patterns": (("a", "b"),)},
        {"is_latest_per_key": True},
        {"is_latest_per_key": False},
        {"instance": "a"},
        {"is_history": True},
    ]
    ids = {RestoreRequest(**other).default_id("s3://archive", "cluster") for other in others}
    assert len(ids | {plain}) == len(others) + 1


def test_target_configs_are_parsed() -> None:
    given = ["retention.ms=5", "min.insync.replicas=", "follower.replication.throttled.replicas=0:1=2"]
    assert parse_target_configs(given) == {
        "retention.ms": "5",
        "min.insync.replicas": "",
        "follower.replication.throttled.replicas": "0:1=2",
    }


@pytest.mark.parametrize("wrong", [["retention.ms"], ["=5"], ["a b=5"], ["a=1", "a=2"]])
def test_target_configs_that_are_not_pairs_are_refused(wrong: list[str]) -> None:
    with pytest.raises(UsageError, match=r"^--target-config .*: must be NAME=VALUE, or NAME="):
        parse_target_configs(wrong)


def test_target_configs_have_no_effect_on_topics_that_are_appended_to() -> None:
    assert RestoreRequest(target_configs={"a": "b"}).notes(["orders"]) == []
    (note,) = RestoreRequest(target_configs={"a": "b"}, existing=Existing.APPEND).notes(["orders"])
    assert note.startswith("--target-config: ")


def test_the_last_of_each_key_is_the_default_of_a_copy_alone() -> None:
    wishes = (None, True, False)
    assert [RestoreRequest(is_latest_per_key=one).takes_latest(is_copied=True) for one in wishes] == [True, True, False]
    assert [RestoreRequest(is_latest_per_key=one).takes_latest(is_copied=False) for one in wishes] == [
        False,
        True,
        False,
    ]
    assert RestoreRequest(is_latest_per_key=False, where="true").chooses(is_copied=True)


def test_terms_of_earlier_versions_are_those_of_the_same_command_now() -> None:
    """A restore that an earlier version has begun goes on."""
    assert RestoreRequest().terms.keys() == {"life", "wanted", "where", "latest_per_key", "skips_damage"}
    assert RestoreRequest().terms["latest_per_key"] is False
    wishes: list[dict[str, Any]] = [{}, {"is_latest_per_key": False}, {"instance": "a"}, {"is_history": True}]
    terms = [RestoreRequest(**one).terms for one in wishes]
    assert all(one != other for at, one in enumerate(terms) for other in terms[:at])


def test_the_same_command_has_the_same_id_and_another_one_another() -> None:
    asked = [("a|b", []), ("a", ["a=c", "b=d"]), ("a", ["a=c"]), (None, []), ("None", [])]
    requests = [RestoreRequest(topics=topics, renames=parse_renames(renames)) for topics, renames in asked]
    requests += [RestoreRequest(topics="a|b", life=0), RestoreRequest(topics="a|b", life=1)]
    ids = [request.default_id("s3://archive", "cluster") for request in requests]
    assert len(set(ids)) == len(ids)
    assert (
        RestoreRequest(topics="a", renames=parse_renames(["b=d", "a=c"])).default_id("s3://archive", "cluster")
        == ids[1]
    )
    assert requests[0].default_id("s3://archive", "other") != ids[0] != requests[0].default_id("s3://b", "cluster")


def test_batches_are_no_larger_than_brokers_take() -> None:
    with pytest.raises(UsageError, match="--batch-bytes 200000000: must be 1 to 16,777,216"):
        RestoreRequest(batch_bytes=200_000_000)


def test_partitions_and_offsets_that_exclude_each_other_are_refused() -> None:
    """Topics without a record would be made of it, and that be told as success."""
    with pytest.raises(UsageError, match="no partition in common"):
        RestoreRequest(wanted=TopicSelection(partitions=frozenset([1, 2]), offsets={0: (1, 5)}))
    RestoreRequest(wanted=TopicSelection(partitions=frozenset([0, 2]), offsets={0: (1, 5)}))
