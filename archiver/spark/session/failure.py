"""Explains failed Spark jobs. Our tasks return their errors as reports, so the workers or their Python failed."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException, PythonException

from archiver import errors
from archiver.errors import ArchiverError, TemporaryError, UsageError

_TOLD_BY_US = re.compile(r"^\s*archiver: (.*)", re.MULTILINE)  # by archiver.spark.daemon, or a packed environment
_OURS = re.compile(r"archiver\.errors\.(\w+): (.*)")
_SPARKS = re.compile(r"\[[A-Z][A-Z0-9_.]*\] .*")
_NO_PROGRAM = re.compile(r'Cannot run program "([^"]+)"')
_NO_ARCHIVER = re.compile(r"No module named '?archiver\b")
_OTHER_VERSION = re.compile(r"\[PYTHON_VERSION_MISMATCH\] (.*)")
# Lines indented deeper than the word itself are the frames; Spark indents some tracebacks as a whole.
_TRACEBACK = re.compile(
    r"^(?:\S.*: )?(?P<margin> *)Traceback \(most recent call last\):\n(?:(?P=margin) .*\n)*(?P=margin)(?P<error>\S.*)$",
    re.MULTILINE,
)
_JAVA_NAMES = re.compile(r"^.*\b(?:\w+\.)+\w*(?:Exception|Error):(?:\s+|$)")
RUN_AGAIN = "run the same command again, it goes on"
_OF_A_GONE_JVM = (Py4JError, ConnectionRefusedError, ConnectionResetError, EOFError)  # a broken pipe may be our stdout
_ADVICE = "docs/clusters.md tells how executors get a packed environment"


def failure_of(error: Py4JJavaError) -> ArchiverError:
    """Return the error of ours that names the problem of the executors."""
    text = str(error.java_exception)
    if told := _TOLD_BY_US.search(text):
        return UsageError(f"on the executors: {told[1]}")
    if program := missing_program(text):
        return UsageError(f"the executors have no {program}, which spark.pyspark.python names; {_ADVICE}")
    if _NO_ARCHIVER.search(text):
        return UsageError(f"the executors' Python has no archiver; {_ADVICE}")
    if other := _OTHER_VERSION.search(text):
        return UsageError(f"on the executors: {other[1]}; {_ADVICE}")
    return TemporaryError(f"Spark lost its workers: {cause_line(text)}; {RUN_AGAIN}")


def missing_program(report: str) -> str:
    """Find the missing Python that could not be started; empty for any other failure."""
    found = _NO_PROGRAM.search(report)
    return found[1] if found else ""


def cause_line(report: str) -> str:
    """Find the cause in Spark's output: the error at the end of a worker's last traceback, else the JVM's."""
    errors = [found["error"] for found in _TRACEBACK.finditer(report)]
    said = (_JAVA_NAMES.sub("", line).strip() for line in report.splitlines())
    return errors[-1] if errors else next(filter(None, said), "it does not say why")


def raised_in(error: PySparkException | Py4JError, *, less: str = "") -> ArchiverError | None:
    """Find the error of ours that a worker raised; without such an end of its message."""
    ends = [found["error"] for report in _python_tracebacks(error) for found in _TRACEBACK.finditer(report)]
    ours = _OURS.fullmatch(ends[-1]) if ends else None
    kind = getattr(errors, ours[1], None) if ours else None
    if ours is None or not (isinstance(kind, type) and issubclass(kind, ArchiverError)):
        return None
    return kind(ours[2].removesuffix(less))


def _python_tracebacks(error: PySparkException | Py4JError) -> Iterator[str]:
    """Yield texts that Spark marks as Python's: all others may quote records and SQL, with any content."""
    is_planned = isinstance(error, AnalysisException) and error.getCondition() == "PYTHON_DATA_SOURCE_ERROR"
    if is_planned or isinstance(error, PythonException):
        yield str(error)
    elif isinstance(error, Py4JJavaError):
        cause = error.java_exception
        while cause is not None:
            if cause.getClass().getName() == "org.apache.spark.api.python.PythonException":
                yield str(cause.getMessage())
            cause = cause.getCause()


def line_of_spark(error: PySparkException | Py4JError) -> str:
    """Find the line with Spark's own reason; empty if missing."""
    found = _SPARKS.search(str(error))
    return found[0] if found else ""


def line_of(error: PySparkException | Py4JError) -> str:
    """Find the most useful line of an error: Spark's own reason, else the cause."""
    # Not the first line of py4j's error, which only names the call.
    java = str(error.java_exception) if isinstance(error, Py4JJavaError) else ""
    return line_of_spark(error) or cause_line(java or str(error))


@contextmanager
def jvm_errors_as_ours() -> Iterator[None]:
    """Turn py4j's errors after the death of the JVM into an error of ours."""
    try:
        yield
    except Py4JJavaError:  # it is there, and complains
        raise
    except _OF_A_GONE_JVM as error:
        raise TemporaryError(f"Spark's JVM is gone: {error}; {RUN_AGAIN}") from error
