"""Which policy a sweep goes by: against what was in force at each single moment of the time of grace."""

import json
import random
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.archive.notes.policies import NotedPolicy, read_policies
from archiver.upkeep.retention.planning.limits import Limits, limits_of, policy_in_force
from tests.support.memory_store import MemoryStore, StoredObject

numbers = st.sampled_from(["-1", "0", "5", "9", "100"])
policies = st.fixed_dictionaries(
    {
        "cleanup.policy": st.sampled_from(["delete", "delete", "delete", "compact", "compact,delete"]),
        "retention.ms": numbers,
        "retention.bytes": numbers,
    }
)


def noted(effective: dict[str, str], since_ms: int) -> NotedPolicy:
    return NotedPolicy(topic="t", topic_id="T", effective=effective, since_ms=since_ms)


@given(
    st.dictionaries(st.integers(0, 40), policies, min_size=1, max_size=5).map(
        lambda one: sorted(one.items(), key=lambda row: row[0])
    ),
    st.integers(0, 30),
    st.integers(0, 30),
)
def test_the_longest_of_each_moment_of_grace_counts(
    history: list[tuple[int, dict[str, str]]], later: int, grace_ms: int
) -> None:
    now_ms = history[-1][0] + later
    seen = [noted(effective, since) for since, effective in history]
    found = policy_in_force(seen, now_ms, grace_ms)
    of_moments = []
    for moment in range(now_ms - grace_ms, now_ms + 1):
        before = [one for one in seen if one.since_ms <= moment]
        of_moments += [limits_of(before[-1].effective)] if before else []
    for name in ("ms", "bytes"):
        values = [getattr(one, name) for one in of_moments]
        assert getattr(found, name) == (None if None in values else max(values))


def put_history(rows: list[tuple[dict[str, str], int, int]]) -> Archive:
    """Put facts of `(effective, told, put)`, with the numbers from 0 on: what each says of its time, and what the store does, in seconds."""
    store = MemoryStore()
    for number, (effective, since_s, put_s) in enumerate(rows):
        fact = {"format": 1, "topic": "t", "topic_id": "T", "effective": effective, "since_ms": 1000 * since_s}
        moment = datetime.fromtimestamp(0, UTC) + timedelta(seconds=put_s)
        store.objects[Layout().fact_key("policies/t", number)] = StoredObject(json.dumps(fact).encode(), {}, moment)
    return Archive(store, Layout())


def check_history(rows: list[tuple[dict[str, str], int, int]], now_s: int, grace_s: int) -> None:
    """What the fact with the highest number said at any moment of grace is kept, by when the store says that it was put."""
    found = policy_in_force(read_policies(put_history(rows), "t", "T"), 1000 * now_s, 1000 * grace_s)
    for moment in range(now_s - grace_s + 1, now_s + 1):
        there = [effective for effective, _, put_s in rows if put_s <= moment]
        limits = limits_of(there[-1]) if there else found
        for name in ("ms", "bytes"):
            kept, wanted = getattr(found, name), getattr(limits, name)
            assert kept is None or (wanted is not None and wanted <= kept), (rows, moment)


def draw_history(rng: random.Random) -> list[tuple[dict[str, str], int, int]]:
    """Of a few notes one or two may be forged: of any time by their own word, and put before one of a lower number."""
    rows = []
    for put_ms in sorted(rng.randint(0, 40) for _ in range(rng.randint(1, 6))):
        limits = {f"retention.{name}": rng.choice(("-1", "0", "5", "9", "100")) for name in ("ms", "bytes")}
        effective = {"cleanup.policy": rng.choice(("delete", "delete", "compact")), **limits}
        rows.append((effective, rng.choice((put_ms, put_ms, rng.randint(0, 60))), put_ms))
    if rng.randrange(3) == 0:
        at = rng.randrange(len(rows))
        rows[at] = (*rows[at][:2], rng.randint(0, 40))
    return rows


def test_no_note_skips_the_time_of_grace(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(1_000):
        rows = draw_history(rng)
        check_history(rows, max(put_ms for _, _, put_ms in rows) + rng.randint(0, 30), rng.randint(0, 30))


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_no_note_skips_the_time_of_grace_in_very_many_histories(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(50_000):
        rows = draw_history(rng)
        check_history(rows, max(put_ms for _, _, put_ms in rows) + rng.randint(0, 30), rng.randint(0, 30))


def test_what_does_not_tell_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing was noted"):
        policy_in_force([], 0, 0)
    unknown = noted({"cleanup.policy": "delete", "retention.ms": "1"}, 0)
    known = noted({"cleanup.policy": "delete", "retention.ms": "1", "retention.bytes": "1"}, 10)
    with pytest.raises(ValueError, match=r"retention\.bytes is not known"):
        policy_in_force([unknown, known], 15, 10)
    assert policy_in_force([unknown, known], 25, 10) == Limits(ms=1, bytes=1)
