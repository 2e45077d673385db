"""Starts and stops Spark for our jobs, locally or under spark-submit. Only queries get SQL, which takes seconds more to start."""

import logging
import os
import re
import signal
import sys
import threading
import warnings
from collections import UserDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType, MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import pyspark
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway

from archiver.config.environment import is_submitted, prefer_loopback, start_spark_of
from archiver.errors import ArchiverError
from archiver.interrupt import ENDING
from archiver.process.running.workers import workers
from archiver.spark.session.class_cache import options_of_spark
from archiver.spark.session.failure import jvm_errors_as_ours
from archiver.spark.session.isolation import UMASK, leave_to, own, private_folder, settings_of
from archiver.spark.session.jvm_user import log_in, options_of_user
from archiver.spark.session.spark_submit import start_submitted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG_SETTINGS = Path(__file__).parent / "log4j2.properties"
# The JVM prints this at every start, because Spark's launcher asks for the module.
_NOISE = b"WARNING: Using incubator modules"
_OF_PANDAS = "PySpark does not yet fully support pandas"
# The JVM only hands tasks out. Without its second compiler it starts with 4 s of CPU instead of 7.
_QUICK_START = ("-XX:TieredStopAtLevel=1", f"-Dlog4j2.configurationFile=file:{_LOG_SETTINGS}")
_STDERR = 2
_LONGEST_START_S = 20.0  # then the JVM is left behind; it ends with this process, whose pipe it reads
_LONGEST_STOP_S = 20.0
# Wherever Spark runs. Tasks carry credentials of the cluster: without encryption, PySpark writes them to a temporary
# file in plain text.
_SETTINGS = {
    "spark.ui.showConsoleProgress": "false",
    "spark.python.daemon.module": "archiver.spark.daemon",
    # Workers import this program's modules, and not those of the current folder.
    "spark.executorEnv.PYTHONSAFEPATH": "1",
    "spark.io.encryption.enabled": "true",
}
_NO_SETTINGS: Final[Mapping[str, str]] = MappingProxyType({})
# What a query means must not depend on the settings of spark-submit.
SQL_SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "true",  # as names of topics are
    "spark.sql.runSQLOnFiles": "false",  # json.orders is a topic
    "spark.sql.variable.substitute": "false",  # ${env:NAME} is text
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
# They log as JSON, with the JVM's stack, errors that come back as exceptions.
TALKING_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
# Variables of Java and Spark's scripts. All others, credentials among them, are for Python alone (decision 28).
_OF_JAVA = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|PWD|HOSTNAME|LANG|LC_\w+|TZ|TMPDIR|LD_\w+|MALLOC_\w+"
    r"|_?(?:JAVA|JDK|SPARK|PYSPARK|PYTHON|HADOOP)\w*"
)
_A_SECRET = re.compile(r"PASSWORD|PASSWD|PASSPHRASE|SECRET|TOKEN|CREDENTIAL|KEY")  # such as HADOOP_CREDSTORE_PASSWORD
_stops: list[threading.Thread] = []


@contextmanager
def open_session(name: str, java_options: Sequence[str] | None = None) -> Iterator[Callable[[], "SparkSession"]]:
    """Start Spark as open_context does, and give a session for SQL instead of a context."""
    with ExitStack() as stack:
        settings = {"spark.sql.catalogImplementation": "in-memory"}
        if is_submitted():  # a local one has a folder of its own (_conf_of)
            folder = stack.enter_context(TemporaryDirectory(ignore_cleanup_errors=True))
            settings["spark.sql.warehouse.dir"] = folder
        with open_context(name, settings, java_options) as start_spark:
            yield lambda: open_sql(start_spark())


def open_sql(context: SparkContext) -> "SparkSession":
    """Make a SQL session of a context, with settings that make a query mean the same wherever it runs."""
    from pyspark.logger import PySparkLogger  # noqa: PLC0415 - half a second that jobs without SQL do not need
    from pyspark.sql import SparkSession  # noqa: PLC0415 - as above

    for logger in TALKING_LOGGERS:
        PySparkLogger.getLogger(logger).disabled = True  # a logger of another class cannot take PySpark's arguments

    session = SparkSession(context)
    for setting, text in SQL_SETTINGS.items():
        session.conf.set(setting, text)
    return session


@contextmanager
def open_context(
    name: str, more: Mapping[str, str] = _NO_SETTINGS, java_options: Sequence[str] | None = None
) -> Iterator[Callable[[], SparkContext]]:
    """Start Spark in the background of the block, and stop it at the end: on all local cores, or by spark-submit's settings.

    The yielded function waits for Spark; it raises ArchiverError when Spark did not start. Only a next start waits until
    a Spark of this machine has stopped: a JVM whose parent is gone stops by itself, and deletes its files.
    """
    if not is_submitted():
        prefer_loopback()
        start_spark_of(Path(pyspark.__file__).resolve().parent)
    # PySpark 4.3 warns at each start about pandas 3, which it imports itself; nothing of ours uses it.
    warnings.filterwarnings("ignore", _OF_PANDAS, FutureWarning)
    # py4j also logs the errors that it raises: ends of connections to its own logger, the rest to the root logger.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(lambda record: not record.getMessage().startswith("KeyboardInterrupt while"))
    is_wanted = threading.Event()
    is_wanted.set()
    with workers(1, "spark") as pool:
        starting = pool.submit(
            _start, name, more, options_of_spark() if java_options is None else java_options, is_wanted
        )
        if not is_submitted():
            pool.submit(lambda: _start_workers(starting.result(), is_wanted))
        try:
            with _interruptible(), jvm_errors_as_ours():
                yield starting.result
        finally:
            is_wanted.clear()
            stopping = _stop_in_background(starting)
            if is_submitted():  # a cluster counts an application as failed that ends without a report
                stopping.join(_LONGEST_STOP_S)


