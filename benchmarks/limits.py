"""Limits of figures, and whether one was exceeded."""

MOST_MEMORY = 320_000_000  # of a backup, for records up to 1 MB
MOST_TASK = 300_000_000  # of a task of a restore


class Limits:
    """Prints figures with their limits, and keeps those that exceed them."""

    def __init__(self) -> None:
        self.over: list[str] = []

    def report(self, what: str, value: float, most: float, unit: str) -> None:
        is_over = value > most
        print(f"{what:58} {value:9.1f} {unit:3} of at most {most:.1f}{'  OVER' if is_over else ''}", flush=True)
        if is_over:
            self.over.append(what)

    def report_memory(self, what: str, value_bytes: float, most_bytes: float) -> None:
        self.report(what, value_bytes / 1e6, most_bytes / 1e6, "MB")
