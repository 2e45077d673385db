"""Starts Spark in the background, while a command of this folder lists and plans."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from archiver.errors import UsageError


def check_spark(command: str) -> None:
    """Raise a UsageError if PySpark is not installed: before a command changes anything."""
    if find_spec("pyspark") is None:
        raise _missing(command, "pyspark")


@contextmanager
def spark_in_background(
    command: str, notice: Callable[[str], None], *, with_sql: bool = False
) -> Iterator[Callable[[], Any]]:
    """Start Spark in the background. The yielded function waits for Spark, and reports its first wait."""
    try:
        from archiver.spark.session.spark_session import open_context, open_session  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise _missing(command, error.name) from error
    with (open_session if with_sql else open_context)(f"archiver {command}") as start_spark:
        is_told = False

        def wait_for_spark() -> Any:  # noqa: ANN401 - pyspark's, an extra
            nonlocal is_told
            if not is_told:  # on a busy machine Spark takes half a minute to start
                notice("starting Spark")
            is_told = True
            return start_spark()

        yield wait_for_spark


def _missing(command: str, module: str | None) -> UsageError:
    return UsageError(f"{command} needs Spark ({module} is missing): pip install 'kafka-archiver[spark]'")
