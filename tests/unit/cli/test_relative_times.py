"""Relative times on the command line become absolute ones, so that a printed command means the same when it is typed."""

import pytest

from archiver.cli.relative_times import resolve_times

NOW_S = 1_700_000_000.0  # 2023-11-14T22:13:20Z


@pytest.mark.parametrize(
    ("typed", "resolved"),
    [
        (["cat", "t", "--from", "-2h"], ["cat", "t", "--from=2023-11-14T20:13:20.000Z"]),
        (["cat", "t", "--until=-1.5min"], ["cat", "t", "--until=2023-11-14T22:11:50.000Z"]),
        (["verify", "--since", "-1d", "--quiet"], ["verify", "--since=2023-11-13T22:13:20.000Z", "--quiet"]),
        (["groups", "show", "--as-of", "-30s"], ["groups", "show", "--as-of=2023-11-14T22:12:50.000Z"]),
        (["cat", "t", "--from", "2023-11-14T20:13:20Z"], ["cat", "t", "--from", "2023-11-14T20:13:20Z"]),
        (["cat", "t", "--key", "-2h"], ["cat", "t", "--key", "-2h"]),
        (["cat", "t", "--from", "-30m"], ["cat", "t", "--from=-30m"]),
        (["cat", "t", "--from", "-2"], ["cat", "t", "--from", "-2"]),
        (["cat", "t", "--from"], ["cat", "t", "--from"]),
        ([], []),
    ],
)
def test_a_relative_time_is_resolved_once(typed: list[str], resolved: list[str]) -> None:
    assert resolve_times(typed, lambda: NOW_S) == resolved
