"""In which portions the topics of a restore are created and filled."""

import pytest

from archiver.restore.plan.restore_plan import TopicPlan
from archiver.restore.targets.targets import cut_into_portions


def topic(name: str) -> TopicPlan:
    return TopicPlan(source=name, life=0, target=name, partitions=(), final_configs={}, archived_retention={})


@pytest.mark.parametrize(
    ("purged", "others", "sizes"),
    [
        (0, 16, [16]),
        (8, 16, [24]),
        (0, 17, [16, 1]),
        (0, 1000, [16, 984]),
        (9, 3, [3, 8, 1]),
        (20, 40, [16, 24, 8, 8, 4]),
        (3, 17, [16, 1, 3]),
    ],
)
def test_first_portion_is_small_and_few_topics_are_purged_in_each(purged: int, others: int, sizes: list[int]) -> None:
    deleted, created = (
        {f"{kind}{number:04}" for number in range(count)} for kind, count in (("p", purged), ("o", others))
    )
    topics = [topic(name) for name in sorted(deleted | created, key=lambda name: (name[1:], name[0]))]
    portions = cut_into_portions(topics, deleted)
    assert [len(some) for some in portions] == sizes
    names = [one.target for some in portions for one in some]
    assert sorted(names) == sorted(deleted | created)
    for kind in (deleted, created):  # in their order
        assert [name for name in names if name in kind] == [one.target for one in topics if one.target in kind]
    assert all(sum(one.target in deleted for one in some) <= 8 for some in portions)
