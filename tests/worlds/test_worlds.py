"""Every world of the table: the full cycle in it finds no difference. `make test-worlds` runs all of them."""

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
from tests.worlds.cycle import Cycle
from tests.worlds.table import WORLDS
from tests.worlds.world import World

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
        bucket = Bucket(store.s3, "archive")
        s3_client(bucket).create_bucket(Bucket=bucket.name)
        (tmp_path / "site").mkdir()
        with archive_site(bucket, tmp_path / "site") as site:
            cycle = Cycle(kafka, site, oracle, seed)
            cycle.run()
    tally = cycle.tally
    assert tally.differences[:20] == []
    if pytestconfig.getoption("--worlds"):
        counts = {"records": tally.records, "kills": tally.kills, "compared": tally.compared}
        counts |= {"differences": len(tally.differences), "seconds": round(time.monotonic() - begun_s)}
        told = {"kafka": kafka.version, "store": store.name, **counts, "date": datetime.now(UTC).date().isoformat()}
        figures.record(world.name, told)
