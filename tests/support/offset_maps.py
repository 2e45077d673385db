"""Offset maps made by hand, of lists of source offsets."""

from collections.abc import Sequence

import numpy as np

from archiver.archive.restores.offset_map import OffsetMap, OffsetMapFacts
from archiver.codec.frame import Longs


def map_of(
    restored: Sequence[int], *, target_start: int = 0, source_next: int | None = None, **told: object
) -> OffsetMap:
    """The map of records with these source offsets; `told` replaces facts."""
    firsts = [at for at, one in enumerate(restored) if at == 0 or restored[at - 1] != one - 1]
    end = restored[-1] + 1 if restored else 0
    facts = facts_of(len(restored), len(firsts), target_start, end if source_next is None else source_next, **told)
    sources = [*(restored[at] for at in firsts), facts.source_next]
    targets = [*(target_start + at for at in firsts), facts.target_next]
    return OffsetMap(facts=facts, sources=_longs(sources), targets=_longs(targets))


def facts_of(records: int, runs: int, target_start: int, source_next: int, **told: object) -> OffsetMapFacts:
    plain: dict[str, object] = {
        "restore_id": "mine",
        "source_topic": "orders",
        "source_life": 0,
        "source_partition": 0,
        "source_next": source_next,
        "target_cluster_id": "c",
        "target_topic": "back",
        "target_topic_id": "B",
        "target_partition": 0,
        "target_next": target_start + records,
        "records": records,
        "runs": runs,
    }
    return OffsetMapFacts(**(plain | told))  # type: ignore[arg-type]


def _longs(numbers: Sequence[int]) -> Longs:
    return np.array(numbers, np.int64)