def _stop_in_background(starting: Future[SparkContext]) -> threading.Thread:
    def stop() -> None:
        with suppress(Exception):  # the JVM may be gone; nothing is lost with it
            starting.result(_LONGEST_START_S).stop()

    thread = threading.Thread(target=stop, name="spark-stop", daemon=True)
    thread.start()
    _stops.append(thread)
    return thread


def await_stops() -> None:
    """Wait until each Spark that this process has started, and does not need any more, has stopped."""
    while _stops:
        _stops.pop().join()


def _start(name: str, more: Mapping[str, str], java_options: Sequence[str], is_wanted: threading.Event) -> SparkContext:
    await_stops()  # a process has one context
    if is_submitted():
        return _go_on(name, more)
    try:
        with private_folder() as folder:
            context = _launch(_conf_of(name, more, java_options, folder), is_wanted)
            leave_to(context._jvm, folder)  # noqa: SLF001 - the JVM that a context has may be that of an earlier one
    except (PySparkException, Py4JError, OSError) as error:
        raise ArchiverError(
            f"Spark did not start: {error}; it needs Java 17 or later (JAVA_HOME, or java on the PATH)"
        ) from error
    # This server prints a traceback when the JVM is gone, which archiver.spark.session.failure reports already.
    context._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]  # noqa: SLF001
    # Workers must run the interpreter that this program runs in, not the first python3 of the path.
    context.pythonExec = sys.executable
    return context


def _conf_of(name: str, more: Mapping[str, str], java_options: Sequence[str], folder: Path) -> SparkConf:
    options = [*_QUICK_START, f"-Djava.io.tmpdir={folder}", *options_of_user(folder), *java_options]
    settings = {
        **_SETTINGS,
        **settings_of(folder),
        # Spark creates the folder of its tables at once, by default in the current folder.
        "spark.sql.warehouse.dir": str(folder / "tables"),
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": " ".join(f'"{option}"' for option in options),
        **more,
    }
    return SparkConf().setMaster("local[*]").setAppName(name).setAll(list(settings.items()))


def _launch(conf: SparkConf, is_wanted: threading.Event) -> SparkContext:
    with _without_noise(is_wanted) as stderr:
        # The launcher warns on stdout, too: of a file in the current folder that it does not read.
        launch = _Launch(stderr=stderr, stdout=stderr, umask=UMASK)
        gateway = launch_gateway(conf, launch)  # type: ignore[no-untyped-call]
    if not is_wanted.is_set():
        gateway.shutdown()
        raise ArchiverError("Spark is not wanted any more")
    log_in(gateway.jvm)
    context = SparkContext(conf=conf, gateway=gateway)
    context.environment.update(launch.withheld)
    return context


class _Launch(UserDict[str, Any]):
    """The arguments that PySpark gives Popen for its JVM, less most of our environment: the JVM evaluates SQL of users."""

    withheld: Mapping[str, str] = _NO_SETTINGS  # from the JVM's environment, and given to the workers

    def __setitem__(self, key: str, item: Any) -> None:  # noqa: ANN401 - whatever Popen takes
        if key == "env":
            own(
                Path(item["_PYSPARK_DRIVER_CONN_INFO_PATH"]).parent
            )  # PySpark deletes it, unless this process ends first
            self.withheld = {name: text for name, text in item.items() if not _is_for_java(name)}
            item = {name: text for name, text in item.items() if name not in self.withheld}
            item["PYTHONSAFEPATH"] = "1"  # for what Spark starts on this side, which takes no spark.executorEnv
        super().__setitem__(key, item)


def _is_for_java(name: str) -> bool:
    return _OF_JAVA.fullmatch(name) is not None and _A_SECRET.search(name) is None


def _go_on(name: str, more: Mapping[str, str]) -> SparkContext:
    try:
        return start_submitted(name, {**_SETTINGS, **more})
    except (PySparkException, Py4JError, OSError) as error:
        reason = str(getattr(error, "java_exception", error)).strip().partition("\n")[0]
        raise ArchiverError(f"Spark did not start: {reason}; look at what spark-submit was told") from error


def _start_workers(context: SparkContext, is_wanted: threading.Event) -> None:
    """Have the daemon import the modules of tasks before the first task."""
    count = context.defaultParallelism
    if is_wanted.is_set():
        context.parallelize(range(count), count).foreach(lambda _: None)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Turn errors that Spark raises after a signal that ends a command (archiver.interrupt) into a KeyboardInterrupt."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    seen = threading.Event()
    before = {number: handler for number in ENDING if callable(handler := signal.getsignal(number))}

    def interrupt(number: int, frame: FrameType | None) -> None:
        seen.set()
        before[number](number, frame)

    for number in before:
        signal.signal(number, interrupt)
    try:
        yield
    except Exception:
        if seen.is_set():
            raise KeyboardInterrupt from None
        raise
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is interrupt:
                signal.signal(number, handler)


@contextmanager
def _without_noise(is_wanted: threading.Event) -> Iterator[int]:
    """Yield a stderr for a JVM that starts in this block: its lines are copied to ours, without useless ones.

    Its output while it stops is of no use: interrupted threads print their stacks.
    """
    reading, writing = os.pipe()
    threading.Thread(target=_forward, args=(reading, is_wanted), name="spark-stderr", daemon=True).start()
    try:
        yield writing
    finally:
        os.close(writing)  # the JVM keeps its own for its life


def _forward(reading: int, is_wanted: threading.Event) -> None:
    with os.fdopen(reading, "rb") as lines:
        for line in lines:
            if is_wanted.is_set() and not line.startswith(_NOISE):
                os.write(_STDERR, line)
