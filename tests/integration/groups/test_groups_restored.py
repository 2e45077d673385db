"""Groups go on where they stood, whatever has happened: random topics and groups, backed up, restored and read on, all real.

The next record that a consumer of a group reads after the restore is the next restored record at or after its old position;
else the first record that was written since, or none. What is known is noted in plain lists (tests.support.group_histories).
"""

import io
import json
import random
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from confluent_kafka import TopicPartition as ClientPartition

from archiver.cli.main import main
from archiver.groups import lives, positions
from tests.support.brokers import S3, Broker, Bucket, StartBroker
from tests.support.foreign_reader import s3_client
from tests.support.group_histories import (
    ALWAYS,
    REMOVED,
    Hands,
    History,
    Said,
    Stored,
    key_of,
    moment_ms,
    next_index,
)
from tests.support.kafka_topics import create_topic, delete_topic
from tests.support.round_trip import KEEP_ALL, ArchiveSite, archive_site, errors_of
from tests.support.service import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.s3]

OFFSETS: Final = "__consumer_offsets"
SOON_CLEAN: Final = {  # when it is compacted
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.0",
    "min.compaction.lag.ms": "0",
}
NOT_TOLD: Final = {"unknown", "ambiguous"}
FEW, MANY = 20, 300
MOST_TRIES: Final = 150


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
    run_cases(hands, minio, tmp_path, Draw(seed), FEW)


@pytest.mark.usefixtures("one_clock")
@pytest.mark.long
@pytest.mark.timeout(3600)
def test_three_hundred_histories(hands: Hands, minio: S3, tmp_path: Path, seed: int) -> None:
    tally = run_cases(hands, minio, tmp_path, Draw(seed), MANY)
    kinds = ("exact", "next restored record", "before the first restored record", "at the end of the archive")
    more = ("behind the last restored record", "beyond the end of the archive", "raised to the log start")
    assert all(tally[kind] for kind in (*kinds, *more)), tally
    assert tally["not told"] < tally["positions"] / 5


