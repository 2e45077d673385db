"""Every world of the table: the full cycle in it ends as the table says. `make test-worlds` runs all of them."""

import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from archiver.demo.sandbox import fetch_kafka
from tests.support.brokers import CACHE, KAFKA_41, Bucket
from tests.support.foreign_reader import s3_client
from tests.support.java_oracle import JavaOracle
from tests.support.round_trip import archive_site
from tests.worlds import figures
from tests.worlds.commands import CommandError
from tests.worlds.cycle import Cycle
from tests.worlds.table import WORLDS
from tests.worlds.world import Kafka, Store, World

# The first run of a world also fetches, or builds, what it is made of.
pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture
def oracle() -> Iterator[JavaOracle]:
    """One for each world: what a broken one leaves open must not meet the next."""
    with JavaOracle(fetch_kafka(KAFKA_41, CACHE), CACHE) as started:
        yield started


def row_of(world: World) -> ParameterSet:
    marks = [] if world.is_quick else [pytest.mark.worlds]
    return pytest.param(world, id=re.sub(r"[^A-Za-z0-9.]+", "-", world.name), marks=marks)


@pytest.mark.parametrize("world", [row_of(world) for world in WORLDS])
def test_the_full_cycle(
    world: World, tmp_path: Path, oracle: JavaOracle, seed: int, pytestconfig: pytest.Config
) -> None:
    begun_s = time.monotonic()
    with world.store(tmp_path / "store") as store, world.kafka(tmp_path / "kafka") as kafka:
        cycle, result = run_cycle(world, store, kafka, tmp_path / "site", oracle, seed)
        evidence = kafka.evidence()
    tally = cycle.tally
    assert tally.differences[:20] == []
    if pytestconfig.getoption("--worlds"):
        told = {"kafka": kafka.version, "store": store.name, "result": result, "evidence": evidence}
        counts = {"records": tally.records, "kills": tally.kills, "compared": tally.compared}
        counts |= {"differences": len(tally.differences), "seconds": round(time.monotonic() - begun_s)}
        figures.record(world.name, {**told, **counts, "date": datetime.now(UTC).date().isoformat()})


def run_cycle(
    world: World, store: Store, kafka: Kafka, folder: Path, oracle: JavaOracle, seed: int
) -> tuple[Cycle, str]:
    """The cycle, and how it ended. That is checked; what it has compared is not."""
    bucket = Bucket(store.s3, "archive")
    s3_client(bucket).create_bucket(Bucket=bucket.name)
    folder.mkdir()
    with archive_site(bucket, folder) as site:
        cycle = Cycle(kafka, site, oracle, seed)
        try:
            cycle.run()
        except CommandError as error:
            if world.refusal is None or not error.is_of(world.refusal):
                raise
            return cycle, f"{world.refusal.step} is refused: {world.refusal.why}"
    assert world.refusal is None, f"the cycle was to be refused: {world.refusal}"
    refused = "" if kafka.refused_topic is None else "; the topic is refused"
    return cycle, f"{figures.WHOLE}{refused}"
