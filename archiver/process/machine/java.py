"""Finds this machine's Java, and runs Java programs to their end."""

import re
import shutil
import subprocess
from typing import Final

from archiver.errors import ArchiverError

OLDEST_JAVA: Final = 17  # the minimum of Kafka 4 brokers


def check_java() -> str:
    """Return the path of a Java that runs a broker. Raises an error with the next step if none is found."""
    java = shutil.which("java")
    if java is None:
        raise ArchiverError(f"Java is not installed: install Java {OLDEST_JAVA} or later and put `java` on the PATH")
    match = re.search(r'version "(?:1\.)?(\d+)', run_to_end([java, "-version"]).stdout)
    if match is None:
        raise ArchiverError(f"{java} does not tell its version: install Java {OLDEST_JAVA} or later")
    if int(match[1]) < OLDEST_JAVA:
        raise ArchiverError(f"{java} is Java {match[1]}: install Java {OLDEST_JAVA} or later")
    return java


def run_to_end(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a program to its end. `stdout` of the result has both of its streams."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:  # noqa: S603
        try:
            printed, _ = process.communicate()
        except BaseException:  # on Ctrl-C subprocess.run would not wait for the program, which still writes
            process.kill()
            process.wait()
            raise
    return subprocess.CompletedProcess(command, process.returncode, printed)


def last_lines(text: str, count: int) -> str:
    """Return the last lines that are not empty, for an error message."""
    return "\n".join([line for line in text.splitlines() if line.strip()][-count:])
