"""How many records below some offsets are dealt to each target, against the deal by brute force."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from archiver.restore.deal_replay import count_dealt
from tests.support.dealt_records import brute_force
from tests.support.frames import frame_of
from tests.support.records import Rec

KEYS = [None, None, b"", *(b"key %d" % at for at in range(9))]


@given(
    st.lists(st.tuples(st.integers(1, 4), st.sampled_from(KEYS)), max_size=30),
    st.lists(st.integers(0, 30), max_size=4),
    st.sets(st.integers(0, 130), max_size=8),
    st.integers(1, 5),
    st.integers(0, 6),
)
def test_records_below_offsets(
    steps: list[tuple[int, bytes | None]], cuts: list[int], offsets: set[int], targets: int, source: int
) -> None:
    """Offsets have holes, frames are cut anywhere, and offsets lie in holes, before the first record and behind the last."""
    at, records = 5, list[Rec]()
    for step, key in steps:
        at += step
        records.append(Rec(at, 0, 0, key, None))
    edges = sorted({0, *(cut for cut in cuts if cut < len(records)), len(records)})
    frames = (frame_of(records[start:stop]) for start, stop in pairwise(edges))
    wanted = np.array(sorted(offsets), np.int64)
    dealt, below = count_dealt(frames, targets, source, wanted)

    def counted(some: list[Rec]) -> list[int]:
        # The records below an offset are the first ones: alone they would be dealt out the same way.
        found = brute_force({source: some}, targets)
        return [len(found[source, target]) for target in range(targets)]

    assert dealt.tolist() == counted(records)
    assert below.tolist() == [counted([one for one in records if one.offset < limit]) for limit in wanted.tolist()]
