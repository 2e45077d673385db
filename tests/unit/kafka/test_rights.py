"""What brokers tell of a user's rights, a bit each; those of makes that tell nothing are not taken for a denial."""

import pytest

from archiver.kafka.topics.rights import Operation, missing_among

READ, WRITE, DELETE, _, DESCRIBE = Operation


@pytest.mark.parametrize(
    ("told", "missing"),
    [
        (1 << 3 | 1 << 4 | 1 << 6 | 1 << 8, []),
        (1 << 3 | 1 << 4 | 1 << 8, [DELETE]),
        (1 << 6, [READ, WRITE, DESCRIBE]),
        (0, [READ, WRITE, DELETE, DESCRIBE]),
        (-(2**31), []),
    ],
)
def test_a_right_is_missing_when_brokers_tell_of_rights_and_not_of_that_one(
    told: int, missing: list[Operation]
) -> None:
    assert missing_among((READ, WRITE, DELETE, DESCRIBE), told) == missing