@pytest.mark.xfail(reason="a deletion within a minute of another one may be taken for it", strict=False)
@pytest.mark.timeout(300)
def test_topics_that_came_again_within_a_minute(hands: Hands, minio: S3, tmp_path: Path, seed: int) -> None:
    """Clocks may differ by as much: which topic was meant is often not told then, and never guessed."""
    run_cases(hands, minio, tmp_path, Draw(seed, lives=2), FEW // 4)


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(1200)
def test_chosen_records(hands: Hands, minio: S3, tmp_path: Path, seed: int) -> None:
    """Of which Spark says which they are, by the installed command."""
    run_cases(hands, minio, tmp_path, Draw(seed, lives=1, by_spark=True), FEW // 2)


@pytest.fixture
def one_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """All brokers and backups are on this machine, and what a case does in seconds takes days elsewhere."""
    monkeypatch.setattr(lives, "_CLOCKS_DIFFER_MS", 5)
    monkeypatch.setattr(positions, "_UNDER_WAY_MS", 5)


class Draw(NamedTuple):
    """What cases are drawn from. `lives`: that many, and not one or two."""

    seed: int
    lives: int | None = None
    by_spark: bool = False


def run_cases(hands: Hands, minio: S3, folder: Path, draw: Draw, count: int) -> Counter[str]:
    tally: Counter[str] = Counter()
    for number in range(count):
        tally += run_case(hands, minio, folder / str(number), draw, number)
    print(f"{count} cases of seed {draw.seed}: {dict(tally.most_common())}")
    return tally


def run_case(hands: Hands, minio: S3, folder: Path, draw: Draw, number: int) -> Counter[str]:
    bucket = Bucket(minio, f"case-{uuid.uuid4().hex[:12]}")
    s3_client(bucket).create_bucket(Bucket=bucket.name)
    folder.mkdir()
    with archive_site(bucket, folder) as site:
        case = Case(hands, site, draw, random.Random(f"{draw.seed} {number}"), f"topic-{number}-{uuid.uuid4().hex[:6]}")
        try:
            case.run()
        except BaseException as error:
            error.add_note("\n".join([f"case {number} of {draw}:", *case.steps]))
            raise
        finally:
            case.clean_up()
    return case.tally


@dataclass
class Case:
    """One topic and its groups."""

    hands: Hands
    site: ArchiveSite
    drawn: Draw
    draw: random.Random
    topic: str
    history: History = field(default_factory=History)
    tally: Counter[str] = field(default_factory=Counter)
    steps: list[str] = field(default_factory=list)
    moments: list[int] = field(default_factory=list)
    made: set[str] = field(default_factory=set)  # topics that are there
    values: int = 0

    def run(self) -> None:
        self.partitions = self.draw.randint(1, 4)
        self.groups = [f"{self.topic}.{name}" for name in "abcd"[: self.draw.randint(1, 4)]]
        self.lives = self.drawn.lives or (2 if self.chance(0.25) else 1)
        self.fate = self.draw.choice(["kept", "deleted", "deletion archived"])
        for life in range(self.lives):
            self.live(life)
        if self.fate == "deletion archived":
            self.back_up_groups()
        Restore(self).run()
        self.tally += Counter({"cases": 1, f"lives: {self.lives}": 1, self.fate: 1})

    def chance(self, share: float) -> bool:
        return self.draw.random() < share

    def told(self, step: str) -> None:
        self.steps.append(f"  {step}")

    def clean_up(self) -> None:
        for name in self.made:
            delete_topic(self.hands.bootstrap, name)

    # --- a life of the topic

    def live(self, life: int) -> None:
        is_last = life == self.lives - 1
        self.create(self.topic, SOON_CLEAN if (is_compacted := self.chance(0.05)) else {})
        for _ in range(self.draw.randint(1, 3)):
            self.go_on(life, is_compacted=is_compacted)
        self.back_up_records(life)
        if self.chance(0.4):  # and nobody archives it
            self.write(life)
        for _ in range(self.draw.randint(1, 4) if self.chance(0.9) else 0):
            self.commit_some(life)
            self.moments.append(moment_ms())
        if self.lives == 1 and self.fate != "deletion archived" and self.chance(0.15):
            self.delete_a_group(life)
        if self.chance(0.5) or (is_last and self.fate != "deletion archived"):
            self.back_up_groups()
        if not is_last or self.fate != "kept":
            self.told("delete the topic")
            self.delete(self.topic)
            self.hands.wait_until_forgotten(self.groups, self.topic, self.partitions)

    def go_on(self, life: int, *, is_compacted: bool) -> None:
        self.write(life)
        if self.chance(0.3):
            self.delete_some_records()
        if self.chance(0.5):
            self.commit_some(life)
        if self.chance(0.3):
            self.back_up_records(life)
        if is_compacted:
            self.compact(life)

    def create(self, topic: str, configs: Mapping[str, str]) -> None:
        self.told(f"create {topic} with {self.partitions} partitions {configs or ''}")
        create_topic(self.hands.bootstrap, topic, self.partitions, {**KEEP_ALL, **configs})
        self.made.add(topic)

    def delete(self, topic: str) -> None:
        delete_topic(self.hands.bootstrap, topic)
        self.made.remove(topic)

    def write(self, life: int) -> None:
        for _ in range(self.draw.randint(1, 4)):
            chosen = self.draw.sample(range(self.partitions), self.draw.randint(1, self.partitions))
            records = [one for number in chosen for one in self.records(life, number, self.draw.choice([1, 3, 20]))]
            way = self.draw.choice(["plain", "committed", "aborted"])
            self.told(f"write {len(records)} records to {sorted(chosen)}, {way}")
            if way == "plain":
                self.hands.write(self.topic, records)
            else:
                self.hands.write_in_transaction(self.topic, records, commits=way == "committed")

    def records(self, life: int, partition: int, count: int) -> Iterator[tuple[int, Stored]]:
        now_ms = moment_ms()
        for _ in range(count):
            self.values += 1
            timestamp = now_ms + self.draw.choice([0, 0, -5_000, 5_000]) + self.draw.randint(-500, 500)
            yield partition, Stored(-1, timestamp, b"%d-%d-%d" % (life, partition, self.values))

    def delete_some_records(self) -> None:
        for number, (start, end) in enumerate(self.bounds()):
            if end > start and self.chance(0.4):
                below = self.draw.randint(start, end)
                self.told(f"delete the records of {number} below {below}")
                self.hands.delete_records(self.topic, number, below)

    def compact(self, life: int) -> None:
        """Until the cleaner has passed; a backup begins only when it is still."""
        self.told("compact")
        self.hands.set_policy(self.topic, "compact")
        has_been = len(self.read()[0])
        for written in range(1, MOST_TRIES):
            # Brokers begin a segment by the times of records, and clean those before.
            ((number, record),) = self.records(life, 0, 1)
            self.hands.write(self.topic, [(number, record._replace(timestamp=record.timestamp + 1_000 * written))])
            time.sleep(0.2)
            if len(self.read()[0]) < has_been + written:
                break
        else:
            raise AssertionError("not compacted")
        self.hands.set_policy(self.topic, "delete")
        eventually(self.is_still, "the cleaner goes on")
        self.tally["compacted"] += 1

    def is_still(self) -> bool:
        before = self.read()
        time.sleep(0.3)
        return before == self.read()

    def read(self) -> list[list[Stored]]:
        return self.hands.read(self.topic, self.partitions)

    def bounds(self) -> list[tuple[int, int]]:
        return self.hands.bounds(self.topic, self.partitions)

    # --- backups

    def back_up_records(self, life: int) -> None:
        bounds = self.bounds()
        for number, records in enumerate(self.read()):
            self.history.archived[life, number].update({one.offset: one for one in records})
        with_groups = self.chance(0.5)
        self.told(f"back up records{' and groups' if with_groups else ''}; the logs are {bounds}")
        self.back_up(self.topic, "topic" if with_groups else "off")

    def back_up_groups(self) -> None:
        self.told("back up groups")
        self.back_up(OFFSETS, "topic")

    def back_up(self, topic: str, groups: str) -> None:
        assert not errors_of(self.site.back_up_with(self.hands.bootstrap, topic, groups=groups))

    # --- positions

    def commit_some(self, life: int) -> None:
        group = self.draw.choice(self.groups)
        bounds = self.bounds()
        chosen = self.draw.sample(range(self.partitions), self.draw.randint(1, self.partitions))
        said = {number: self.place(life, number, *bounds[number]) for number in chosen}
        metadata = self.draw.choice(["", "ü", f"{self.values}"])
        way = self.draw.choice(["plain", "plain", "plain", "committed", "aborted"])
        self.told(f"{group} commits {said} {metadata!r}, {way}")
        positions = [ClientPartition(self.topic, number, offset, metadata) for number, offset in said.items()]
        if way == "plain":
            self.hands.commit(group, positions)
        else:
            self.hands.commit_in_transaction(group, positions, commits=way == "committed")
        at_ms = moment_ms()
        if way != "aborted":
            for number, offset in said.items():
                self.history.said[group, number].append(Said(life, at_ms, offset, metadata))

    def place(self, life: int, partition: int, start: int, end: int) -> int:
        """An offset of each kind: at the start, in a hole, of a record, at the end, and beyond."""
        archived = self.history.archived[life, partition]
        holes = [offset for offset in range(end) if archived and offset not in archived]
        return self.draw.choice(
            [
                0,
                start,
                end,
                max(end - 1, 0),
                max(archived, default=-1) + 1,
                self.draw.choice(list(archived) or [0]),
                self.draw.randint(0, end),
                self.draw.randint(0, end),
                self.draw.choice(holes or [0]),
                self.draw.choice([end + 7, 2**61]),
            ]
        )

    def delete_a_group(self, life: int) -> None:
        """While another one stands in the topic: else nobody could tell whether the topic was deleted."""
        group = self.draw.choice(self.groups)
        spoke = [number for (name, number) in list(self.history.said) if name == group]
        if not any(self.history.position(group, number, life, ALWAYS) for number in spoke):
            return
        if not self.history.stands(life, group):
            return
        self.told(f"delete {group}")
        self.hands.delete_group(group)
        at_ms = moment_ms()
        for number in spoke:
            if self.history.position(group, number, life, ALWAYS):
                self.history.said[group, number].append(Said(life, at_ms, REMOVED, ""))
        self.tally["groups deleted"] += 1


def latest_of_keys(records: Sequence[Stored]) -> list[Stored]:
    return sorted({key_of(one.value): one for one in records}.values())


class Restore:
    """A restore of the topic of a case, with drawn options; its groups are set by it, or later."""

    def __init__(self, case: Case) -> None:
        self.case, self.draw, self.hands = case, case.draw, case.hands
        with_records = [life for (life, _), records in case.history.archived.items() if records]
        self.newest = max(with_records, default=case.lives - 1)  # which is restored unless a life is named
        self.life = self.draw.randint(0, self.newest)
        must_rename = case.fate == "kept"
        self.target = f"{case.topic}.back" if must_rename or self.draw.random() < 0.4 else case.topic
        self.as_of_ms = ALWAYS
        self.asked: list[str] = []
        self.restored: list[list[Stored]] = [
            sorted(case.history.archived[self.life, number].values()) for number in range(case.partitions)
        ]
        self.stands: list[list[bytes]] = [[] for _ in range(case.partitions)]  # all values of the target, from offset 0
        self.log_starts = [0] * case.partitions
        self.renamed: dict[str, str] = {}

    def run(self) -> None:
        self.choose_records()
        self.prepare_target()
        if self.case.drawn.by_spark and self.draw.random() < 0.5:
            self.asked.append("--latest-per-key")
            self.restored = [latest_of_keys(some) for some in self.restored]
        for stands, restored in zip(self.stands, self.restored, strict=True):
            stands.extend(one.value for one in restored)
        self.before = [len(stands) - len(restored) for stands, restored in zip(self.stands, self.restored, strict=True)]
        self.case.site.write_config(self.hands.bootstrap, self.case.topic)
        self.case.site.write_target(self.hands.bootstrap)
        plan = self.restore_at_once() if self.draw.random() < 0.5 else self.restore_and_apply()
        self.write_on(0.4)
        self.check(plan)

    def choose_records(self) -> None:
        case = self.case
        if case.drawn.by_spark:
            self.choose_by_spark()
        match self.draw.choice(["all", "all", "window", "window", "offsets", "partitions"]):
            case "window":
                self.choose_window()
            case "offsets":
                chosen = self.draw.sample(range(case.partitions), self.draw.randint(1, case.partitions))
                self.keep_offsets({number: self.some_range(number) for number in chosen})
            case "partitions":
                chosen = sorted(self.draw.sample(range(case.partitions), self.draw.randint(1, case.partitions)))
                self.asked += ["--partitions", ",".join(map(str, chosen))]
                self.restored = [some if number in chosen else [] for number, some in enumerate(self.restored)]
            case _:
                pass

    def choose_by_spark(self) -> None:
        """What a predicate takes. Of each key the last one is taken when all else is chosen (`latest_of_keys`)."""
        divisor = self.draw.randint(2, 4)
        self.asked += ["--where", f"offset % {divisor} = 1 OR value LIKE '%7'"]
        self.restored = [
            [one for one in some if one.offset % divisor == 1 or one.value.endswith(b"7")] for some in self.restored
        ]

    def choose_window(self) -> None:
        times = sorted(one.timestamp for some in self.restored for one in some) or [moment_ms()]
        from_ms, until_ms = -1, ALWAYS
        if self.draw.random() < 0.6:
            from_ms = self.draw.choice(times[: len(times) // 2 + 1])
            self.asked += ["--from", str(from_ms)]
        if from_ms < 0 or self.draw.random() < 0.6:
            until_ms = self.draw.choice([at for at in [*self.case.moments, times[-1]] if at >= from_ms])
            self.asked += ["--until", str(until_ms)]
        self.as_of_ms = until_ms
        self.restored = [[one for one in some if from_ms <= one.timestamp <= until_ms] for some in self.restored]

    def some_range(self, partition: int) -> tuple[int, int]:
        end = max((one.offset for one in self.restored[partition]), default=0) + 3
        first = self.draw.randint(0, end)
        return first, self.draw.choice([ALWAYS, self.draw.randint(first, end)])

    def keep_offsets(self, ranges: Mapping[int, tuple[int, int]]) -> None:
        texts = [f"{number}:{first}-{'' if last == ALWAYS else last}" for number, (first, last) in ranges.items()]
        self.asked += ["--offsets", ",".join(texts)]
        nothing = (1, 0)
        self.restored = [
            [one for one in some if ranges.get(number, nothing)[0] <= one.offset <= ranges.get(number, nothing)[1]]
            for number, some in enumerate(self.restored)
        ]

    def prepare_target(self) -> None:
        """Sometimes it is there, and has records."""
        if self.draw.random() < 0.15:
            self.case.create(self.target, {})
            self.write_on(0.7)
            self.asked.append("--into-existing")
        self.case.made.add(self.target)

    def write_on(self, share: float) -> None:
        """As producers do that do not wait for groups to be set."""
        for number, stands in enumerate(self.stands):
            if self.draw.random() < share:
                values = [b"other-%d-%d" % (number, len(stands) + at) for at in range(self.draw.randint(1, 3))]
                self.case.told(f"others write {values}")
                now_ms = moment_ms()
                self.hands.write(self.target, [(number, Stored(-1, now_ms, value)) for value in values])
                stands.extend(values)

    # --- commands

    def restore_at_once(self) -> Mapping[str, Any]:
        self.rename_a_group()
        plan: Mapping[str, Any] = self.typed("restore", *self.options(), *self.of_groups())["groups"]["plan"]
        return plan

    def restore_and_apply(self) -> Mapping[str, Any]:
        self.typed("restore", *self.options())
        self.write_on(0.5)
        self.delete_some_records()
        self.as_of_ms = self.draw.choice([*self.case.moments, ALWAYS, ALWAYS])
        self.rename_a_group()
        as_of = [] if self.as_of_ms == ALWAYS else ["--as-of", str(self.as_of_ms)]
        command = ["groups", "apply", "--restore", "mine", *as_of, *self.of_groups()]
        plan: Mapping[str, Any] = self.typed(*command)["plan"]
        if self.draw.random() < 0.2:  # which changes nothing
            plan = self.typed(*command)["plan"]
        return plan

    def options(self) -> Sequence[str]:
        case = self.case
        life = ["--life", str(self.life)] if self.life < self.newest or self.draw.random() < 0.3 else []
        rename = [] if self.target == case.topic else ["--rename", f"{case.topic}={self.target}"]
        return ["--topics", case.topic, "--id", "mine", *life, *rename, *self.asked]

    def of_groups(self) -> Sequence[str]:
        renames = [word for old, new in self.renamed.items() for word in ("--rename-group", f"{old}={new}")]
        return ["--groups", rf"{self.case.topic}\..*", *renames]

    def rename_a_group(self) -> None:
        spoke = [group for group in self.case.groups if self.case.history.spoke(group, self.as_of_ms)]
        if spoke and self.draw.random() < 0.2:
            group = self.draw.choice(spoke)
            self.renamed[group] = f"{group}.renamed"

    def delete_some_records(self) -> None:
        for number, stands in enumerate(self.stands):
            if stands and self.draw.random() < 0.25:
                self.log_starts[number] = self.draw.randint(0, len(stands))
                self.case.told(f"delete the records of the target's {number} below {self.log_starts[number]}")
                self.hands.delete_records(self.target, number, self.log_starts[number])

    def typed(self, *words: str) -> Mapping[str, Any]:
        site, out, complaints = self.case.site, io.StringIO(), io.StringIO()
        files = ["-c", str(site.folder / "archive.yaml"), "--target", str(site.folder / "target.yaml")]
        self.case.told(f"archiver {' '.join(words)}")
        if self.case.drawn.by_spark:
            done = site.run(*words, "--format", "json", *files)
            code, _, _ = done.returncode, out.write(done.stdout), complaints.write(done.stderr)
        else:
            with redirect_stdout(out), redirect_stderr(complaints):
                code = main([*words, "--format", "json", *files])
        self.case.told(f"ended with {code}: {complaints.getvalue()}")
        found: Mapping[str, Any] = json.loads(out.getvalue())
        plan = (found.get("groups") or {}).get("plan") if words[0] == "restore" else found["plan"]
        assert code == (3 if plan is not None and self.not_told(plan) else 0)
        return found

    # --- what must be so

    def not_told(self, plan: Mapping[str, Any]) -> set[tuple[str, int]]:
        """Positions that the archive does not tell, as (group, partition)."""
        return {
            (group["archived_group"], row["partition"])
            for group in plan["groups"]
            for row in group["not_set"]
            if row["reason"] in NOT_TOLD
        }

    def check(self, plan: Mapping[str, Any]) -> None:
        case = self.case
        not_told = self.not_told(plan)
        assert case.lives > 1 or not not_told  # a log without a hole, and one topic: all is known
        case.tally["not told"] += len(not_told)
        case.tally += Counter(
            remark["kind"] for group in plan["groups"] for row in group["positions"] for remark in row["remarks"]
        )
        for group in case.groups:
            target_group = self.renamed.get(group, group)
            found = self.hands.next_records(target_group, self.target, case.partitions)
            known = {number for number in range(case.partitions) if (group, number) not in not_told}
            expected = {number: self.expected(group, number) for number in known}
            case.told(f"{target_group} reads {found}, and is to read {expected}")
            assert found == {number: one for number, one in expected.items() if one is not None}
            case.tally["positions"] += len(found)
            case.tally["without a commit"] += sum(one is None for one in expected.values())

    def expected(self, group: str, partition: int) -> tuple[str, bytes | None] | None:
        """What is read next, behind its metadata; None: the group has no position there."""
        said = self.case.history.position(group, partition, self.life, self.as_of_ms)
        if said is None:
            return None
        index = self.before[partition] + next_index(self.restored[partition], said.offset)
        values = self.stands[partition][max(index, self.log_starts[partition]) :]
        return said.metadata, values[0] if values else None
