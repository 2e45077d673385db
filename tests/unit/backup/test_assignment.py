from archiver.backup.service.assignment import FIRST_PAUSE_S, Assignment
from archiver.errors import ArchiverError, KafkaTemporaryError, StoreError, TopicGoneError


def test_an_assignment_pauses_longer_until_something_is_durable() -> None:
    assigned, error = Assignment(since_s=0.0), KafkaTemporaryError("no leader")
    assert [assigned.fail(error, now_s, None) for now_s in (10.0, 20.0, 30.0)] == [FIRST_PAUSE_S, 2.0, 4.0]
    assert (assigned.failing_since_s, assigned.open_again_at_s) == (10.0, 34.0)
    assigned.note_durable()
    assert assigned.failing_since_s is None  # it counts as failing until then, also while it is open again
    assert assigned.fail(error, 40.0, None) == FIRST_PAUSE_S


def test_an_assignment_of_a_deleted_topic_does_not_count_as_failing() -> None:
    assigned = Assignment(since_s=0.0)
    assigned.fail(KafkaTemporaryError("no leader"), 10.0, 5.0)
    assert (assigned.is_gone, assigned.failing_since_s) == (False, 5.0)
    assigned.fail(TopicGoneError("deleted"), 20.0, None)
    assert (assigned.is_gone, assigned.failing_since_s) == (True, None)


def test_an_assignment_of_a_partition_that_is_left_does_not_fail_until_it_is_opened_again() -> None:
    assigned = Assignment(since_s=0.0)
    assigned.fail(KafkaTemporaryError("no leader"), 10.0, 5.0)
    assigned.leave()
    assert (assigned.is_left, assigned.failing_since_s) == (True, None)
    assigned.come_back(50.0)
    assert (assigned.is_left, assigned.since_s) == (False, 50.0)
    assigned.leave()
    assigned.fail(KafkaTemporaryError("no leader"), 60.0, None)
    assert (assigned.is_left, assigned.failing_since_s) == (False, 60.0)


def test_an_assignment_without_a_feed_waits_since_what_was_known_before() -> None:
    assert Assignment(since_s=10.0).unknown_since_s == 10.0
    assigned = Assignment(since_s=10.0, unsaved_since_s=3.0)
    assert assigned.unknown_since_s == 3.0
    assigned.fail(KafkaTemporaryError("no leader"), 20.0, None)
    assert assigned.unknown_since_s == 3.0


def test_an_assignment_has_a_lasting_error_while_it_fails_for_good() -> None:
    denied, assigned = StoreError("PutObject is denied"), Assignment(since_s=0.0)

    def after(error: ArchiverError) -> ArchiverError | None:
        assigned.fail(error, 10.0, None)
        return assigned.lasting_error

    assert after(KafkaTemporaryError("no leader")) is None
    assert after(denied) is denied
    assert after(TopicGoneError("deleted")) is None
    assert after(denied) is denied
    assigned.note_durable()
    assert assigned.lasting_error is None
