"""Real parts for all tests, started once per session and only when a test asks; skips that count; seeds that replay.

The seed is the same in each run, and with it the verdict; `--long` draws one, to hunt with. What a drawn one finds is marked
on its test, `@pytest.mark.seeds(...)`, which then runs with that one, too, in each run.
"""

import gc
import os
import random
import re
import tempfile
import uuid
from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any, TypeVar
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from archiver.demo.sandbox import fetch_kafka
from archiver.errors import ArchiverError
from tests.support.brokers import CACHE, KAFKA_39, KAFKA_41, S3, Broker, Bucket, GivenBroker, GivenS3, StartBroker
from tests.support.foreign_reader import s3_client
from tests.support.forked_commands import installed_commands
from tests.support.http_proxy import VARIABLES, http_proxy
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_broker import KafkaBroker
from tests.support.minio import minio_or_skip
from tests.support.zookeeper import KAFKA_28, StartZooKeeperBroker, ZooKeeperBroker

REQUIRE_REAL = os.environ.get("ARCHIVER_REQUIRE_REAL") == "1"
FIXED_SEED = 20261122
MOST_FILES = 256
SEED = pytest.StashKey[int]()
Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)

# No verdict by the clock: the first example compiles kernels or starts a JVM, and others may want the machine.
settings.register_profile(
    "archiver", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow], database=None
)
settings.register_profile("small", parent=settings.get_profile("archiver"), max_examples=40)
# It also draws the constants of whatever modules are imported by then: other examples behind other tests.
providers._get_local_constants = lambda: providers._local_constants


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kafka-archiver")
    group.addoption("--kafka-bootstrap", help="use this broker instead of starting 3.9 and 4.1")
    group.addoption("--s3-endpoint", help="use this S3 (credentials from AWS_ACCESS_KEY_ID, ...) instead of MinIO")
    group.addoption("--long", action="store_true", help="also run the tests marked long")
    group.addoption("--broken", action="store_true", help="also run the tests marked broken")
    group.addoption(
        "--worlds", action="store_true", help="also run the tests marked worlds, and write down their figures"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """One seed for Hypothesis and for our own generators; each worker of pytest-xdist has that of the whole run."""
    settings.load_profile("archiver" if config.getoption("--long") else "small")
    given = getattr(config, "workerinput", {}).get("seed") or config.getoption("hypothesis_seed", None)
    if given is None:
        chosen = random.SystemRandom().randrange(2**32) if config.getoption("--long") else FIXED_SEED
        given = str(chosen)
    config.option.hypothesis_seed = given
    config.stash[SEED] = int(given) if given.isdigit() else 0


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:  # noqa: ANN401 - of pytest-xdist, which has no types for it
    """Of what was not typed, workers are told nothing."""
    node.workerinput["seed"] = str(node.config.stash[SEED])


def pytest_report_header(config: pytest.Config) -> str:
    hashes = os.environ.get("PYTHONHASHSEED", "random")
    return f"seed: replay with --hypothesis-seed={config.stash[SEED]} and PYTHONHASHSEED={hashes}"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    unwanted = [name for name in ("long", "worlds", "broken") if not config.getoption(f"--{name}")]
    held = {item for item in items if any(item.get_closest_marker(name) for name in unwanted)}
    if not config.getoption("--long"):
        held.update(_beyond_samples([item for item in items if item not in held]))
    if held:
        config.hook.pytest_deselected(items=[item for item in items if item in held])
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        if item not in held:
            files.setdefault(item.path, []).append(item)
    items[:] = [item for file in sorted(files.values(), key=_weight, reverse=True) for item in file]


def _beyond_samples(items: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    """Of a test marked `sampled(n)`, all cases but n. Which n depends on their names alone: the same in each run."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sampled"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for some in cases.values():
        (mark, *_) = some[0].iter_markers("sampled")
        yield from sorted(some, key=lambda item: crc32(item.nodeid.encode()))[mark.args[0] :]


def _weight(file: list[pytest.Item]) -> tuple[float, bool, int]:
    """Files are handed out in this order: one that takes minutes must not be begun when all the others are done.

    Those are the ones whose tests are given more time than others; then whatever starts something.
    """
    timeouts = [mark.args[0] for item in file for mark in item.iter_markers("timeout")]
    starts = any(item.get_closest_marker(name) for item in file for name in ("kafka", "s3", "spark", "e2e"))
    return max(timeouts, default=0.0), starts, len(file)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return _count_skip((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return _count_skip((yield))


def _count_skip(report: Report) -> Report:
    """Under ARCHIVER_REQUIRE_REAL=1 a missing part is a failure."""
    if REQUIRE_REAL and report.outcome == "skipped" and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, but ARCHIVER_REQUIRE_REAL=1: {report.longrepr}"
    return report


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes `broker` runs on one of two Kafka versions, by its name; with --long on both; or on the given one."""
    if "broker" in metafunc.fixturenames:
        versions = ["3.9", "4.1"]
        if metafunc.config.getoption("--kafka-bootstrap"):
            versions = ["given"]
        elif not metafunc.config.getoption("--long"):
            versions = [versions[crc32(metafunc.definition.nodeid.encode()) % 2]]
        metafunc.parametrize("broker", versions, indirect=True, scope="session")
    found = metafunc.definition.get_closest_marker("seeds")
    if found is not None:
        seeds = [metafunc.config.stash[SEED], *found.args]
        names = ["seed of the run", *(f"seed {one}" for one in found.args)]
        metafunc.parametrize("seed", seeds, ids=names, indirect=True, scope="session")


@pytest.fixture(scope="session")
def seed(request: pytest.FixtureRequest) -> int:
    """For generators of our own; told in the header."""
    given: int = getattr(request, "param", request.config.stash[SEED])
    return given


@pytest.fixture(autouse=True)
def _seeded(request: pytest.FixtureRequest, seed: int) -> None:
    """What a test draws without a generator of its own is the same in each run, whichever tests ran before."""
    random.seed(f"{seed} {request.node.nodeid}")


@pytest.fixture(autouse=True)
def _installed(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that is marked so starts no command by fork."""
    marked = any(request.node.get_closest_marker(name) for name in ("installed", "e2e"))
    with installed_commands() if marked else nullcontext():
        yield


@pytest.fixture(autouse=True)
def _files_are_closed() -> Iterator[None]:
    """A command looks for garbage rarely, never at what was there at its start, and ends soon. This process lives on, and
    each session of Spark leaves 20 files for garbage: PySpark waits for accumulators with `select`, which cannot watch the 1,025th."""
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()
    if sum(1 for _ in Path("/proc/self/fd").iterdir()) > MOST_FILES:
        gc.collect()


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest) -> Broker:
    """Each Kafka version in turn. The brokers themselves stay up until the end of the session."""
    name = "broker_39" if request.param == "3.9" else "broker_41"
    found: Broker = request.getfixturevalue(name)
    return found


@pytest.fixture(scope="session")
def broker_39(pytestconfig: pytest.Config) -> Iterator[Broker]:
    yield from _session_broker(pytestconfig, KAFKA_39)


@pytest.fixture(scope="session")
def broker_41(pytestconfig: pytest.Config) -> Iterator[Broker]:
    yield from _session_broker(pytestconfig, KAFKA_41)


def _session_broker(config: pytest.Config, version: str) -> Iterator[Broker]:
    given = config.getoption("--kafka-bootstrap")
    if given:
        yield GivenBroker(given)
        return
    with _started_broker(version, {}) as started:
        yield started


@pytest.fixture
def new_broker() -> Iterator[StartBroker]:
    """For tests that stop, kill or configure a broker: `new_broker(version, **{"property.name": "..."})`."""
    with _starting_brokers() as start:
        yield start


@pytest.fixture(scope="module")
def new_module_broker() -> Iterator[StartBroker]:
    """The same for brokers that all tests of a module share."""
    with _starting_brokers() as start:
        yield start


@pytest.fixture(scope="module")
def shared_broker(new_module_broker: StartBroker) -> StartBroker:
    """One broker of each version and properties, for all tests of a module that only create topics there."""
    return cache(new_module_broker)


@pytest.fixture
def new_zookeeper_broker() -> Iterator[StartZooKeeperBroker]:
    """For tests of clusters as they were before KRaft: `new_zookeeper_broker(**WITHOUT_TOPIC_IDS)`."""
    with _starting_zookeeper_brokers() as start:
        yield start


@pytest.fixture(scope="module")
def shared_zookeeper_broker() -> Iterator[StartZooKeeperBroker]:
    """The same, as `shared_broker`."""
    with _starting_zookeeper_brokers() as start:
        yield cache(start)


@contextmanager
def _starting_zookeeper_brokers() -> Iterator[StartZooKeeperBroker]:
    with ExitStack() as stack:

        def start(version: str = KAFKA_28, **properties: str) -> ZooKeeperBroker:
            folder = tempfile.TemporaryDirectory(prefix="kafka-", ignore_cleanup_errors=True)
            made = ZooKeeperBroker(kafka_jars(version), Path(stack.enter_context(folder)), properties=properties)
            made.start()
            stack.callback(made.kill)
            return made

        yield start


@contextmanager
def _starting_brokers() -> Iterator[StartBroker]:
    with ExitStack() as stack:

        def start(version: str = KAFKA_41, **properties: str) -> KafkaBroker:
            return stack.enter_context(_started_broker(version, properties))

        yield start


@contextmanager
def _started_broker(version: str, properties: dict[str, str]) -> Iterator[KafkaBroker]:
    with tempfile.TemporaryDirectory(prefix="kafka-", ignore_cleanup_errors=True) as folder:
        own = KafkaBroker(kafka_jars(version), Path(folder), properties=properties)
        own.start()
        try:
            yield own
        finally:
            own.kill()  # an orderly end takes seconds, and nobody looks at what is left


def kafka_jars(version: str) -> Path:
    """Where the jars are, fetched when absent. Without Java or network: a skip."""
    try:
        return fetch_kafka(version, CACHE)
    except ArchiverError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def java_oracle() -> Iterator[JavaOracle]:
    """Kafka's own Java (4.1), one process for the session."""
    try:
        oracle = JavaOracle(kafka_jars(KAFKA_41), CACHE)
    except FileNotFoundError as error:
        pytest.skip(str(error))
    with oracle:
        yield oracle


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test uses. The topic itself is the test's to create."""
    name = re.sub(r"[^a-zA-Z0-9._-]+", "-", request.node.name).strip("-.")[:100]
    return f"{name}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def proxied(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What a proxy sees that the environment names; it is for all addresses."""
    seen: list[str] = []
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with http_proxy(seen) as address:
        for name in VARIABLES:
            monkeypatch.setenv(name, f"http://{address}")
        yield seen


@pytest.fixture(scope="session")
def minio(pytestconfig: pytest.Config) -> Iterator[S3]:
    given = pytestconfig.getoption("--s3-endpoint")
    if given:
        yield GivenS3(given, os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"])
        return
    started = minio_or_skip()
    yield started
    started.stop()


@pytest.fixture
def bucket(minio: S3) -> Bucket:
    """A new bucket. It stays, with what is in it, for as long as MinIO does."""
    made = Bucket(minio, f"test-{uuid.uuid4().hex[:12]}")
    s3_client(made).create_bucket(Bucket=made.name)
    return made
