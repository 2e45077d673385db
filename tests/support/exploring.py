"""Tries everything that can happen in a small world, breadth first: the trail to what is wrong is a shortest one."""

from collections import deque
from typing import NamedTuple

from tests.support.compacted_world import Keys, Model, World, hides_expired, problem, remember


class Explored(NamedTuple):
    """What was found."""

    states: int
    problem: str
    trail: tuple[str, ...]  # the steps that lead to the problem
    switches: int  # most that were seen in one world
    is_whole: bool  # every state was visited


def explore(model: Model, start: World, most_states: int) -> Explored:
    """Visit all states, up to a number; stop at the first in which something is wrong."""
    script, key_of = model.bounds.script, Keys(model.bounds).key
    start = remember(start, script)
    first = key_of(start)
    came_from: dict[object, tuple[object, str] | None] = {first: None}
    queue = deque([(start, first)])
    switches = 0
    while queue and len(came_from) < most_states:
        world, key = queue.popleft()
        for name, changed in model.steps(world):
            wrong = problem(changed, script) or hides_expired(changed)
            if wrong:
                return Explored(len(came_from), wrong, _trail(came_from, key, name), switches, False)
            after = remember(changed, script)
            after_key = key_of(after)
            if after_key not in came_from:
                came_from[after_key] = (key, name)
                queue.append((after, after_key))
                switches = max(switches, sum(entry.type == "switch" for _, _, entry in after.entries))
    return Explored(len(came_from), "", (), switches, not queue)


def _trail(came_from: dict[object, tuple[object, str] | None], key: object, last: str) -> tuple[str, ...]:
    steps = [last]
    while (before := came_from[key]) is not None:
        key, name = before
        steps.append(name)
    return tuple(reversed(steps))
