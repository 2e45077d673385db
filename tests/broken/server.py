"""A process that has imported what tests need but the program, and forks to run tests of a broken copy: a tenth of pytest's start.

It runs as a script; tests/broken/test_broken.py writes a request a line, and reads the exit code of pytest.
"""

import importlib
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Final

import pytest

# None of these starts a thread, and none is the program: which of its modules are broken differs from fork to fork.
IMPORTS: Final = (
    "boto3", "confluent_kafka.admin", "hypothesis.strategies", "hypothesis.internal.conjecture.engine", "numba", "numpy",
    "pydantic", "pytest_timeout", "trustme", "xxhash", "yaml", "zstandard", "cramjam", "botocore.httpsession",
    "_pytest.assertion.rewrite", "asyncio", "unittest.mock", "sqlite3",
)  # fmt: skip


def main() -> None:
    """Serve one request after the other until stdin ends."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    for name in IMPORTS:
        importlib.import_module(name)
    assert len(list(Path("/proc/self/task").iterdir())) == 1
    for line in sys.stdin:
        asked = json.loads(line)
        pid = os.fork()
        if not pid:
            run(asked["overlay"], asked["output"], asked["environment"], asked["tests"])
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def run(overlay: str, output: str, environment: dict[str, str], tests: list[str]) -> None:
    """Run pytest on tests, which import the broken modules first, and end this process."""
    exit_code = 70
    try:
        with Path(output).open("w", encoding="utf-8") as written:
            os.dup2(written.fileno(), 1)
            os.dup2(written.fileno(), 2)
        os.environ |= environment | {"PYTHONPATH": overlay}  # of the commands that tests start
        sys.path[0] = overlay
        exit_code = int(pytest.main(tests))
    except BaseException:  # noqa: BLE001 - this must not go on as a second server
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(exit_code)


if __name__ == "__main__":
    main()
