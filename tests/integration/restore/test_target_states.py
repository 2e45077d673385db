"""Each state of a target, restored into in each way: what the dry run has said is what comes, and what is refused has changed nothing."""

import json
import re
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import pytest

from tests.conftest import kafka_jars
from tests.support.brokers import KAFKA_41, S3, Bucket
from tests.support.foreign_reader import s3_client
from tests.support.java_oracle import JavaOracle
from tests.support.murmur2 import murmur2
from tests.support.records import Rec, without_offsets
from tests.support.round_trip import archive_site
from tests.support.target_stage import NOTES, Picture, Rows, Said, Stage, all_brokers, said_with
from tests.support.target_states import CASES, FILLED, NOT_EMPTY, SAMPLE, Case, Mode, State
from tests.support.zookeeper import KAFKA_28

pytestmark = [pytest.mark.kafka, pytest.mark.s3]


@pytest.fixture(scope="module")
def stage(minio: S3, java_oracle: JavaOracle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    for version in (KAFKA_41, KAFKA_28):
        kafka_jars(version)
    bucket = Bucket(minio, f"test-{uuid.uuid4().hex[:12]}")
    s3_client(bucket).create_bucket(Bucket=bucket.name)
    folder = tmp_path_factory.mktemp("targets")
    with all_brokers(folder) as brokers, archive_site(bucket, folder) as site:
        yield Stage(site, java_oracle, brokers)


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=str(case), marks=() if case in SAMPLE else pytest.mark.long) for case in CASES]
)
def test_a_restore_keeps_to_what_its_dry_run_said(stage: Stage, case: Case) -> None:
    former = stage.set_up(case)
    before = stage.picture(case)
    foretold = stage.restore(case, "--dry-run")
    if case.verdict is None:  # else the picture in the end tells of both
        assert stage.picture(case) == before
    _assert_told(case, foretold)
    if foretold.out and case.verdict is not None:  # some errors leave nothing to plan
        assert _refused(foretold.out) == list(foretold.problems)
    done = stage.restore(case)
    after = stage.picture(case)
    assert (done.exit_code, done.problems) == (foretold.exit_code, foretold.problems)
    if case.verdict is not None:
        assert after == before
    else:
        _assert_restored(case, former, stage.archived(case), after.records)
        _assert_left_alone(case, before, after)
        is_kept = case.mode is Mode.INTO_EXISTING and bool(former or case.state.standing)
        configs = before.topics[case.target].configs if is_kept else stage.final_configs(case)
        assert configs in (None, after.topics[case.target].configs)
    stage.discard_target(case, after)


def test_the_installed_command_says_the_same(stage: Stage) -> None:
    state = State(name="of the installed command", standing=FILLED, verdicts=(NOT_EMPTY,) * 4)
    case = Case(state, Mode.PLAIN)
    stage.set_up(case)
    here = stage.restore(case, "--dry-run")
    for more in (["--dry-run"], []):
        done = stage.site.run(*stage.arguments(case, *more))
        assert (done.returncode, len(here.problems)) == (here.exit_code, 1) == (2, 1)
        assert said_with(done.returncode, done.stdout, done.stderr).problems == here.problems


def _refused(out: str) -> list[str]:
    """As the plan tells it to programs."""
    plan = json.loads(out)
    return [*plan["refused"], *plan["damage"]]


def _assert_told(case: Case, said: Said) -> None:
    if case.verdict is None:
        assert said.exit_code == 0, said
        return
    assert said.exit_code == case.verdict.exit_code, said
    assert any(re.search(case.verdict.says, line) for line in said.problems), said


def _assert_left_alone(case: Case, before: Picture, after: Picture) -> None:
    """All but the target, and what restores note."""
    for name in before.topics.keys() | after.topics.keys():
        assert name == case.target or before.topics.get(name) == after.topics.get(name)
    assert _archive(before) == _archive(after)


def _archive(picture: Picture) -> Mapping[str, str]:
    """All objects but what restores note."""
    return {key: tag for key, tag in picture.objects.items() if not key.startswith(NOTES)}


def _assert_restored(case: Case, former: Rows, ours: Rows, found: Rows) -> None:
    """All of ours in its order; before that, at their offsets, those that were there, or none of them."""
    kept = former if case.mode is Mode.INTO_EXISTING else {}
    behind = {number: records[len(kept.get(number, ())) :] for number, records in found.items()}
    assert {number: records[: len(kept.get(number, ()))] for number, records in found.items() if kept} == dict(kept)
    if case.mode is not Mode.REPARTITION:
        assert {number: without_offsets(records) for number, records in behind.items()} == {
            number: without_offsets(records) for number, records in ours.items()
        }
        return
    assert _by_source(behind) == _dealt(ours, case.partitions)


def _dealt(ours: Rows, partitions: int) -> Mapping[tuple[int, int], Sequence[Rec]]:
    dealt: dict[tuple[int, int], list[Rec]] = defaultdict(list)
    for source, records in ours.items():
        for record in without_offsets(records):
            dealt[source, (murmur2(record.key or b"") & 0x7FFFFFFF) % partitions].append(record)
    return dealt


def _by_source(found: Rows) -> Mapping[tuple[int, int], Sequence[Rec]]:
    sources: dict[tuple[int, int], list[Rec]] = defaultdict(list)
    for target, records in found.items():
        for record in without_offsets(records):
            sources[int((record.headers[0][1] or b"").partition(b"/")[0]), target].append(record)
    return sources
