"""Sets up the demo's environment: a broker, an S3 and a folder for its commands. Removes all of it at the end."""

import importlib.util
import logging
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Final

from archiver.demo.sandbox import JAVA_OPTIONS, EmbeddedS3, KafkaBroker, fetch_kafka
from archiver.demo.teller import Teller
from archiver.errors import ArchiverError, UsageError
from archiver.process.machine.caches import home_cache
from archiver.process.machine.java import check_java
from archiver.process.running.children import start_child

KAFKA_VERSION: Final = "4.1.1"
BUCKET: Final = "shop-archive"

# The demo's commands must not use the user's own settings, nor reach the user's own AWS account.
_UNSET: Final = ("ARCHIVER_CONFIG", "AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_SESSION_TOKEN", "SPARK_HOME")
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def check_parts() -> None:
    """Raise an error with the next step if a part is missing that the demo cannot install itself."""
    check_java()
    for module in ("pyspark", "moto"):
        if importlib.util.find_spec(module) is None:
            raise UsageError(f"the demo needs {module}: pip install 'kafka-archiver[demo]'")


def cache_directory() -> Path:
    """Return the folder for Kafka's jars between demos: the checkout's .cache, which the tests use, too; else the user's."""
    checkout = Path(__file__).resolve().parents[2]
    if (checkout / "pyproject.toml").exists():
        return checkout / ".cache"
    return home_cache()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The running servers and the folder of the demo."""

    folder: Path
    broker: KafkaBroker
    s3: EmbeddedS3

    def run_python(self, *arguments: str) -> str:
        """Run Python in the demo's folder, with the demo's S3 as its only credentials. Returns its output."""
        return _run([*self._environment(), sys.executable, *arguments], self.folder)

    def _environment(self) -> list[str]:
        temporary = str(_temporary(self.folder))
        variables = {
            "AWS_ACCESS_KEY_ID": self.s3.access_key,
            "AWS_SECRET_ACCESS_KEY": self.s3.secret_key,
            "AWS_CONFIG_FILE": f"{temporary}/none",
            "AWS_SHARED_CREDENTIALS_FILE": f"{temporary}/none",
            "TMPDIR": temporary,
            "SPARK_LOCAL_DIRS": temporary,
            "JAVA_TOOL_OPTIONS": " ".join(_java_options(self.folder)),
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        }
        unset = chain.from_iterable(("-u", name) for name in _UNSET)
        return ["env", *unset, *(f"{name}={value}" for name, value in variables.items())]


def _temporary(folder: Path) -> Path:
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    return temporary


def _java_options(folder: Path) -> tuple[str, str]:
    """JVMs unpack native libraries and keep counters in /tmp, and leave both there when they are killed."""
    return f"-Djava.io.tmpdir={_temporary(folder)}", "-XX:-UsePerfData"


def _run(command: list[str], folder: Path) -> str:
    process: subprocess.Popen[str] = start_child(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        printed, complained = (
            process.communicate()
        )  # reads to the end of file: until all processes that write there have ended
    except BaseException:  # kill the whole group, Spark's JVM included
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    if process.returncode != 0:
        raise ArchiverError(
            f"that command failed with {process.returncode}:\n{printed}{complained}".rstrip()
        ).in_lines()
    return printed


@contextmanager
def cleaned_up() -> Iterator[ExitStack]:
    """Yield a stack that unwinds on SIGTERM and SIGHUP as on Ctrl-C. A second Ctrl-C does not disturb it."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in _SIGNALS}
    stack = ExitStack()
    try:
        yield stack
    finally:
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        stack.close()
        for number, handler in before.items():
            signal.signal(number, handler)


def set_stage(stack: ExitStack, teller: Teller) -> Stage:
    """Start everything. The stack ends it."""
    jars = _kafka_jars(teller)
    folder = Path(tempfile.gettempdir()) / f"archiver-demo-{secrets.token_hex(6)}"
    stack.callback(
        shutil.rmtree, folder, ignore_errors=True
    )  # at once: Ctrl-C may come right after the folder is created
    folder.mkdir(mode=0o700)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # else the S3 logs each request
    with teller.busy("starting Kafka and S3"):
        broker = KafkaBroker(jars, folder / "kafka", java_options=(*JAVA_OPTIONS, *_java_options(folder)))
        stack.enter_context(broker)
        s3 = stack.enter_context(EmbeddedS3(BUCKET))
    return Stage(folder=folder, broker=broker, s3=s3)


def _kafka_jars(teller: Teller) -> Path:
    cache = cache_directory()
    if not (cache / f"kafka-{KAFKA_VERSION}").is_dir():
        teller.say(f"Fetching Kafka {KAFKA_VERSION} from Maven, this once (45 MB). It stays in {cache}.")
    with teller.busy("fetching Kafka"):
        try:
            return fetch_kafka(KAFKA_VERSION, cache)
        except OSError as error:
            raise UsageError(f"{cache}, where the demo keeps Kafka, cannot be used: {error.strerror}") from error
