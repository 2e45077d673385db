"""In which order topics are purged, created and filled: what may end a restore is known before the first is gone, and few are at any time."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

import archiver.restore.plan.restore_notes
import archiver.restore.targets.targets
import archiver.spark.restore_job
from archiver.archive.format.control import append_fact
from archiver.archive.format.handle import Archive
from archiver.cli.main import main
from archiver.errors import StoreError, TargetError
from archiver.kafka.brokers.cluster import Refusal
from archiver.kafka.topics.admin import KafkaAdmin
from archiver.kafka.topics.deletion import delete_topics_by_id
from archiver.restore.plan.request import Existing
from archiver.restore.plan.restore_notes import RestoreNotes
from archiver.restore.targets.targets import Targets
from archiver.spark import purge_proof
from tests.integration.restore.test_policies import limited
from tests.support.brokers import Broker, StartBroker
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_topics import add_partitions, create_topic, delete_topic, with_client
from tests.support.round_trip import ArchiveSite
from tests.support.target_topics import (
    archived,
    configs_of,
    foreign_topic,
    id_of,
    log_of,
    on_target,
    records_of,
    restored,
    write,
)

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(180)]

Capsys = pytest.CaptureFixture[str]
Run = tuple[int, Any, str]  # exit code, JSON, what it complains of


def restore(site: ArchiveSite, broker: Broker, topic: str, capsys: Capsys, *more: str) -> Run:
    """All topics below a name, each in the place of what is there, by the command itself, but for Spark's engine."""
    site.write_config(broker.bootstrap)
    command = ["restore", "-c", str(site.folder / "archive.yaml"), "--target", str(site.write_target(broker.bootstrap))]
    code = main([*command, "--topics", rf"{topic}\..*", "--purge-target", "--format", "json", *more])
    told = capsys.readouterr()
    return code, json.loads(told.out or "null"), told.err


def topics_on(broker: Broker) -> set[str]:
    return set(with_client(broker.bootstrap, lambda client: client.describe_topics(None)))


def when_the_first_is_gone(then: Callable[[], object], patch: pytest.MonkeyPatch) -> None:
    delete = delete_topics_by_id
    done: list[object] = []

    async def delete_and_then(*arguments: Any, **named: Any) -> None:  # noqa: ANN401
        await delete(*arguments, **named)
        if not done:
            done.append(await asyncio.to_thread(then))

    patch.setattr(archiver.restore.targets.targets, "delete_topics_by_id", delete_and_then)


