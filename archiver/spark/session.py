"""Spark for a job of ours: without SQL, which takes seconds more to start."""

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway

from archiver.config import prefer_loopback
from archiver.errors import ArchiverError
from archiver.workers import workers

_LOG_SETTINGS = Path(__file__).parent / "log4j2.properties"
# The JVM says this at every start, because Spark's launcher asks for the module.
_NOISE = b"WARNING: Using incubator modules"
# The JVM only hands tasks out. Without its second compiler it starts with 4 s of CPU instead of 7.
_QUICK_START = "-XX:TieredStopAtLevel=1"
_STDERR = 2
_LONGEST_START_S = 20.0  # then it is left behind; it ends with this process, whose pipe it reads
_stops: list[threading.Thread] = []


@contextmanager
def open_context(name: str) -> Iterator[Callable[[], SparkContext]]:
    """Start Spark on all local cores beside what the block does first, and have it stop in the end.

    What is yielded waits until Spark is there; it raises ArchiverError when Spark did not start. Nobody waits for the stop,
    but a next start: a JVM whose parent is gone stops by itself, and takes its files with it.
    """
    prefer_loopback()
    # py4j logs to the root logger what it raises as well.
    logging.getLogger().addFilter(lambda record: not record.getMessage().startswith("KeyboardInterrupt while"))
    is_wanted = threading.Event()
    is_wanted.set()
    with workers(1, "spark") as pool:
        starting = pool.submit(_start, name, is_wanted)
        pool.submit(lambda: _start_workers(starting.result(), is_wanted))
        try:
            with _interruptible():
                yield starting.result
        finally:
            is_wanted.clear()
            _stop_beside(starting)


def _stop_beside(starting: Future[SparkContext]) -> None:
    def stop() -> None:
        with suppress(Exception):  # the JVM may be gone; nothing is lost with it
            starting.result(_LONGEST_START_S).stop()

    thread = threading.Thread(target=stop, name="spark-stop", daemon=True)
    thread.start()
    _stops.append(thread)


def _start(name: str, is_wanted: threading.Event) -> SparkContext:
    while _stops:  # there is one context in a process
        _stops.pop().join()
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.python.daemon.module": "archiver.spark.daemon",
        # Tasks carry what it takes to reach the cluster. Without that, PySpark writes them to a temporary file as they are.
        "spark.io.encryption.enabled": "true",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"{_QUICK_START} -Dlog4j2.configurationFile=file:{_LOG_SETTINGS}",
    }
    conf = SparkConf().setMaster("local[*]").setAppName(name).setAll(list(settings.items()))
    try:
        with _without_noise() as stderr:
            gateway = launch_gateway(conf, {"stderr": stderr})  # type: ignore[no-untyped-call]
        if not is_wanted.is_set():
            gateway.shutdown()
            raise ArchiverError("Spark is not wanted any more")
        context = SparkContext(conf=conf, gateway=gateway)
    except (PySparkException, Py4JError, OSError) as error:
        raise ArchiverError(
            f"Spark did not start: {error}; it needs Java 17 or later (JAVA_HOME, or java on the PATH)"
        ) from error
    # Workers must run the interpreter that this program runs in, not the first python3 of the path.
    context.pythonExec = sys.executable
    return context


def _start_workers(context: SparkContext, is_wanted: threading.Event) -> None:
    """Have the daemon import what tasks need, before they have anything to do."""
    count = context.defaultParallelism
    if is_wanted.is_set():
        context.parallelize(range(count), count).foreach(lambda _: None)


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
def _without_noise() -> Iterator[int]:
    """Give a stderr to a JVM that starts in here: it comes out at ours, less the lines that tell nobody anything."""
    reading, writing = os.pipe()
    threading.Thread(target=_forward, args=(reading,), name="spark-stderr", daemon=True).start()
    try:
        yield writing
    finally:
        os.close(writing)  # the JVM keeps its own for its life


def _forward(reading: int) -> None:
    with os.fdopen(reading, "rb") as lines:
        for line in lines:
            if not line.startswith(_NOISE):
                os.write(_STDERR, line)
