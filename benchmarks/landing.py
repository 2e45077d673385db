"""Measures when the first and the last record of a restore reached the target, by the broker's log files."""

import threading
import time
from pathlib import Path

_LOOKED_EVERY_S = 0.02


class Landing:
    """Watches a topic's log files from `begin` to `end`; times are seconds since the epoch, 0: never."""

    def __init__(self, log_dir: Path, topic: str) -> None:
        self._log_dir = log_dir
        self._topic = topic
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.first_s = 0.0
        self.last_s = 0.0

    def begin(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._ended.set()
        self._thread.join()
        self.last_s = max((path.stat().st_mtime for path in self._logs()), default=0.0)

    def _logs(self) -> list[Path]:
        return [path for path in self._log_dir.glob(f"{self._topic}-[0-9]*/*.log") if path.stat().st_size]

    def _watch(self) -> None:
        while not self._ended.wait(_LOOKED_EVERY_S):
            if self._logs():
                self.first_s = time.time()  # the clock of a file's mtime
                return