def when_all_is_read(then: Callable[[], object], patch: pytest.MonkeyPatch) -> None:
    read = purge_proof.read_whole

    def read_and_then(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401
        found = read(*arguments, **named)
        then()
        return found

    patch.setattr(purge_proof, "read_whole", read_and_then)


@contextmanager
def dying_in(owner: type, step: str, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """A restore in here comes to an end before this step."""
    with patch.context() as here:
        here.setattr(owner, step, lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            yield


# --- some after the other


@pytest.fixture
def four(broker_41: Broker, topic: str, site: ArchiveSite, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Archived topics of ten records each, which others stand for now; one of them is purged at a time."""
    monkeypatch.setattr(archiver.restore.targets.targets, "_PURGED_AT_ONCE", 1)
    names = [f"{topic}.{letter}" for letter in "abcd"]
    for name in names:
        archived(broker_41, name, site, records_of(10))
        delete_topic(broker_41.bootstrap, name)
        foreign_topic(broker_41, name, 7)
    return names


def test_what_cannot_be_purged_any_more_leaves_the_others_whole(
    broker_41: Broker, topic: str, site: ArchiveSite, four: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Capsys
) -> None:
    """A record comes to the last of four topics when the first of them is gone: those that went are filled and finished."""
    last_id = id_of(broker_41, four[-1])
    when_the_first_is_gone(lambda: write(broker_41, four[-1], records_of(8)[7:]), monkeypatch)
    code, told, said = restore(site, broker_41, topic, capsys)
    assert (code, told["not_begun"]) == (2, four[-1:]), said
    assert [(one["records"], one["is_finished"]) for one in told["topics"]] == [(10, True)] * 3
    assert f"target topic {four[-1]} is not purged: 1 record came since it was looked at" in said
    assert [log_of(broker_41, name) for name in four] == [(0, 10)] * 3 + [(0, 8)]
    assert id_of(broker_41, four[-1]) == last_id
    assert restore(site, broker_41, topic, capsys)[0] == 0
    assert [log_of(broker_41, name) for name in four] == [(0, 10)] * 4


def test_who_may_not_put_notes_learns_it_before_a_topic_is_gone(
    broker_41: Broker, topic: str, site: ArchiveSite, four: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Capsys
) -> None:
    note = append_fact

    def note_or_not(archive: Archive, stream: str, *others: Any) -> Any:  # noqa: ANN401
        if stream.endswith(f"{four[-1]}/replaced"):
            raise StoreError(f"{stream}: AccessDenied")
        return note(archive, stream, *others)

    monkeypatch.setattr(archiver.restore.plan.restore_notes, "append_fact", note_or_not)
    assert restore(site, broker_41, topic, capsys)[0] == 1
    assert [log_of(broker_41, name) for name in four] == [(0, 7)] * 4


def test_what_is_written_in_the_place_of_a_purged_topic_is_not_purged(
    broker_41: Broker, topic: str, site: ArchiveSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restore ended between a purge and the first record, and producers that nobody had stopped went on."""
    archived(broker_41, topic, site, records_of(10))
    foreign_topic(broker_41, f"{topic}.back", 7)
    with dying_in(RestoreNotes, "note_plans", monkeypatch):
        restored(site, broker_41, topic, existing=Existing.PURGE)
    assert log_of(broker_41, f"{topic}.back") == (0, 0)
    write(broker_41, f"{topic}.back", records_of(5, mark=b"live again"))
    with pytest.raises(TargetError, match="stands in the place of one that this restore has deleted, and has records"):
        restored(site, broker_41, topic, existing=Existing.PURGE)
    assert log_of(broker_41, f"{topic}.back") == (0, 5)
    assert restored(site, broker_41, topic, existing=Existing.PURGE, restore_id="another").records == 10


# --- what may end it is known before


@pytest.fixture
def live(broker_41: Broker, topic: str, site: ArchiveSite) -> str:
    """Of two archived topics, one that others stand for."""
    archived(broker_41, f"{topic}.large", site, records_of(90))
    archived(broker_41, f"{topic}.live", site, records_of(10))
    return f"{topic}.live"


def assert_refused_before(site: ArchiveSite, target: Broker, topic: str, capsys: Capsys, told: str) -> None:
    """The dry run says so, and the restore changes nothing."""
    foreign_topic(target, f"{topic}.live", 7)
    before = id_of(target, f"{topic}.live")
    for more in (["--dry-run"], []):
        code, _, said = restore(site, target, topic, capsys, *more)
        assert (code, told in said) == (2, True), said
        assert {name for name in topics_on(target) if name.startswith(topic)} == {f"{topic}.live"}
        assert (id_of(target, f"{topic}.live"), log_of(target, f"{topic}.live")) == (before, (0, 7))


def test_a_topic_of_too_many_partitions(
    broker_41: Broker, topic: str, site: ArchiveSite, live: str, tmp_path: Path, capsys: Capsys
) -> None:
    archived(broker_41, f"{topic}.wide", site, *([records_of(1)] * 4))
    with limited(tmp_path, **{"limits.partitions": "3"}) as target:
        assert_refused_before(site, target, topic, capsys, f"topic {topic}.wide could not be created")
        assert live in topics_on(target)
        # Also where nothing is purged.
        delete_topic(target.bootstrap, live)
        assert restore(site, target, topic, capsys)[0] == 2
        assert {name for name in topics_on(target) if name.startswith(topic)} == set()


# --- what changes while the archive is read


def test_a_topic_that_grows_meanwhile(
    broker_41: Broker, topic: str, site: ArchiveSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    archived(broker_41, topic, site, records_of(10))
    foreign_topic(broker_41, f"{topic}.back", 7)

    def grow() -> None:
        add_partitions(broker_41.bootstrap, f"{topic}.back", 2)
        write(broker_41, f"{topic}.back", records_of(3), 1)

    when_all_is_read(grow, monkeypatch)
    with pytest.raises(TargetError, match="3 records came since it was looked at"):
        restored(site, broker_41, topic, existing=Existing.PURGE)
    assert log_of(broker_41, f"{topic}.back") == (0, 7)


# --- topics that come by themselves


@contextmanager
def consumers(bootstrap: str, topic: str) -> Iterator[None]:
    """Three that nobody has stopped, and that have topics created which they ask for."""
    is_over = threading.Event()

    def consume() -> None:
        consumer = Consumer({
            "bootstrap.servers": bootstrap, "group.id": "live", "allow.auto.create.topics": True, "log_level": 0,
            "topic.metadata.refresh.interval.ms": 100,
        })  # fmt: skip
        consumer.subscribe([topic])
        while not is_over.is_set():
            consumer.poll(0.1)
        consumer.close()

    threads = [threading.Thread(target=consume) for _ in range(3)]
    for one in threads:
        one.start()
    try:
        yield
    finally:
        is_over.set()
        for one in threads:
            one.join()


@pytest.mark.parametrize("is_contended", [False, True])
def test_brokers_that_create_topics_for_clients_that_ask(
    is_contended: bool,
    topic: str,
    site: ArchiveSite,
    shared_broker: StartBroker,
    java_oracle: JavaOracle,
    capsys: Capsys,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where another run has just given the topic its partitions, and the broker that was looked at has not heard of it."""
    add = KafkaAdmin.add_partitions

    async def add_behind_another(admin: KafkaAdmin, totals: Mapping[str, int]) -> dict[str, Refusal]:
        await add(admin, totals)
        return await add(admin, totals)

    if is_contended:
        monkeypatch.setattr(KafkaAdmin, "add_partitions", add_behind_another)
    broker = shared_broker(**{"auto.create.topics.enable": "true", "num.partitions": "1"})
    name = f"{topic}.a"
    written = archived(broker, name, site, *(records_of(10) for _ in range(3)))
    with consumers(broker.bootstrap, name):
        code, told, said = restore(site, broker, topic, capsys, "--dry-run")
        assert code == 0, said
        assert "auto.create.topics.enable=true: stop all clients" in str(told["notes"])
        before = id_of(broker, name)
        code, told, said = restore(site, broker, topic, capsys)
        assert (code, id_of(broker, name) != before) == (0, True), said
    assert on_target(java_oracle, broker, name) == written
    assert told["topics"][0]["is_finished"]


def test_a_topic_that_somebody_has_created_keeps_its_configs(
    broker_41: Broker, topic: str, site: ArchiveSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restore was killed when it had noted that it would create a topic; then a user did."""
    archived(broker_41, topic, site, records_of(10))
    with dying_in(Targets, "_create", monkeypatch):
        restored(site, broker_41, topic, existing=Existing.APPEND)
    own = {"cleanup.policy": "compact", "retention.ms": "60000", "max.message.bytes": "5000"}
    create_topic(broker_41.bootstrap, f"{topic}.back", 1, own)
    with pytest.raises(TargetError, match=r"cleanup.policy=compact"):
        restored(site, broker_41, topic, existing=Existing.APPEND)
    assert configs_of(broker_41, f"{topic}.back") == own
