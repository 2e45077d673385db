"""Spark as spark-submit has started it, on whatever cluster: what it was told holds, the rest is ours (docs/clusters.md)."""

import logging
import sys

from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

from archiver.config import EDITION_VARIABLE, python_of_workers
from archiver.edition import edition
from archiver.spark.failure import failure_of

log = logging.getLogger(__name__)

_LOOPBACK = "127.0.0.1"
_FILE = "submit.py"  # Spark's name for an application that was given none


def start_submitted(name: str, settings: dict[str, str]) -> SparkContext:
    """Go on with the JVM that spark-submit has started. Raises ArchiverError when executors cannot run our tasks."""
    gateway = launch_gateway()  # type: ignore[no-untyped-call]  # it is there: this connects
    conf = SparkConf(_jvm=gateway.jvm)
    master = conf.get("spark.master")
    if is_local(master):
        settings = {**settings, "spark.driver.host": _LOOPBACK, "spark.driver.bindAddress": _LOOPBACK}
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


def is_local(master: str | None) -> bool:
    """Tell whether tasks run beside the driver, without executors of their own."""
    return master is not None and (master == "local" or master.startswith("local["))


def _is_encrypted(conf: SparkConf) -> bool:
    def is_on(key: str) -> bool:
        return (conf.get(key) or "").lower() == "true"

    ways = ("spark.network.crypto.enabled", "spark.authenticate.enableSaslEncryption")
    return is_on("spark.ssl.rpc.enabled") or (is_on("spark.authenticate") and any(map(is_on, ways)))


def _try_out(context: SparkContext) -> None:
    """Have one executor load what tasks need, before anything is changed for a job that cannot go well."""
    try:
        context.parallelize([0], 1).foreach(lambda _: None)
    except Py4JJavaError as error:
        context.stop()
        raise failure_of(error) from error
