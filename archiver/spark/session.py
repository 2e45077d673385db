"""Spark for a job of ours: without SQL, which takes seconds more to start."""

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException

from archiver.config import prefer_loopback
from archiver.errors import ArchiverError

_LOG_SETTINGS = Path(__file__).parent / "log4j2.properties"
# The JVM says this at every start, because Spark's launcher asks for the module.
_NOISE = b"WARNING: Using incubator modules"
_STDERR = 2


@contextmanager
def open_context(name: str) -> Iterator[SparkContext]:
    """Start Spark on all local cores, and stop it in the end."""
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{_LOG_SETTINGS}",
    }
    conf = SparkConf().setMaster("local[*]").setAppName(name).setAll(list(settings.items()))
    prefer_loopback()
    # py4j logs to the root logger what it raises as well.
    logging.getLogger().addFilter(lambda record: not record.getMessage().startswith("KeyboardInterrupt while"))
    try:
        with _interruptible(), _without_noise():
            context = SparkContext(conf=conf)
    except (PySparkException, Py4JError, OSError) as error:
        raise ArchiverError(
            f"Spark did not start: {error}; it needs Java 17 or later (JAVA_HOME, or java on the PATH)"
        ) from error
    # Workers must run the interpreter that this program runs in, not the first python3 of the path.
    context.pythonExec = sys.executable
    try:
        with _interruptible():
            yield context
    finally:
        with suppress(Exception):  # the JVM may be gone; nothing is lost with it
            context.stop()


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C be a KeyboardInterrupt, whatever Spark makes of it on its way."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    seen = threading.Event()

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        seen.set()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    except Exception:
        if seen.is_set():
            raise KeyboardInterrupt from None
        raise
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _without_noise() -> Iterator[None]:
    """Let a JVM that starts in here write its stderr through us, less the lines that tell nobody anything."""
    reading, writing = os.pipe()
    own = os.dup(_STDERR)
    os.dup2(writing, _STDERR)
    os.close(writing)
    threading.Thread(target=_forward, args=(reading, own), name="spark-stderr", daemon=True).start()
    try:
        yield
    finally:
        os.dup2(own, _STDERR)  # ours again; the JVM keeps the pipe for its life


def _forward(reading: int, own: int) -> None:
    with os.fdopen(reading, "rb") as lines:
        for line in lines:
            if not line.startswith(_NOISE):
                os.write(own, line)
    os.close(own)
