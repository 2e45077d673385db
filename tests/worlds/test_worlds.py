"""Every world of the table: the full cycle in it ends as the table says. `make test-worlds` runs all of them."""

from pathlib import Path

import pytest

from tests.support.brokers import Bucket
from tests.support.foreign_reader import s3_client
from tests.support.java_oracle import JavaOracle
from tests.support.round_trip import archive_site
from tests.worlds.cycle import Cycle
from tests.worlds.table import WORLDS
from tests.worlds.world import World

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
def test_the_whole_cycle(world: World, tmp_path: Path, java_oracle: JavaOracle, seed: int) -> None:
    with world.store(tmp_path / "store") as store, world.kafka(tmp_path / "kafka") as kafka:
        bucket = Bucket(store.s3, "archive")
        s3_client(bucket).create_bucket(Bucket=bucket.name)
        (tmp_path / "site").mkdir()
        with archive_site(bucket, tmp_path / "site") as site:
            cycle = Cycle(kafka, site, java_oracle, seed)
            cycle.run()
            print(cycle.tally.records, cycle.tally.kills, cycle.tally.compared, len(cycle.tally.differences))
            assert cycle.tally.differences[:20] == []
