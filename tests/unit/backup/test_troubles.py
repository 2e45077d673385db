"""What is logged, and what `/readyz` says, while the store, Kafka or the spool fail: time is driven by hand."""

import pytest

from archiver.backup.reports.troubles import HELD_BACK, Dependency, Troubles
from archiver.errors import (
    ArchiverError,
    CorruptBatchError,
    KafkaTemporaryError,
    NotLetInError,
    SpoolFullError,
    StoreError,
    StoreTemporaryError,
)

HOUR_S = 3600.0


class World:
    def __init__(self) -> None:
        self.now_s = 1000.0
        self.troubles = Troubles(lambda: self.now_s)


@pytest.fixture
def world() -> World:
    return World()


def lines_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize(
    ("error", "dependency"),
    [
        (StoreTemporaryError("timeout"), "the store"),
        (StoreError("AccessDenied"), "the store"),
        (KafkaTemporaryError("refused", cause="NodeNotReadyError"), "Kafka"),
        (NotLetInError("b:1 does not let us in"), "Kafka"),
        (SpoolFullError("no room"), "the spool"),
    ],
)
def test_a_failure_is_logged_when_it_begins_once_an_hour_and_when_it_is_over(
    world: World, caplog: pytest.LogCaptureFixture, error: ArchiverError, dependency: str
) -> None:
    for second in range(0, 9000, 5):
        world.now_s = 1000.0 + second
        for number in range(20):
            world.troubles.note(error, f"t-{number}: {error}", ("t", number))
    for number in range(20):
        world.troubles.note_works(("t", number))
    assert lines_of(caplog) == [
        f"t-0: {error}",
        f"t-0: {error}; {dependency} has failed for 60 min now",
        f"t-0: {error}; {dependency} has failed for 2 h now",
        f"{dependency} works again, after 2 h",
    ]


def test_a_failure_that_is_over_before_it_was_logged_is_not_logged(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.troubles.note(StoreTemporaryError("slow"), "", "t", is_quiet=True)
    world.troubles.note_works("t", Dependency.STORE)
    assert not caplog.records
    assert not world.troubles.is_any


def test_what_is_given_up_ends_without_a_word(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """The group has given the partition to somebody else: nothing tells whether the store works."""
    world.troubles.note(StoreTemporaryError("slow"), "slow", "t")
    world.troubles.forget("t")
    assert lines_of(caplog) == ["slow"]
    assert not world.troubles.is_any


def test_errors_of_one_partition_alone_are_always_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        world.troubles.note(CorruptBatchError("broken"), "broken", "t")
    assert lines_of(caplog) == ["broken"] * 3
    world.troubles.note(StoreTemporaryError("waits", cause=HELD_BACK), "", "t", is_quiet=True)
    assert not world.troubles.is_any


def test_a_process_is_unready_once_nothing_was_put_for_half_a_minute(world: World) -> None:
    world.troubles.note(StoreError("InvalidAccessKeyId"), "", "a", is_quiet=True)
    world.now_s += 29
    assert world.troubles.why_nothing_is_put() is None
    world.now_s += 2
    assert (
        world.troubles.why_nothing_is_put() == "nothing was put for 31 s, because the store fails: InvalidAccessKeyId"
    )
    world.troubles.note_works("b", Dependency.STORE)  # only one partition fails
    assert world.troubles.why_nothing_is_put() is None
    world.now_s += 31
    world.troubles.note_works("c")  # that nothing is left to do proves nothing of the store
    assert world.troubles.why_nothing_is_put() is not None
    world.troubles.note_works("a", Dependency.STORE)
    assert world.troubles.why_nothing_is_put() is None


def test_kafka_is_not_what_keeps_a_process_from_putting(world: World) -> None:
    world.troubles.note(KafkaTemporaryError("refused"), "", "a", is_quiet=True)
    world.now_s += HOUR_S
    assert world.troubles.why_nothing_is_put() is None


def test_what_stops_no_put_leaves_a_process_ready(world: World) -> None:
    """Such as deletes of copies, which may be denied for as long as the process runs."""
    world.troubles.note(StoreError("denied"), "denied", "clearing", stops_puts=False)
    world.now_s += HOUR_S
    assert world.troubles.why_nothing_is_put() is None
    world.troubles.note(StoreTemporaryError("slow"), "slow", ("t", 0))
    assert world.troubles.why_nothing_is_put() is not None
    world.troubles.note_works(("t", 0))
    assert world.troubles.why_nothing_is_put() is None
