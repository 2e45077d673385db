"""The limits of a sweep: a policy that keeps less counts only after a grace time. Pure."""

from collections.abc import Sequence

from archiver.archive.policies import NotedPolicy
from archiver.upkeep.retention.limits import Limits, limits_of, longest


def policy_in_force(noted: Sequence[NotedPolicy], now_ms: int, grace_ms: int) -> Limits:
    """Return the longest limits that were in force within the time of grace. `noted`: of one topic id, the oldest first.

    Raises ValueError where the configs of a topic do not tell what it keeps, or nothing was noted.
    """
    if not noted:
        raise ValueError("nothing was noted of it")
    ends = [one.since_ms for one in noted[1:]]
    in_force = [noted[-1], *(one for one, end in zip(noted, ends, strict=False) if end > now_ms - grace_ms)]
    return longest(limits_of(one.effective) for one in in_force)
