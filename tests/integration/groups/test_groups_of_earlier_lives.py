"""Groups of what is gone: of a cluster that was made anew under the same name, and of an operator who deleted one on purpose."""

import json
import shutil
import time
from collections.abc import Mapping
from typing import Any, Final

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient

from archiver.groups.positions.offsets_lives import _ONE_SURVEY_MS
from tests.integration.groups.test_group_positions import commit
from tests.support.brokers import KAFKA_41, StartBroker
from tests.support.kafka_topics import create_topic, produce_values
from tests.support.round_trip import ArchiveSite, errors_of

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(240)]

BACK: Final = "orders.back"
RESTORE: Final = ("restore", "--topics", "orders", "--rename", f"orders={BACK}", "--id", "mine", "--groups", ".*")


class Ground:
    """A broker of its own with a topic, and an archive of it, with `__consumer_offsets`."""

    def __init__(self, new_broker: StartBroker, site: ArchiveSite) -> None:
        self.broker, self.site = new_broker(KAFKA_41), site
        site.write_config(self.broker.bootstrap, "orders")
        site.write_target(self.broker.bootstrap)

    def fill(self, count: int, **groups: int) -> None:
        create_topic(self.broker.bootstrap, "orders")
        produce_values(self.broker.bootstrap, "orders", [b"%d" % number for number in range(count)])
        for group, offset in groups.items():
            commit(self.broker, group, ClientPartition("orders", 0, offset))

    def back_up(self) -> None:
        assert not errors_of(self.site.back_up_with(self.broker.bootstrap, "orders", groups="topic"))

    def begin_anew(self) -> None:
        """With empty volumes, and under the same address and cluster id. Topics seen within three seconds count as one survey."""
        self.broker.stop()
        shutil.rmtree(self.broker.data_dir / "log")
        time.sleep(_ONE_SURVEY_MS / 1000)
        self.broker.start()

    def run(self, *arguments: str) -> tuple[int, Any, str]:
        done = self.site.run_within(*arguments, "--format", "json")
        return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr

    def restore(self, *options: str) -> tuple[int, Any, str]:
        return self.run(*RESTORE, "--target", "target.yaml", *options)

    def offsets(self, group: str) -> Mapping[int, int]:
        """By Kafka's own client."""
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(60)
        return {one.partition: one.offset for one in found.topic_partitions if one.topic == BACK and one.offset >= 0}


@pytest.fixture
def ground(new_broker: StartBroker, site: ArchiveSite) -> Ground:
    return Ground(new_broker, site)


def states(rows: Any) -> set[tuple[str, int | None, int | None, str]]:  # noqa: ANN401 - JSON
    return {(one["group"], one["life"], one["offset"], one["state"]) for one in rows["positions"]}


def test_an_older_life_is_restored_with_the_groups_of_its_cluster(ground: Ground) -> None:
    ground.fill(1000, billing=480)
    ground.back_up()
    now = time.time()
    before = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now))}.{int(now * 1000) % 1000:03}Z"
    ground.begin_anew()
    ground.fill(10, billing=7, audit=3)
    ground.back_up()

    chosen = ("--groups", "billing|audit")
    code, told, _ = ground.run("groups", "show", *chosen, "--as-of", before)
    assert (code, states(told)) == (0, {("billing", 0, 480, "set")})
    code, told, _ = ground.run("groups", "show", *chosen)
    new = {("billing", 1, 7, "set"), ("audit", 1, 3, "set")}
    assert (code, states(told)) == (0, {("billing", 0, 480, "topic deleted"), *new})
    assert ground.run("verify")[0] == 0

    life = ("--life", "0", *chosen, "--until", before)
    code, planned, said = ground.restore(*life, "--dry-run")
    assert (code, {one["group"]: one["positions"] for one in planned["groups"]}) == (0, {"billing": 1}), said
    code, _, said = ground.restore(*life)
    assert (code, ground.offsets("billing"), ground.offsets("audit")) == (0, {0: 480}, {}), said

    of = ("--target", "target.yaml", "--restore", "mine")
    assert ground.run("groups", "rollback", *of)[0] == 0
    assert ground.offsets("billing") == {}
    for when in (("--as-of", before), ()):
        code, planned, said = ground.run("groups", "translate", *of, *chosen, *when)
        set_there = [(one["group"], row["offset"]) for one in planned["groups"] for row in one["positions"]]
        assert (code, set_there) == (0, [("billing", 480)]), said
    code, _, said = ground.run("groups", "apply", *of, *chosen)
    assert (code, ground.offsets("billing"), ground.offsets("audit")) == (0, {0: 480}, {}), said


@pytest.mark.parametrize("deleted", [("billing",), ("billing", "audit")])
def test_a_group_that_was_deleted_on_purpose_is_named_and_set_only_where_asked(
    ground: Ground, deleted: tuple[str, ...]
) -> None:
    """Also the last one in the topic: the cluster still has that."""
    ground.fill(1000, billing=480, audit=9)
    ground.back_up()
    admin = AdminClient({"bootstrap.servers": ground.broker.bootstrap})
    for future in admin.delete_consumer_groups(list(deleted)).values():
        future.result(60)
    ground.back_up()

    code, planned, said = ground.restore("--dry-run")
    removed = {
        one["group"]: [(row["committed"], row["would_be_set"]) for row in one["removed"]] for one in planned["groups"]
    }
    assert (code, removed["billing"]) == (0, [(480, False)]), said
    assert "billing in orders-0 (480)" in said
    code, told, said = ground.restore()
    assert (code, ground.offsets("billing")) == (0, {}), said
    assert f"removed before then, and not set: {len(deleted)} position" in said
    (billing,) = [one for one in told["groups"]["plan"]["groups"] if one["group"] == "billing"]
    assert [(row["committed"], row["reason"]) for row in billing["not_set"]] == [(480, "removed")]

    code, told, said = ground.restore("--groups-removed", "set")
    assert (code, ground.offsets("billing")) == (0, {0: 480}), said
    (billing,) = [one for one in told["groups"]["plan"]["groups"] if one["group"] == "billing"]
    kinds = [remark["kind"] for row in billing["positions"] for remark in row["remarks"]]
    assert kinds == ["exact", "removed while its topic lived on"]
