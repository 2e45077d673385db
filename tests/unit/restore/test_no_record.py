"""When a restore that brings back no record must not end with 0."""

import pytest

from archiver.archive.copies.archived_topic import ArchivedTopic
from archiver.archive.index.inventory import EMPTY_PARTITION
from archiver.codec.selection import TopicSelection
from archiver.restore.plan.request import RestoreRequest
from archiver.restore.plan.restore_plan import told_of_no_record, with_objects

PART = RestoreRequest(wanted=TopicSelection(from_ms=5))


@pytest.mark.parametrize(
    ("records", "archived", "request_", "told"),
    [
        ({"a": 0}, {"a"}, PART, "no record is restored of a: what was asked for (partitions, offsets, times, --where,"),
        ({"a": 0}, {"a"}, RestoreRequest(), "no record is restored of a: the objects that are read have none"),
        ({"a": 0, "b": 0}, {"b"}, PART, "no record is restored of b: "),
        (dict.fromkeys("fedcba", 0), set("abcdef"), PART, "no record is restored of a, b, c, d, e and others: "),
        ({"a": 0, "b": 1}, {"a", "b"}, PART, None),
        ({"a": 0}, set(), PART, None),
        ({}, {"a"}, PART, None),
    ],
)
def test_no_record(records: dict[str, int], archived: set[str], request_: RestoreRequest, told: str | None) -> None:
    found = list(told_of_no_record(records, archived, request_))
    assert [one.startswith(told or "?") for one in found] == ([] if told is None else [True])


def test_topics_with_objects() -> None:
    def topic(name: str, *partitions: int, other_lives: tuple[int, ...] = ()) -> ArchivedTopic:
        found = dict.fromkeys(partitions, EMPTY_PARTITION)
        return ArchivedTopic(topic=name, life=0, fact=None, partitions=found, damaged={}, other_lives=other_lives)

    assert with_objects([topic("a"), topic("b", 0), topic("c", other_lives=(1,))]) == {"b", "c"}
