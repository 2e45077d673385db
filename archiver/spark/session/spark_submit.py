"""Uses the Spark that spark-submit has started, on any cluster: its settings override ours (docs/clusters.md)."""

import logging
import os
import sys
import threading
from contextlib import suppress

from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

from archiver.config.environment import EDITION_VARIABLE, is_submitted, python_of_workers
from archiver.process.machine.edition import edition
from archiver.spark.session.failure import failure_of
from archiver.spark.session.isolation import AUTHENTICATED

log = logging.getLogger(__name__)

_LOOPBACK = "127.0.0.1"
_PASSING_ON = "redirect output"  # Spark's name for the thread that reads our streams
_POLL_S = 0.02
_FILE = "submit.py"  # Spark's name for an application that was given none


def start_submitted(name: str, settings: dict[str, str]) -> SparkContext:
    """Connect to the JVM that spark-submit has started. Raises ArchiverError when executors cannot run our tasks."""
    gateway = launch_gateway()  # type: ignore[no-untyped-call]  # it is there: this connects
    conf = SparkConf(_jvm=gateway.jvm)
    master = conf.get("spark.master")
    if is_local(master):
        settings = {**settings, **AUTHENTICATED, "spark.driver.host": _LOOPBACK, "spark.driver.bindAddress": _LOOPBACK}
    for key, text in settings.items():
        conf.setIfMissing(key, text)
    if conf.get("spark.app.name", _FILE) == _FILE:
        conf.setAppName(name)
    context = SparkContext(conf=conf, gateway=gateway)
    if is_local(master):
        context.pythonExec = python_of_workers() or sys.executable
        return context
    if not _is_encrypted(conf):
        log.warning(
            "what Spark sends to its executors is not encrypted, and tasks carry passwords of the configuration;"
            " set spark.authenticate and spark.network.crypto.enabled (docs/clusters.md)"
        )
    context.environment[EDITION_VARIABLE] = edition()
    _try_out(context)
    return context


def end_output() -> None:
    """Close both streams, and wait until spark-submit has passed on their content.

    The JVM of spark-submit reads them in a thread, and ends when this process does: else a slow reader loses the end of a result.
    """
    gateway = SparkContext._gateway  # noqa: SLF001 - it has no other name
    if gateway is None or not is_submitted():
        return
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (1, 2):
        os.dup2(nothing, stream)
    with suppress(Exception):  # a JVM that is gone passes nothing on
        all_threads = gateway.jvm.java.lang.Thread.getAllStackTraces
        while any(thread.getName() == _PASSING_ON for thread in all_threads().keySet()):
            threading.Event().wait(_POLL_S)


def is_local(master: str | None) -> bool:
    """Return whether tasks run beside the driver, without executors of their own."""
    return master is not None and (master == "local" or master.startswith("local["))


def _is_encrypted(conf: SparkConf) -> bool:
    def is_on(key: str) -> bool:
        return (conf.get(key) or "").lower() == "true"

    ways = ("spark.network.crypto.enabled", "spark.authenticate.enableSaslEncryption")
    return is_on("spark.ssl.rpc.enabled") or (is_on("spark.authenticate") and any(map(is_on, ways)))


def _try_out(context: SparkContext) -> None:
    """Have one executor load the modules of tasks, so that a job that cannot succeed changes nothing."""
    try:
        context.parallelize([0], 1).foreach(lambda _: None)
    except Py4JJavaError as error:
        context.stop()
        raise failure_of(error) from error
