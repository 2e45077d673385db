"""Every state in which a restore may find its target, and what each way to restore makes of it: the table of docs/targets.md."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from itertools import product
from typing import Final

from tests.support.brokers import REPOSITORY
from tests.support.pages import with_table

PAGE: Final = REPOSITORY / "docs" / "targets.md"
MARK: Final = "targets"


class Cluster(StrEnum):
    """Where the target is."""

    ORDINARY = auto()
    GUARDED = auto()  # the same brokers, as a user whose rights the ACLs tell
    POLICIES = auto()  # no batches above 20 MiB, no topic with retention of more than a week; by default it is an hour
    OLD_FORMAT = auto()  # 2.8, and topics are written as before 0.11
    WITHOUT_IDS = auto()  # 2.8, with the protocol of 2.7


class Mode(Enum):
    """A way to restore, and how its column is headed."""

    PLAIN = "no option"
    INTO_EXISTING = "`--into-existing`"
    PURGE = "`--purge-target`"
    REPARTITION = "`--repartition`"


class Source(StrEnum):
    """The archived topic."""

    OLD = auto()  # its records are more than a year old
    YOUNG = auto()  # they are of today


class Right(Enum):
    """What an ACL lets a user do with the target; Describe comes with each of the first five."""

    READ = auto()
    WRITE = auto()
    CREATE = auto()
    DELETE = auto()
    ALTER_CONFIGS = auto()
    DESCRIBE_CONFIGS = auto()


EVERYTHING: Final = frozenset(Right)


class Story(Enum):
    """How a target came to be what it is, where that takes more than creating and filling it."""

    # Killed; with --into-existing and --purge-target a stranger's topic was there first, where topics have ids.
    CREATED = auto()  # before it was noted what is planned for it
    HALF_RESTORED = auto()
    RESTORED = auto()
    BEGUN_ELSEWHERE = auto()  # half restored by another restore
    ARCHIVED = auto()  # it is the archived topic itself
    ARCHIVED_IN_PART = auto()
    REPLACED = auto()  # it has the name of the archived topic, and the archive does not know it
    RECREATED = auto()  # it is a later life of the archived topic, and the life before is restored
    RECREATED_ARCHIVED_IN_PART = auto()


@dataclass(frozen=True, slots=True)
class Standing:
    """A topic that somebody else has created: with so many records in each partition, and these configs besides the usual ones."""

    records: int = 0
    configs: Mapping[str, str] = field(default_factory=dict)
    partitions: int | None = None  # None: as many as are wanted


EMPTY: Final = Standing()
FILLED: Final = Standing(4)


@dataclass(frozen=True, slots=True)
class Refusal:
    """What the restore says, as a regular expression, and in few words what to do next."""

    says: str
    advice: str
    exit_code: int = 2


Verdict = Refusal | None  # None: it restores


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A row of the table; `verdicts` are in the order of the modes."""

    name: str
    verdicts: tuple[Verdict, Verdict, Verdict, Verdict]
    standing: Standing | None = None
    story: Story | None = None
    cluster: Cluster = Cluster.ORDINARY
    source: Source = Source.OLD
    rights: frozenset[Right] = EVERYTHING

    @property
    def slug(self) -> str:
        """The name as a part of a topic's."""
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower())

    @property
    def is_of_the_archive(self) -> bool:
        """Whether the target has the name of what was archived."""
        return self.story not in {None, Story.CREATED, Story.HALF_RESTORED, Story.RESTORED, Story.BEGUN_ELSEWHERE}


def without(*rights: Right) -> frozenset[Right]:
    return EVERYTHING - set(rights)


RESTORES: Final = None
NOT_EMPTY: Final = Refusal(r"is not empty", "not empty")
BEGUN_ELSEWHERE: Final = Refusal(r"was begun by restore another, which is not done", "go on with that restore first")
UNARCHIVED: Final = Refusal(r"up to 1 record of it is not in the archive", "`backup --until-end` first")
TOO_SMALL: Final = Refusal(r"max\.message\.bytes=1000 is too small", "raise `max.message.bytes` first")
OTHER_SHAPE: Final = Refusal(r"has 5 partitions", "`--repartition 5`, or `--rename`")
COMPACTED: Final = Refusal(r"cleanup\.policy=compact would drop", "change `cleanup.policy` first")
EXPIRING: Final = Refusal(r"retention\.ms=\d+ would have the brokers delete 9 of the 9", "raise `retention.ms` first")
LIMITED: Final = Refusal(r"retention\.bytes=500 would have the brokers delete", "raise `retention.bytes` first")
NOT_SIZED: Final = Refusal(r"grant this user Describe on the cluster", "grant Describe on the cluster")
REPLACED_TIMES: Final = Refusal(r"LogAppendTime would replace the timestamps", "set `CreateTime` first")
POLICY: Final = Refusal(r"the cluster refuses retention\.ms=-1", "`--retention largest`, or have it allowed")
OLD_FORMAT: Final = Refusal(r"is a message format without headers", "set `message.format.version` first")
NO_ID: Final = Refusal(r"has no topic id, and is not purged", "delete it, and restore again")


