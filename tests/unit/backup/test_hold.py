from archiver.backup.hold import FIRST_PAUSE_S, Hold
from archiver.errors import ArchiverError, KafkaTemporaryError, StoreError, TopicGoneError


def test_a_hold_pauses_longer_until_something_is_durable_or_the_last_failure_is_long_past() -> None:
    hold, error = Hold(since_s=0.0), KafkaTemporaryError("no leader")
    assert [hold.fail(error, now_s, None) for now_s in (10.0, 20.0, 30.0)] == [FIRST_PAUSE_S, 2.0, 4.0]
    assert (hold.failing_since_s, hold.open_again_at_s) == (10.0, 34.0)
    hold.note_durable()
    assert hold.failing_since_s is None  # it counts as failing until then, also while it is open again
    assert hold.fail(error, 40.0, None) == FIRST_PAUSE_S
    assert hold.fail(error, 50.0, None) == 2.0
    assert hold.fail(error, 651.0, None) == FIRST_PAUSE_S


def test_a_hold_of_a_deleted_topic_does_not_count_as_failing() -> None:
    hold = Hold(since_s=0.0)
    hold.fail(KafkaTemporaryError("no leader"), 10.0, 5.0)
    assert (hold.is_gone, hold.failing_since_s) == (False, 5.0)
    hold.fail(TopicGoneError("deleted"), 20.0, None)
    assert (hold.is_gone, hold.failing_since_s) == (True, None)


def test_a_hold_of_a_partition_that_is_left_does_not_fail_until_it_is_opened_again() -> None:
    hold = Hold(since_s=0.0)
    hold.fail(KafkaTemporaryError("no leader"), 10.0, 5.0)
    hold.leave()
    assert (hold.is_left, hold.failing_since_s) == (True, None)
    hold.come_back(50.0)
    assert (hold.is_left, hold.since_s) == (False, 50.0)
    hold.leave()
    hold.fail(KafkaTemporaryError("no leader"), 60.0, None)
    assert (hold.is_left, hold.failing_since_s) == (False, 60.0)


def test_a_hold_without_a_feed_waits_since_what_was_known_before() -> None:
    assert Hold(since_s=10.0).unknown_since_s == 10.0
    hold = Hold(since_s=10.0, unsaved_since_s=3.0)
    assert hold.unknown_since_s == 3.0
    hold.fail(KafkaTemporaryError("no leader"), 20.0, None)
    assert hold.unknown_since_s == 3.0


def test_a_hold_has_a_lasting_error_while_it_fails_for_good() -> None:
    denied, hold = StoreError("PutObject is denied"), Hold(since_s=0.0)

    def after(error: ArchiverError) -> ArchiverError | None:
        hold.fail(error, 10.0, None)
        return hold.lasting_error

    assert after(KafkaTemporaryError("no leader")) is None
    assert after(denied) is denied
    assert after(TopicGoneError("deleted")) is None
    assert after(denied) is denied
    hold.note_durable()
    assert hold.lasting_error is None
