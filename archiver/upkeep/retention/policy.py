"""Which limits a sweep goes by: a policy that keeps less counts only after a time of grace. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from archiver.archive.policies import NotedPolicy
from archiver.upkeep.retention.limits import FOR_EVER, Limits, limits_of, longest


class PolicyInForce(NamedTuple):
    """What a sweep goes by, and what the last one that deleted went by: what that kept, goes only if somebody agrees."""

    limits: Limits
    swept_by: Limits


def policy_in_force(noted: Sequence[NotedPolicy], now_ms: int, grace_ms: int) -> PolicyInForce:
    """Return the longest limits that were in force within the time of grace. `noted`: of one topic id, the oldest first.

    Raises ValueError where the configs of a topic do not tell what it keeps, or nothing was noted.
    """
    if not noted:
        raise ValueError("nothing was noted of it")
    ends = [one.since_ms for one in noted[1:]]
    in_force = [noted[-1], *(one for one, end in zip(noted, ends, strict=False) if end > now_ms - grace_ms)]
    swept_by = noted[-1].swept_by
    return PolicyInForce(
        limits=longest(limits_of(one.effective) for one in in_force),
        swept_by=FOR_EVER if swept_by is None else limits_of(swept_by),
    )
