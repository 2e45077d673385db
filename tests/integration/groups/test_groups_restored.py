"""Groups go on where they stood, whatever has happened: random topics and groups, backed up, restored and read on, all real.

The next record that a consumer of a group reads after the restore is the next restored record at or after its old position;
else the first record that was written since, or none. What is known is noted in plain lists (tests.support.group_histories).
"""

import random
import uuid
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import TopicPartition as ClientPartition

from archiver.groups.log import archived_log, lives
from archiver.groups.positions import joined_positions, log_as_of, removal_causes
from tests.support.brokers import S3, Broker, Bucket, StartBroker
from tests.support.foreign_reader import s3_client
from tests.support.group_cases import Case, Draw
from tests.support.group_histories import Hands
from tests.support.group_restores import Restore
from tests.support.kafka_topics import create_topic
from tests.support.round_trip import archive_site

pytestmark = [pytest.mark.kafka, pytest.mark.s3]

FEW, SOME, MANY = 8, 10, 300
WITHIN_A_MINUTE: Final = (9, 15, 16, 22)  # cases that have found something


@pytest.fixture(scope="module")
def hands(new_module_broker: StartBroker) -> Hands:
    """Of a broker whose `__consumer_offsets` has what these cases commit, and a group of nothing to do with them."""
    broker: Broker = new_module_broker(**{"log.cleaner.backoff.ms": "100"})
    found = Hands.of(broker.bootstrap)
    create_topic(broker.bootstrap, "rest")
    found.commit("others", [ClientPartition("rest", 0, 0)])
    return found


@pytest.mark.usefixtures("one_clock")
@pytest.mark.timeout(300)
def test_groups_go_on_where_they_stood(hands: Hands, minio: S3, tmp_path: Path, seed: int) -> None:
    run_cases(hands, minio, tmp_path, Draw(seed), range(FEW))


@pytest.mark.usefixtures("one_clock")
@pytest.mark.long
@pytest.mark.timeout(3600)
def test_three_hundred_histories(hands: Hands, minio: S3, tmp_path: Path, seed: int) -> None:
    tally = run_cases(hands, minio, tmp_path, Draw(seed), range(MANY))
    kinds = ("exact", "next restored record", "before the first restored record", "at the end of the archive")
    more = ("behind the last restored record", "beyond the end of the archive", "raised to the log start")
    assert all(tally[kind] for kind in (*kinds, *more)), tally
    # A commit between the last sight of one topic and the first of the next may be of a third one: nobody can tell.
    assert tally["not told"] < tally["positions"] / 3


@pytest.mark.timeout(300)
def test_topics_that_came_again_within_a_minute(
    hands: Hands, minio: S3, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """Clocks may differ by as much: which topic was meant is often not told then, and never guessed."""
    numbers = WITHIN_A_MINUTE if pytestconfig.getoption("--long") else WITHIN_A_MINUTE[:2]
    run_cases(hands, minio, tmp_path, Draw(20261122, lives=2), numbers)


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(1200)
def test_chosen_records(hands: Hands, minio: S3, tmp_path: Path, seed: int) -> None:
    """Of which Spark says which they are, by the installed command."""
    run_cases(hands, minio, tmp_path, Draw(seed, lives=1, by_spark=True), range(SOME))


@pytest.fixture
def one_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """All brokers and backups are on this machine, and what a case does in seconds takes days elsewhere."""
    for module in (archived_log, removal_causes, joined_positions, lives, log_as_of):
        monkeypatch.setattr(module, "CLOCKS_DIFFER_MS", 5)
    for module in (removal_causes, lives):
        monkeypatch.setattr(module, "UNDER_WAY_MS", 5)


def run_cases(hands: Hands, minio: S3, folder: Path, draw: Draw, numbers: Sequence[int]) -> Counter[str]:
    tally: Counter[str] = Counter()
    for number in numbers:
        tally += run_case(hands, minio, folder / str(number), draw, number)
    print(f"{len(numbers)} cases of seed {draw.seed}: {dict(tally.most_common())}")
    return tally


def run_case(hands: Hands, minio: S3, folder: Path, draw: Draw, number: int) -> Counter[str]:
    bucket = Bucket(minio, f"case-{uuid.uuid4().hex[:12]}")
    s3_client(bucket).create_bucket(Bucket=bucket.name)
    folder.mkdir()
    with archive_site(bucket, folder) as site:
        case = Case(hands, site, draw, random.Random(f"{draw.seed} {number}"), f"topic-{number}-{uuid.uuid4().hex[:6]}")
        try:
            case.run()
            Restore(case).run()
        except BaseException as error:
            error.add_note("\n".join([f"case {number} of {draw}:", *case.steps]))
            raise
        finally:
            case.clean_up()
    return case.tally
