"""Commits as Kafka's own generated classes write them, of every version, decode to what was committed."""

import base64
import random
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from archiver.demo.sandbox import JAVA_OPTIONS, fetch_kafka
from tests.support.brokers import CACHE, KAFKA_39, KAFKA_41
from tests.support.compiled import compile_java
from tests.support.offset_commits import Commit, GroupKey, GroupKind, PositionKey, decode_commit, decode_key

LARGEST = 2**63 - 1
TEXTS = ("", "a", "ü", "🐢 " * 40, "zero\0byte", "x" * 300)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What Java is asked to write."""

    type: int
    version: int
    key: PositionKey
    commit: Commit


def written_by_java(kafka: str, lines: Sequence[str]) -> list[tuple[bytes, bytes]]:
    jars = fetch_kafka(kafka, CACHE)
    classes = compile_java("OffsetCommits", jars, CACHE)
    command = ["java", *JAVA_OPTIONS, "-cp", f"{classes}:{jars}/*", "OffsetCommits"]
    done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, check=True, timeout=60)
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    return [(base64.b64decode(key), base64.b64decode(value)) for key, value in rows]


def some_commits(kafka: str, seed: int, count: int) -> list[Wanted]:
    drawn = random.Random(seed)
    found = []
    for _ in range(count):
        version = drawn.randrange(5)
        topic_id = drawn.choice(["", "AAAAAAAAAAAAAAAAAAAAAg", "-Xw_8kJSR1mO5pWqgQ7aXA"])
        commit = Commit(
            offset=drawn.choice([0, 1, 39, 2**40, LARGEST]),
            leader_epoch=drawn.choice([-1, 0, 7, 2**31 - 1]) if version >= 3 else -1,
            metadata=drawn.choice(TEXTS),
            commit_ms=drawn.choice([0, 1_790_000_000_000, LARGEST]),
            expire_ms=drawn.choice([-1, 5, LARGEST]) if version == 1 else -1,
            topic_id=topic_id if version == 4 and kafka == KAFKA_41 else "",
        )
        key = PositionKey(drawn.choice(TEXTS), drawn.choice(TEXTS[1:]), drawn.choice([0, 1, 2**31 - 1]))
        found.append(Wanted(type=drawn.randrange(2), version=version, key=key, commit=commit))
    return found


def line_of(wanted: Wanted) -> str:
    key, commit = wanted.key, wanted.commit
    fields = (
        "commit", wanted.type, wanted.version, spelled(key.group), spelled(key.topic), key.partition, commit.offset,
        commit.leader_epoch, spelled(commit.metadata), commit.commit_ms, commit.expire_ms, commit.topic_id,
    )  # fmt: skip
    return "\t".join(map(str, fields))


def spelled(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize("kafka", [KAFKA_39, KAFKA_41])
def test_every_version_decodes_to_what_was_committed(kafka: str, seed: int) -> None:
    wanted = some_commits(kafka, seed, 400)
    written = written_by_java(kafka, [line_of(one) for one in wanted])
    for one, (key, value) in zip(wanted, written, strict=True):
        assert decode_key(key) == one.key
        assert decode_commit(value) == one.commit
    assert {(one.type, one.version) for one in wanted} == {(kind, version) for kind in range(2) for version in range(5)}


@pytest.mark.parametrize("kafka", [KAFKA_39, KAFKA_41])
def test_groups_of_every_protocol_are_told_apart(kafka: str) -> None:
    kinds = {2: GroupKind.CLASSIC, 3: GroupKind.CONSUMER} | ({17: GroupKind.STREAMS} if kafka == KAFKA_41 else {})
    lines = [f"group\t{kind}\t0\t{spelled('billing ü')}" for kind in kinds]
    keys = [decode_key(key) for key, _ in written_by_java(kafka, lines)]
    assert keys == [GroupKey("billing ü", kind) for kind in kinds.values()]
