"""`verify --sample`: the parts together are the whole archive, each object in one, and objects that are added move no other."""

from collections import Counter

import pytest

from archiver.archive.format.layout import Layout, SegmentKey
from archiver.archive.segments.partition_segments import Segment, segment_blocks
from archiver.process.values.columns import Chain
from archiver.upkeep.sampling import Sample
from tests.support.segments import facts_of

_DAY_MS = 86_400_000


def archived(count: int, topics: int = 4) -> list[Segment]:
    keys = [SegmentKey(topic=f"t{number % topics}", partition=0, base=10 * number) for number in range(count)]
    return [
        Segment(key=key, object_key=Layout().segment_key(key), size=1000, facts=facts_of(key.base, key.base + 10))
        for key in keys
    ]


def read_on(sample: Sample, day: int, segments: list[Segment]) -> set[str]:
    by_topic = [[one for one in segments if one.key.topic == topic] for topic in {one.key.topic for one in segments}]
    chain = Chain(block for some in by_topic for block in segment_blocks(some))
    return {one.object_key for one in sample.part(chain, day * _DAY_MS).choose(chain)}


def test_twenty_days_read_each_object_once_while_others_are_added() -> None:
    sample, first = Sample.parse("5%"), archived(400)
    read: Counter[str] = Counter()
    for day in range(20_000, 20_020):
        some = read_on(sample, day, first + archived(1000)[400 : 400 + 10 * (day - 20_000)])
        assert 0 < len(some) < 80
        read.update(some)
    assert all(read[one.object_key] == 1 for one in first)


def test_a_size_reads_all_within_as_many_days_as_there_are_parts() -> None:
    sample, segments = Sample.parse("50kB"), archived(400)  # 400 kB
    days = [read_on(sample, day, segments) for day in range(8)]
    assert sum(map(len, days)) == len(segments) == len(set().union(*days))
    assert max(map(len, days)) < 80
    assert sample.part(segments * 2, 0).count == 16  # it has doubled
    assert sample.part(segments + segments[:1], 0).count == 16
    assert sample.part([], 0).count == 1


def test_a_given_part_is_the_same_each_day() -> None:
    segments = archived(300)
    parts = [read_on(Sample.parse(f"{number}/3"), 7 * number, segments) for number in (1, 2, 3)]
    assert sum(map(len, parts)) == len(segments) == len(set().union(*parts))
    assert str(Sample.parse("3/30").part(segments, 0)) == "3/30"


@pytest.mark.parametrize(("text", "count"), [("100%", 1), ("5%", 20), ("3%", 34), ("0.5%", 200), ("99.5%", 2)])
def test_parts_of_a_percentage_are_no_larger(text: str, count: int) -> None:
    assert Sample.parse(text).count == count


@pytest.mark.parametrize(
    "text", ["", "5", "0%", "101%", "0/3", "4/3", "0", "0B", "-1%", "1/0", "5 %", "x", "0.0001%", "1/200000"]
)
def test_other_samples_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no part|is not like"):
        Sample.parse(text)
