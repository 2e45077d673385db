"""Compacted topics of which nothing is archived: by what is stored alone, whether an instance is at work or not."""

from archiver.archive.copies import role_entries as entries
from archiver.archive.copies.missing_copies import topics_without_archive
from archiver.config.model import ArchiverConfig
from tests.support.standing_copies import StandingCopies
from tests.unit.backup.compacted.test_status import CONFIG, HOUR_MS, NOW_MS, record, turned

LONG_AGO_MS = NOW_MS - 2 * HOUR_MS


def found(bucket: StandingCopies, config: ArchiverConfig = CONFIG) -> list[str]:
    return list(topics_without_archive(bucket.archive, config))


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
    assert list(topics_without_archive(compacted().archive, CONFIG, lambda name: name != "orders")) == []


def test_a_life_that_nobody_has_begun_with_is_named() -> None:
    bucket, _ = turned()
    assert found(bucket) == []  # three partitions have no role log yet: the instances are at it
    fresh = compacted()
    fresh.put(f"{fresh.layout.topic_prefix('orders', 0)}partition=2/x", b"x")
    record(fresh, {"cleanup.policy": "compact"}, topic_id="U")
    assert found(fresh)[0].startswith("orders@1: is compacted")


def test_a_first_copy_that_was_begun_is_left_to_the_status_of_instances() -> None:
    """That nobody works on it is no fact of the archive. Readers of the topic say that no copy is complete."""
    bucket = compacted()
    bucket.note(0, entries.begin(None, 0, "a", has_history=False), LONG_AGO_MS)
    assert found(bucket) == []
