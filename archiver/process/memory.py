"""How our processes keep memory; each sets it once, when it begins."""

import ctypes
import gc

# Objects between two looks for garbage. Python's 700 took 6 % of a backup's CPU: imports and record work make no cycles.
_GARBAGE_THRESHOLD = 100_000

# glibc's mallopt. Left alone, it raises both thresholds with the largest buffer that was ever freed, and keeps freed memory
# by the tens of megabytes. Pages that are fetched again for each block, on the other hand, take a quarter of a task's CPU.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_MAPPED_ALONE_FROM = 4 * 1024 * 1024
_KEPT_WHEN_FREED = 8 * 1024 * 1024


def tune_memory() -> None:
    """Look for garbage rarely, and give back to the system what is freed, but not what the next block needs again."""
    gc.set_threshold(_GARBAGE_THRESHOLD)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # other C libraries have none, and habits of their own
        mallopt(_M_MMAP_THRESHOLD, _MAPPED_ALONE_FROM)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_WHEN_FREED)
