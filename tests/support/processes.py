"""The process tree below a process, by Linux's /proc."""

from pathlib import Path


def descendants(pid: int) -> list[int]:
    """Every process below this one, now."""
    found: list[int] = []
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:  # it has just ended
        return []
    for task in tasks:
        try:
            children = [int(child) for child in (task / "children").read_text().split()]
        except OSError:
            continue
        for child in children:
            found += [child, *descendants(child)]
    return found


def tree_of(pid: int) -> list[int]:
    """A process and every one below it, now."""
    return [pid, *descendants(pid)]
