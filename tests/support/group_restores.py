"""Drawn restores of drawn cases (group_cases): what is restored, when groups are set, and what real consumers of them read next."""

import io
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, Final

from archiver.cli.main import main
from tests.support.foreign_reader import s3_client
from tests.support.group_cases import Case
from tests.support.group_histories import ALWAYS, Stored, key_of, moment_ms, next_index

NOT_TOLD: Final = {"unknown", "ambiguous"}


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
        is_empty = words[0] == "restore" and not found["records"] and self.has_objects()
        assert code == (3 if is_empty or (plan is not None and self.not_told(plan)) else 0)
        return found

    def has_objects(self) -> bool:
        """Whether the archive has any object of the topic, of any life."""
        bucket = self.case.site.bucket
        listed = s3_client(bucket).list_objects_v2(Bucket=bucket.name, Prefix=f"topics/{self.case.topic}", MaxKeys=1)
        return bool(listed["KeyCount"])

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
            unasked = {number for number in range(case.partitions) if self.is_before_the_end(group, number)}
            assert not unasked & found.keys()  # nothing of their partitions was restored behind what was there
            known = {number for number in range(case.partitions) if (group, number) not in not_told} - unasked
            found = {number: one for number, one in found.items() if number not in self.trailing(group)}
            known -= self.trailing(group)
            expected = {number: self.expected(group, number) for number in known}
            case.told(f"{target_group} reads {found}, and is to read {expected}")
            assert found == {number: one for number, one in expected.items() if one is not None}
            case.tally["positions"] += len(found)
            case.tally["without a commit"] += sum(one is None for one in expected.values())

    def is_before_the_end(self, group: str, partition: int) -> bool:
        """Whether a group had records to read in a partition of which nothing was restored, and the target has others: it would skip them."""
        said = self.case.history.position(group, partition, self.life, self.as_of_ms)
        archived = sorted(self.case.history.archived[self.life, partition].values())
        is_untouched = not self.restored[partition] and self.before[partition] > 0
        return is_untouched and said is not None and next_index(archived, said.offset) < len(archived)

    def trailing(self, group: str) -> set[int]:
        """Such partitions in which only markers were behind the group: where the archive ends before them, it counts as at the end."""
        found = set()
        for number in range(self.case.partitions):
            said = self.case.history.position(group, number, self.life, self.as_of_ms)
            is_untouched = not self.restored[number] and self.before[number] > 0
            if is_untouched and said is not None and not self.is_before_the_end(group, number):
                found |= {number} if said.offset < self.case.history.ends[self.life, number] else set()
        return found

    def expected(self, group: str, partition: int) -> tuple[str, bytes | None] | None:
        """What is read next, behind its metadata; None: the group has no position there."""
        said = self.case.history.position(group, partition, self.life, self.as_of_ms)
        if said is None:
            return None
        index = self.before[partition] + next_index(self.restored[partition], said.offset)
        values = self.stands[partition][max(index, self.log_starts[partition]) :]
        return said.metadata, values[0] if values else None
