"""What `verify` says where no instance has a role in a compacted topic, and where it says nothing."""

from archiver.archive.roles import HISTORY
from archiver.backup.compacted import entries
from archiver.backup.compacted.roleless import find_roleless
from archiver.config.model import ArchiverConfig
from tests.support.standing_copies import StandingCopies, copy_of
from tests.unit.backup.compacted.test_status import CONFIG, HOUR_MS, NOW_MS, hear, record, turned

LONG_AGO_MS = NOW_MS - 2 * HOUR_MS


def found(bucket: StandingCopies, config: ArchiverConfig = CONFIG) -> list[str]:
    return list(find_roleless(bucket.archive, config, NOW_MS))


def compacted() -> StandingCopies:
    bucket = StandingCopies()
    record(bucket, {"cleanup.policy": "compact"})
    return bucket


def test_a_compacted_topic_that_nobody_has_begun_with_is_named_once() -> None:
    (problem,) = found(compacted())
    assert problem.startswith("orders: is compacted, and neither an instance nor a backup")


def test_what_a_backup_archives_is_left_alone() -> None:
    bucket = compacted()
    bucket.put(f"{bucket.layout.topic_prefix('orders', 0)}partition=2/x", b"x")
    assert found(bucket) == []


def test_other_topics_are_left_alone() -> None:
    bucket = StandingCopies()
    record(bucket, {"cleanup.policy": "delete"})
    assert found(bucket) == []
    assert list(find_roleless(compacted().archive, CONFIG, NOW_MS, lambda name: name != "orders")) == []


def test_a_life_that_nobody_has_begun_with_is_named() -> None:
    bucket, _ = turned()
    assert found(bucket) == []  # three partitions have no role log yet: the instances are at it
    fresh = compacted()
    fresh.put(f"{fresh.layout.topic_prefix('orders', 0)}partition=2/x", b"x")
    record(fresh, {"cleanup.policy": "compact"}, topic_id="U")
    assert found(fresh)[0].startswith("orders@1: is compacted")


def test_a_first_copy_that_nobody_works_on_is_named() -> None:
    bucket = compacted()
    bucket.note(0, entries.begin(None, 0, "a", has_history=False), LONG_AGO_MS)
    (problem,) = found(bucket)
    assert problem.startswith("orders-3: nobody has worked on generation 0 of a for 2 h, and no copy is complete")
    hear(bucket, "a", 0, NOW_MS - 1000)
    assert found(bucket) == []


def test_silence_behind_a_complete_copy_is_no_complaint() -> None:
    bucket = compacted()
    log = entries.begin(None, 0, "a", has_history=False)
    bucket.note(0, log, LONG_AGO_MS)
    bucket.note(1, entries.switch(log, 1, copy_of("a0", 20)), LONG_AGO_MS)
    assert found(bucket) == []


def test_a_candidate_beside_what_lies_under_topics_is_left_alone() -> None:
    bucket = compacted()
    log = entries.begin(None, 0, "a", has_history=True)
    assert log.holder == HISTORY
    bucket.note(0, log, LONG_AGO_MS)
    assert found(bucket) == []
