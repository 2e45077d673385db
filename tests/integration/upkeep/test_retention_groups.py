"""Sweeps of `__consumer_offsets` beside a real broker: groups stand where they stood, as of every time that is kept."""

import re
import signal
import time
from collections.abc import Mapping
from typing import Any

import pytest
import yaml
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient

from archiver.cli.main import main
from archiver.config.quantities import spell_time
from archiver.upkeep.object_check import Level
from archiver.upkeep.retention.sweeping.sweep_result import SweepResult
from tests.integration.groups.test_group_positions import commit
from tests.integration.groups.test_groups_show import commit_in_transaction, shown
from tests.support.brokers import KAFKA_41, Broker, StartBroker
from tests.support.kafka_topics import create_topic, produce_values
from tests.support.real_sweeps import archive_of, start_sweep, sweep
from tests.support.round_trip import ArchiveSite

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(400)]

GROUPS = ("billing", "shipping", "mail", "audit")
ROUNDS = 6
KEPT_FROM = 3  # the round from which on positions are kept
PLACES = ("fold.put", "fold.compared", "fold.noted", "sweep.noted", "sweep.deleted")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class History:
    """A broker whose groups went on for a while; and when each round of commits was over."""

    def __init__(self, broker: Broker, topic: str, site: ArchiveSite) -> None:
        self.broker, self.topic, self.site = broker, topic, site
        self.times: list[int] = []
        create_topic(broker.bootstrap, topic, 2)
        for partition in range(2):
            produce_values(broker.bootstrap, topic, [b"%d" % number for number in range(20)], partition)
        for number in range(ROUNDS):
            self._commit(number)
            self.times.append(now_ms())
            site.back_up_with(broker.bootstrap, topic, groups="topic", segment={"records": 2})
            time.sleep(1.1)

    def _commit(self, number: int) -> None:
        for group in GROUPS:
            commit(self.broker, group, ClientPartition(self.topic, 0, number), ClientPartition(self.topic, 1, number))
        if number in {0, 4}:
            commit(self.broker, "once", ClientPartition(self.topic, number % 2, 1))
        # Its record, a commit of another group, and its marker: an object may end between them.
        commit_in_transaction(
            self.broker.bootstrap, "exact", ClientPartition(self.topic, 0, number), commits=number != 2
        )
        if number == 1:
            admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
            admin.delete_consumer_groups(["mail"])["mail"].result(20)
            admin.alter_consumer_group_offsets(
                [ConsumerGroupTopicPartitions("audit", [ClientPartition(self.topic, 1, 7)])]
            )

    def sweep(self, **asked: Any) -> SweepResult:  # noqa: ANN401
        """Sweep so that all is kept from the end of a round on."""
        asked = {"now_ms": self.times[KEPT_FROM] + 1000} | asked
        return sweep(
            self.site, self.broker.bootstrap, self.topic, {"groups": "1s"}, topics="__consumer_offsets", **asked
        )

    def objects(self) -> list[str]:
        return [item.key for item in archive_of(self.site).store.list("topics/__consumer_offsets/")]


def without_source(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "source"} for row in found["positions"]]


def all_shown(history: History, capsys: pytest.CaptureFixture[str]) -> list[list[dict[str, Any]]]:
    times = [["--as-of", spell_time(at_ms)] for at_ms in history.times[KEPT_FROM:]]
    return [without_source(shown(history.site, capsys, *options)) for options in ([], *times)]


def test_positions_stay_what_they_were_as_of_all_times_that_are_kept(
    new_broker: StartBroker, topic: str, site: ArchiveSite, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = new_broker(KAFKA_41)
    site.write_config(broker.bootstrap, topic)
    history = History(broker, topic, site)
    before, objects = all_shown(history, capsys), history.objects()
    assert len(before[0]) > len(GROUPS)

    first = history.sweep(agreed=True)
    assert [kept.why for kept in first.plan.kept if kept.topic == "__consumer_offsets"] == [
        "what it keeps was never noted before; a sweep that is no dry run notes it, and the next one goes by it"
    ]
    shown_plan = history.sweep(is_dry_run=True)
    (planned,) = shown_plan.plan.topics
    assert planned.needs_agreement
    assert any("a fold that is written first" in note for one in planned.partitions for note in one.notes)
    assert history.sweep().waiting
    assert history.objects() == objects
    assert not list(archive_of(site).store.list("control/group-folds/"))

    path = site.folder / "archive.yaml"
    config = yaml.safe_load(path.read_text())
    config["retention"] = {"groups": "1s", "grace": 0, "min-object-age": 0}
    path.write_text(yaml.safe_dump(config))
    arguments = ["--topics", "__consumer_offsets", "--now", spell_time(history.times[KEPT_FROM] + 1000)]
    capsys.readouterr()
    assert main(["retention", "--dry-run", "-c", str(path), "--quiet", *arguments]) == 0
    told = capsys.readouterr().out
    assert re.search(
        r"__consumer_offsets-\d+: a fold that is written first, up to offset \d+, stands for \d+ objects? to", told
    )
    for place in PLACES:
        killed = start_sweep(site, broker.bootstrap, topic, place, *arguments, retention={"groups": "1s"})
        _, told = killed.communicate(timeout=120)
        assert killed.returncode == -signal.SIGKILL, (place, told)
        assert all_shown(history, capsys) == before, place
    done = history.sweep(agreed=True)
    assert done.is_complete
    (swept,) = done.plan.topics
    left = history.objects()
    assert len(objects) - len(left) >= len(GROUPS)
    assert all(one.fold_next > 0 for one in swept.partitions if one.going)  # killed sweeps may have left nothing
    assert all_shown(history, capsys) == before
    assert not list(history.sweep(agreed=True).plan.topics[0].going)

    assert main(["groups", "show", "-c", str(path), "--as-of", spell_time(history.times[0])]) == 3
    assert "where groups stood as of" in capsys.readouterr().err
    for level in (Level.LISTING, Level.RECORDS):
        found = site.verify(
            broker.bootstrap, [topic, "__consumer_offsets"], level, against_kafka=level is Level.LISTING
        )
        assert found.is_whole, (found.problems, found.errors)
        assert any("a retention sweep took them" in note for note in found.notes)
    assert main(["groups", "fold", "-c", str(path)]) == 0
    assert all_shown(history, capsys) == before
    site.back_up_with(broker.bootstrap, topic, groups="topic", segment={"records": 2})
    assert all_shown(history, capsys)[1:] == before[1:]
