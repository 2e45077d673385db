"""The memory that objects are read into."""

import subprocess
import sys

# In a process of its own: pytest's has threads, which a fork would leave behind.
_FORK = """
import os
from archiver.store.port import ReadBuffer
room = ReadBuffer()
room.of(9)[0] = 1
child = os.fork()
if not child:
    room.of(9)[0] = 2
    os._exit(0)
os.waitpid(child, 0)
print(room.of(9)[0])
"""


def test_room_is_no_other_process_s() -> None:
    """Spark's workers are forked; a room that one of them has must not be written to by another."""
    done = subprocess.run([sys.executable, "-c", _FORK], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "1"