def lacks(right: str, exit_code: int = 2) -> Refusal:
    return Refusal(rf"grant this user {right}", f"grant {right.partition(' ')[0]}", exit_code)


READ, WRITE, CREATE, DELETE = (lacks(f"{right} on topic") for right in ("Read", "Write", "Create", "Delete"))
ALTER_CONFIGS, DESCRIBE_CONFIGS = lacks("AlterConfigs on topic"), lacks("DescribeConfigs on topic", 1)
NONE: Final = lacks("Describe on topic", 1)

STATES: Final = (
    State(name="absent", verdicts=(RESTORES, RESTORES, RESTORES, RESTORES)),
    State(name="empty", standing=EMPTY, verdicts=(RESTORES, RESTORES, RESTORES, RESTORES)),
    State(name="ours, just created", story=Story.CREATED, verdicts=(RESTORES, RESTORES, RESTORES, RESTORES)),
    State(name="ours, half restored", story=Story.HALF_RESTORED, verdicts=(RESTORES, RESTORES, RESTORES, RESTORES)),
    State(name="ours, restored", story=Story.RESTORED, verdicts=(RESTORES, RESTORES, RESTORES, RESTORES)),
    State(
        name="another restore's, half restored",
        story=Story.BEGUN_ELSEWHERE,
        verdicts=(BEGUN_ELSEWHERE, BEGUN_ELSEWHERE, RESTORES, BEGUN_ELSEWHERE),
    ),
    State(name="strangers'", standing=FILLED, verdicts=(NOT_EMPTY, RESTORES, RESTORES, NOT_EMPTY)),
    *(
        State(
            name=f"{told}, with 5 partitions",
            standing=Standing(records, partitions=5),
            verdicts=(OTHER_SHAPE, OTHER_SHAPE, RESTORES, OTHER_SHAPE),
        )
        for told, records in (("empty", 0), ("strangers'", 4))
    ),
    State(
        name="the archived topic itself",
        story=Story.ARCHIVED,
        verdicts=(NOT_EMPTY, RESTORES, RESTORES, NOT_EMPTY),
    ),
    State(
        name="the archived topic itself, not all of it archived",
        story=Story.ARCHIVED_IN_PART,
        verdicts=(NOT_EMPTY, RESTORES, UNARCHIVED, NOT_EMPTY),
    ),
    State(
        name="another topic of its name, which was never archived",
        story=Story.REPLACED,
        verdicts=(NOT_EMPTY, RESTORES, RESTORES, NOT_EMPTY),
    ),
    State(
        name="a later life of it, for `--life 0`",
        story=Story.RECREATED,
        verdicts=(NOT_EMPTY, RESTORES, RESTORES, NOT_EMPTY),
    ),
    State(
        name="a later life of it, not all of that archived",
        story=Story.RECREATED_ARCHIVED_IN_PART,
        verdicts=(NOT_EMPTY, RESTORES, UNARCHIVED, NOT_EMPTY),
    ),
    *(
        state
        for told, configs, refusal in (
            ("batches too small", {"max.message.bytes": "1000"}, TOO_SMALL),
            ("compacted", {"cleanup.policy": "compact"}, COMPACTED),
            ("expiring by age", {"retention.ms": "3600000"}, EXPIRING),
            ("expiring by size", {"retention.bytes": "500"}, LIMITED),
            ("with LogAppendTime", {"message.timestamp.type": "LogAppendTime"}, REPLACED_TIMES),
        )
        for state in (
            State(
                name=f"empty, {told}",
                standing=Standing(configs=configs),
                verdicts=(RESTORES, refusal, RESTORES, RESTORES),
            ),
            State(
                name=f"strangers', {told}",
                standing=Standing(4, configs),
                verdicts=(NOT_EMPTY, refusal, RESTORES, NOT_EMPTY),
            ),
        )
    ),
    *(
        State(name=f"{told}, policies that cost nothing", standing=standing, cluster=Cluster.POLICIES, source=Source.YOUNG, verdicts=verdicts)
        for told, standing, verdicts in (
            ("absent", None, (RESTORES, RESTORES, RESTORES, RESTORES)),
            ("empty", EMPTY, (RESTORES, RESTORES, RESTORES, RESTORES)),
            ("strangers'", FILLED, (NOT_EMPTY, RESTORES, RESTORES, NOT_EMPTY)),
        )
    ),
    *(
        State(name=f"{told}, policies that cost records", standing=standing, cluster=Cluster.POLICIES, verdicts=verdicts)
        for told, standing, verdicts in (
            ("absent", None, (POLICY, POLICY, POLICY, POLICY)),
            ("empty", EMPTY, (POLICY, EXPIRING, POLICY, POLICY)),
            ("strangers'", FILLED, (NOT_EMPTY, EXPIRING, POLICY, NOT_EMPTY)),
        )
    ),
    *(
        State(name=f"{told}, in an old message format", standing=standing, cluster=Cluster.OLD_FORMAT, verdicts=verdicts)
        for told, standing, verdicts in (
            ("absent", None, (OLD_FORMAT, OLD_FORMAT, OLD_FORMAT, OLD_FORMAT)),
            ("empty", EMPTY, (OLD_FORMAT, OLD_FORMAT, OLD_FORMAT, OLD_FORMAT)),
            ("strangers'", FILLED, (NOT_EMPTY, OLD_FORMAT, OLD_FORMAT, NOT_EMPTY)),
        )
    ),
    *(
        State(name=f"{told}, without topic ids", standing=standing, story=story, cluster=Cluster.WITHOUT_IDS, verdicts=verdicts)
        for told, standing, story, verdicts in (
            ("absent", None, None, (RESTORES, RESTORES, RESTORES, RESTORES)),
            ("empty", EMPTY, None, (RESTORES, RESTORES, NO_ID, RESTORES)),
            ("ours, just created", None, Story.CREATED, (RESTORES, RESTORES, RESTORES, RESTORES)),
            ("ours, half restored", None, Story.HALF_RESTORED, (RESTORES, RESTORES, RESTORES, RESTORES)),
            ("strangers'", FILLED, None, (NOT_EMPTY, RESTORES, NO_ID, NOT_EMPTY)),
        )
    ),
    *(
        State(name=f"{told}, {locked}", standing=standing, cluster=Cluster.GUARDED, rights=rights, verdicts=verdicts)
        for told, standing, locked, rights, verdicts in (
            ("absent", None, "no right to Create", without(Right.CREATE), (CREATE, CREATE, CREATE, CREATE)),
            ("absent", None, "no right to Write", without(Right.WRITE), (WRITE, WRITE, WRITE, WRITE)),
            ("absent", None, "no right to Read", without(Right.READ), (READ, READ, READ, READ)),
            ("absent", None, "no right to Delete", without(Right.DELETE), (RESTORES, RESTORES, RESTORES, RESTORES)),
            ("absent", None, "no right to AlterConfigs", without(Right.ALTER_CONFIGS), (ALTER_CONFIGS, ALTER_CONFIGS, ALTER_CONFIGS, ALTER_CONFIGS)),
            ("empty", EMPTY, "no right at all", frozenset[Right](), (NONE, NONE, NONE, NONE)),
            ("empty", EMPTY, "no right to Create", without(Right.CREATE), (RESTORES, RESTORES, CREATE, RESTORES)),
            ("empty", EMPTY, "no right to Write", without(Right.WRITE), (WRITE, WRITE, WRITE, WRITE)),
            ("empty", EMPTY, "no right to Read", without(Right.READ), (READ, READ, READ, READ)),
            ("empty", EMPTY, "no right to Delete", without(Right.DELETE), (RESTORES, RESTORES, DELETE, RESTORES)),
            ("empty", EMPTY, "no right to AlterConfigs", without(Right.ALTER_CONFIGS), (ALTER_CONFIGS, RESTORES, ALTER_CONFIGS, ALTER_CONFIGS)),
            ("empty", EMPTY, "no right to any configs", without(Right.ALTER_CONFIGS, Right.DESCRIBE_CONFIGS), (DESCRIBE_CONFIGS, DESCRIBE_CONFIGS, ALTER_CONFIGS, DESCRIBE_CONFIGS)),
            ("strangers'", FILLED, "no right to Create", without(Right.CREATE), (NOT_EMPTY, RESTORES, CREATE, NOT_EMPTY)),
            ("strangers'", FILLED, "no right to Write", without(Right.WRITE), (NOT_EMPTY, WRITE, WRITE, NOT_EMPTY)),
            ("strangers'", FILLED, "no right to Read", without(Right.READ), (NOT_EMPTY, READ, READ, NOT_EMPTY)),
            ("strangers'", FILLED, "no right to Delete", without(Right.DELETE), (NOT_EMPTY, RESTORES, DELETE, NOT_EMPTY)),
            ("strangers'", FILLED, "no right to AlterConfigs", without(Right.ALTER_CONFIGS), (NOT_EMPTY, RESTORES, ALTER_CONFIGS, NOT_EMPTY)),
            ("strangers' with `retention.bytes`", Standing(4, {"retention.bytes": "10000000"}), "no right to Describe the cluster", EVERYTHING, (NOT_EMPTY, NOT_SIZED, RESTORES, NOT_EMPTY)),
        )
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Case:
    """A state and a mode."""

    state: State
    mode: Mode

    @property
    def verdict(self) -> Verdict:
        return self.state.verdicts[list(Mode).index(self.mode)]

    @property
    def traits(self) -> Iterator[tuple[object, ...]]:
        """What a restore comes upon, and what comes of it."""
        state, verdict, restores = self.state, self.verdict, self.verdict is None
        has_records = state.standing is not None and state.standing.records > 0
        yield (state.name,)
        yield state.cluster, verdict
        yield state.rights, verdict
        yield state.story, verdict, self.mode if restores else None
        yield state.cluster is Cluster.WITHOUT_IDS, state.story, has_records, restores
        # A right that is missing is missing whatever the way.
        yield self.mode, None if state.cluster is Cluster.GUARDED else verdict

    @property
    def target(self) -> str:
        return f"{self.state.slug}.{self.mode.name.lower()}"

    @property
    def source(self) -> str:
        return self.target if self.state.is_of_the_archive else str(self.state.source)

    @property
    def partitions(self) -> int:
        """Of the target: what is archived has two."""
        return 3 if self.mode is Mode.REPARTITION and not self.state.is_of_the_archive else 2

    @property
    def options(self) -> list[str]:
        """What is typed for it."""
        of_mode = {
            Mode.PLAIN: [],
            Mode.INTO_EXISTING: ["--into-existing"],
            Mode.PURGE: ["--purge-target"],
            Mode.REPARTITION: ["--repartition", str(self.partitions)],
        }
        is_recreated = self.state.story in {Story.RECREATED, Story.RECREATED_ARCHIVED_IN_PART}
        named = [] if self.source == self.target else ["--rename", f"{self.source}={self.target}"]
        return ["--topics", self.source, *named, *of_mode[self.mode], *(["--life", "0"] if is_recreated else [])]

    def __str__(self) -> str:
        return self.target


CASES: Final = tuple(Case(state, mode) for state, mode in product(STATES, Mode))


def _sample() -> Iterator[Case]:
    """Few cases that have each trait of all: always the one with the most that no earlier one has."""
    left = [(case, set(case.traits)) for case in CASES]
    while True:
        chosen, traits = max(left, key=lambda one: len(one[1]))
        if not traits:
            return
        yield chosen
        had = set(traits)
        for _, others in left:
            others.difference_update(had)


SAMPLE: Final = tuple(_sample())


def table(states: Sequence[State] = STATES) -> str:
    """For docs/targets.md."""
    return "\n".join(_lines(states))


def _lines(states: Sequence[State]) -> Iterator[str]:
    yield " | ".join(["| the target topic", *(mode.value for mode in Mode)]) + " |"
    yield "| --- " * (1 + len(Mode)) + "|"
    names = defaultdict[tuple[str, ...], list[str]](list)  # by what comes of them
    for state in states:
        names[tuple(map(_told, state.verdicts))].append(state.name)
    for cells, alike in names.items():
        yield " | ".join([f"| {'; '.join(alike)}", *cells]) + " |"


def _told(verdict: Verdict) -> str:
    return "restores" if verdict is None else verdict.advice


def main() -> None:
    """Write the table again."""
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), MARK, table()), encoding="utf-8")


if __name__ == "__main__":
    main()
