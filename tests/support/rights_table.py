"""Which rights each command needs, and what it says without one of them: the table of docs/reference.md, which a test tries."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from tests.support.brokers import REPOSITORY
from tests.support.pages import with_table

PAGE: Final = REPOSITORY / "docs" / "reference.md"
MARK: Final = "rights"


class Right(Enum):
    """As the table names it."""

    READ_TOPICS = "Read on topics"
    DESCRIBE_TOPICS = "Describe on topics"
    TOPIC_CONFIGS = "DescribeConfigs on topics"
    READ_OFFSETS = "Read on `__consumer_offsets`"
    OFFSETS_CONFIGS = "DescribeConfigs on `__consumer_offsets`"
    DESCRIBE_GROUPS = "Describe on groups"
    READ_GROUPS = "Read on groups"
    DELETE_GROUPS = "Delete on groups"
    READ_COORDINATION = "Read on `_compacted_log_backup_coordination`"
    WRITE_COORDINATION = "Write on `_compacted_log_backup_coordination`"
    CREATE_COORDINATION = "Create on `_compacted_log_backup_coordination`"
    READ_INSTANCE = "Read on the instance's group"
    READ_GROUP = "Read on the archive's group"
    DESCRIBE_GROUP = "Describe on the archive's group"
    DESCRIBE = "Describe on targets"
    CREATE = "Create on targets"
    READ = "Read on targets"
    WRITE = "Write on targets"
    DELETE = "Delete on targets"
    ALTER_CONFIGS = "AlterConfigs on targets"
    DESCRIBE_CONFIGS = "DescribeConfigs on targets"
    CREATE_LIKE = "Create on `TARGET-*`"
    CREATE_ANY = "Create on the cluster"
    CLUSTER = "Describe on the cluster"
    CLUSTER_CONFIGS = "DescribeConfigs on the cluster"
    ALTER_CLUSTER = "Alter on the cluster"
    ALTER_CLUSTER_CONFIGS = "AlterConfigs on the cluster"
    LIST = "ListBucket"
    GET = "GetObject"
    PUT = "PutObject"
    PUT_NOTES = "PutObject on `control/restores/`"
    PUT_FOLDS = "PutObject on `control/group-folds/`"
    PUT_HOLDS = "PutObject on `control/holds/`"
    PUT_RUNS = "PutObject on `control/runs/`"
    PUT_ROLES = "PutObject on `control/roles/`"
    PUT_TOPICS = "PutObject on `control/topics/`"
    PUT_DRILLS = "PutObject on `control/drills/`"
    PUT_SWEEPS = "PutObject on `control/`"
    DELETE_TOPICS = "DeleteObject on `topics/`"
    DELETE_COPIES = "DeleteObject on `compacted/`"
    DELETE_MOMENTS = "DeleteObject on `control/moments/`"
    DELETE_CONTROL = "DeleteObject on `control/`"
    TAG = "PutObjectTagging"
    LIST_SECOND = "ListBucket on the second archive"
    GET_SECOND = "GetObject on the second archive"
    PUT_SECOND = "PutObject on the second archive"

    @property
    def is_of_store(self) -> bool:
        return self in _OF_STORE


_OF_STORE: Final = {
    Right.LIST, Right.GET, Right.PUT, Right.PUT_NOTES, Right.PUT_FOLDS,
    Right.PUT_HOLDS, Right.PUT_RUNS, Right.PUT_ROLES, Right.PUT_TOPICS, Right.PUT_DRILLS, Right.PUT_SWEEPS, Right.DELETE_TOPICS, Right.DELETE_COPIES, Right.DELETE_MOMENTS, Right.DELETE_CONTROL, Right.TAG,
    Right.LIST_SECOND, Right.GET_SECOND, Right.PUT_SECOND,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Loss:
    """What comes of it when a right is missing: a line that matches, and whether it goes on. `instead` tells the table what it does then."""

    says: str
    exit_code: int = 1
    instead: str = ""

    @property
    def is_borne(self) -> bool:
        return bool(self.instead)


def goes_on(says: str, instead: str) -> Loss:
    return Loss(says, 0, instead)


class Kind(Enum):
    """What a command is tried on, and how it is seen to have done its work."""

    READER = "reads the archive"
    FOLD = "folds what an archive of its own has of positions"
    BACKUP = "fills an archive of its own"
    SERVICE = "fills one until it is stopped"
    INSTANCE = "keeps copies in an archive of its own, until it is stopped"
    COPIED = "tells how copies in an archive of its own stand"
    CLEARED = "clears copies in an archive of its own"
    HOLD = "holds records of an archive of its own"
    HELD = "holds what it has held already"
    GONE = "accepts that a topic of an archive of its own is gone"
    COMPARED = "compares a copy, in an archive of its own, that has missed a deletion"
    SWEEP = "sweeps an archive of its own"
    SAME = "compares notes of its own, in which the cluster lacks nothing"
    LACKING = "adds an ACL and a quota of notes of its own"
    IMPORT = "imports files into an archive of its own"
    RESTORE = "fills a topic of its own"
    DRILL = "fills topics of its own, and deletes them"
    TRANSLATION = "asks for a topic that was restored before"
    APPLICATION = "sets a group of its own in such a topic"
    ROLLBACK = "sets a group of its own back"


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A row. `typed` may have {object} and others of the stage; that of a restore, or for one, comes with its topic and target."""

    name: str
    typed: tuple[str, ...]
    needs: Mapping[Right, Loss]
    kind: Kind = Kind.READER
    backup: Mapping[str, object] = field(default_factory=dict)  # of its configuration
    storage: Mapping[str, object] = field(default_factory=dict)
    standing: Mapping[str, str] | None = None  # the configs of a target that is there, with a record; None: it is not
    has_spark: bool = False  # a real one
    is_brief: bool = False  # its cases are tried in each run, but for losses that another one tries
    exit_code: int = 0  # of a run that has all rights


def denied(operation: str, right: str) -> Loss:
    return Loss(rf"{operation} was denied; grant {right} on ")


LIST: Final = Loss(r"ListObjectsV2 was denied; grant s3:ListBucket on bucket \S+ for .*/\*")
GET: Final = Loss(r"\.(data|json): (Get|Head)Object was denied; grant s3:GetObject on it")
PUT: Final = denied(r"/control/probe/\d+\.json: PutObject", "s3:PutObject")
READING: Final = {Right.LIST: LIST, Right.GET: GET}
WRITING: Final = {**READING, Right.PUT: PUT}

RUN_NOTE: Final = {
    Right.PUT_RUNS: goes_on(
        r"/control/runs/\S+: PutObject was denied; grant s3:PutObject on ", "leaves no note of its run"
    )
}
VERIFYING: Final = {**READING, **RUN_NOTE}

METADATA: Final = {
    Right.CLUSTER: goes_on(
        r"the cluster's acls are not archived, .*: ACLs could not be read: .*grant this user Describe on the cluster",
        "keeps no ACLs and SCRAM users",
    ),
    Right.CLUSTER_CONFIGS: goes_on(
        r"the cluster's quotas are not archived, .*grant this user DescribeConfigs on the cluster",
        "keeps no quotas and configs of brokers",
    ),
}
HIDDEN: Final = Loss(r"topic {topic}: .*grant this user Describe on topic {topic} \(and Read, to archive it\)")
ARCHIVING: Final = {
    Right.READ_TOPICS: HIDDEN,
    Right.TOPIC_CONFIGS: goes_on(
        r"configs of topic orders could not be read: .*grant this user DescribeConfigs on topic orders;",
        "keeps no configs",
    ),
    **METADATA,
    **WRITING,
}
SWEEPING: Final = {
    **READING,
    Right.PUT_SWEEPS: denied(r"/control/sweeps/limits/\S+: PutObject", "s3:PutObject"),
    Right.DELETE_TOPICS: Loss(
        r"\.data: DeleteObjects was denied; grant s3:DeleteObject on ", 1, "deletes nothing (exit code 1)"
    ),
    Right.DELETE_CONTROL: Loss(
        r"/control/restores/\S+: DeleteObjects was denied; grant s3:DeleteObject on ",
        1,
        "deletes no notes (exit code 1)",
    ),
}
NO_GROUPS: Final = goes_on(
    r"whether there are others is not known; grant this user Describe on the groups",
    "snapshots omit these groups",
)

NO_OFFSETS_CONFIGS: Final = goes_on(
    r"grant this user DescribeConfigs on topic __consumer_offsets;", "keeps no configs of it"
)


def on_target(right: str, exit_code: int = 2) -> Loss:
    return Loss(rf"grant this user {right} on topic {{target}}(?![\w.-])", exit_code)


NOTES: Final = {
    **READING,
    Right.PUT_NOTES: denied(r"/control/restores/\S+: PutObject", "s3:PutObject"),
    **RUN_NOTE,
}
BROKERS: Final = {
    Right.CLUSTER_CONFIGS: goes_on(
        r"does not tell its configs; .*; grant this user DescribeConfigs on the cluster",
        "checks neither `delete.topic.enable` nor `socket.request.max.bytes`",
    )
}
FILLING: Final = {Right.READ: on_target("Read"), Right.WRITE: on_target("Write")}
CREATING: Final = {
    Right.CREATE: on_target("Create"),
    **FILLING,
    Right.ALTER_CONFIGS: on_target("AlterConfigs"),
    **BROKERS,
}
APPENDING: Final = {**FILLING, Right.DESCRIBE_CONFIGS: on_target("DescribeConfigs", 1), **BROKERS, **NOTES}
PURGING: Final = {
    Right.DELETE: on_target("Delete"),
    **FILLING,
    Right.ALTER_CONFIGS: on_target("AlterConfigs"),
    Right.DESCRIBE_GROUPS: goes_on(
        r"which go with it, is not known: this user may not describe all groups; grant Describe on the groups",
        "does not name affected groups",
    ),
    **BROKERS,
    **NOTES,
}
AGAIN: Final = r"could not be created again; grant this user Create on topic {target}, or on the cluster"
NO_EXPIRY: Final = goes_on('"positions_expire_after_ms": null', "shows the default of `offsets.retention.minutes`")
SETTING_BACK: Final = {
    Right.READ: on_target("Describe", 1),
    Right.READ_GROUPS: Loss(r"could not be set: .*; grant this user Read on group \S+, and Read on topic {target}$", 1),
    Right.CLUSTER_CONFIGS: NO_EXPIRY,
    **READING,
    Right.PUT_NOTES: NOTES[Right.PUT_NOTES],
}
NO_CONFIGS: Final = r"configs of topic {topic} could not be read: .*grant this user DescribeConfigs on topic {topic};"
NO_EVENTS: Final = "learns of the other instance later"


def without_events(operation: str) -> Loss:
    return goes_on(rf"grant this user {operation} on topic _compacted_log_backup_coordination[;,]", NO_EVENTS)


UNTIL_END: Final = ("backup", "--until-end")

COMMANDS: Final = (
    Command(name="`status`", typed=("status",), needs=READING, is_brief=True),
    Command(name="`ls`", typed=("ls",), needs=READING, is_brief=True),
    Command(name="`ls TOPIC`", typed=("ls", "orders", "--segments"), needs=READING, is_brief=True),
    Command(name="`cat`", typed=("cat", "orders"), needs=READING, is_brief=True),
    Command(
        name="`export kafka-backup`", typed=("export", "kafka-backup", "{new}", "--topics", "orders"), needs=READING, is_brief=True
    ),
    Command(name="`compacted status`", typed=("compacted", "status"), needs=READING, is_brief=True),
    Command(
        name="`compacted status --against-kafka`",
        typed=("compacted", "status", "--against-kafka"),
        kind=Kind.COPIED,
        needs={
            Right.DESCRIBE_TOPICS: Loss(r"grant this user Describe on topic {topic}; its lag is not known", 3),
            **READING,
        },
        is_brief=True,
    ),
    Command(
        name="`compacted clear --force`",
        typed=("compacted", "clear", "{topic}-0", "--force"),
        kind=Kind.CLEARED,
        needs={**READING, Right.DELETE_COPIES: Loss(r"DeleteObjects was denied; grant s3:DeleteObject on ", 3)},
        is_brief=True,
    ),
    Command(name="`cluster show`", typed=("cluster", "show"), needs=READING, is_brief=True),
    Command(
        name="`cluster diff`",
        typed=("cluster", "diff"),
        kind=Kind.SAME,
        needs={
            Right.CLUSTER: Loss(r"acls: unknown on the target: .*grant this user Describe on the cluster", 3),
            Right.CLUSTER_CONFIGS: Loss(
                r"quotas: unknown on the target: .*grant this user DescribeConfigs on the cluster", 3
            ),
            **READING,
        },
        is_brief=True,
    ),
    Command(
        name="`cluster apply`",
        typed=("cluster", "apply"),
        kind=Kind.LACKING,
        needs={
            Right.ALTER_CLUSTER: Loss(r"^acls: .*grant this user Describe on the cluster", 3),
            Right.ALTER_CLUSTER_CONFIGS: Loss(r"^quotas: .*grant this user DescribeConfigs on the cluster", 3),
            **READING,
        },
        is_brief=True,
    ),
    Command(
        name="`hold add`",
        typed=("hold", "add", "audit", "--topics", "orders", "--reason", "law", "--no-wait"),
        kind=Kind.HOLD,
        needs={Right.LIST: LIST, Right.PUT_HOLDS: denied(r"/control/holds/\S+: PutObject", "s3:PutObject")},
        is_brief=True,
    ),
    Command(
        name="`hold add` of an existing hold",
        typed=("hold", "add", "audit", "--topics", "orders", "--reason", "law", "--no-wait"),
        kind=Kind.HELD,
        needs={Right.LIST: LIST, Right.GET: denied(r"/control/holds/\S+: GetObject", "s3:GetObject")},
        is_brief=True,
    ),
    Command(
        name="`retention`",
        typed=("retention", "--yes"),
        kind=Kind.SWEEP,
        needs={
            Right.DESCRIBE_TOPICS: goes_on(
                r"grant this user Describe on topic {topic}", "skips these topics"
            ),
            Right.TOPIC_CONFIGS: goes_on(
                r"grant this user DescribeConfigs on topic {topic}", "skips these topics"
            ),
            **SWEEPING,
        },
        is_brief=True,
    ),
    Command(
        name="… `--without-kafka`",
        typed=("retention", "--yes", "--without-kafka"),
        kind=Kind.SWEEP,
        needs=SWEEPING,
        is_brief=True,
    ),
    Command(name="`retention --last`, `retention --history`", typed=("retention", "--last"), kind=Kind.SWEEP, needs=READING, is_brief=True),
    Command(name="`groups show`", typed=("groups", "show"), needs=READING, is_brief=True),
    Command(name="`report`", typed=("report", "--html", "{new}"), needs=READING, is_brief=True),
    Command(
        name="`groups fold`",
        typed=("groups", "fold"),
        kind=Kind.FOLD,
        needs={**READING, Right.PUT_FOLDS: denied(r"/control/group-folds/\S+: PutObject", "s3:PutObject")},
        is_brief=True,
    ),
    Command(
        name="`groups translate`",
        typed=("groups", "translate"),
        kind=Kind.TRANSLATION,
        needs={Right.DESCRIBE: on_target("Describe", 3), **READING},
        is_brief=True,
    ),
    Command(
        name="`groups apply`",
        typed=("groups", "apply"),
        kind=Kind.APPLICATION,
        needs={
            Right.READ: on_target("Describe", 3),
            Right.READ_GROUPS: Loss(r"could not be found: .*; grant this user Describe on group \S+$", 1),
            Right.CLUSTER_CONFIGS: NO_EXPIRY,
            **READING,
            Right.PUT_NOTES: NOTES[Right.PUT_NOTES],
        },
    ),
    Command(
        name="… `--dry-run`",
        typed=("groups", "apply", "--dry-run"),
        kind=Kind.APPLICATION,
        needs={
            Right.DESCRIBE: on_target("Describe", 3),
            Right.DESCRIBE_GROUPS: Loss(r"could not be (found|read): .*; grant this user Describe on group \S+$", 1),
            Right.CLUSTER_CONFIGS: NO_EXPIRY,
            **READING,
        },
    ),
    Command(
        name="… `groups rollback`",
        typed=("groups", "rollback"),
        kind=Kind.ROLLBACK,
        needs={
            **SETTING_BACK,
            Right.DELETE_GROUPS: Loss(
                r"could not be deleted: .*; grant this user Delete on group \S+, and Read on topic {target}$", 1
            ),
        },
    ),
    Command(name="`inspect`", typed=("inspect", "{object}"), needs={Right.GET: GET}, is_brief=True),
    Command(name="`verify`", typed=("verify",), needs=VERIFYING, is_brief=True),
    Command(name="`verify --level counts`", typed=("verify", "--level", "counts"), needs=VERIFYING),
    Command(name="`verify --level records`", typed=("verify", "--level", "records"), needs=VERIFYING),
    Command(
        name="`copy`",
        typed=("copy", "--to", "{second}"),
        needs={
            **READING,
            Right.LIST_SECOND: Loss(r"ListObjectsV2 was denied; grant s3:ListBucket on bucket \S+ for second/\S+/\*"),
            Right.GET_SECOND: denied(r"second/\d+/control/probe/\d+\.json: GetObject", "s3:GetObject"),
            Right.PUT_SECOND: denied(r"second/\d+/control/probe/\d+\.json: PutObject", "s3:PutObject"),
        },
        is_brief=True,
    ),
    Command(
        name="`query`",
        typed=("query", "SELECT partition, CAST(value AS STRING) AS value FROM orders"),
        needs=READING,
        has_spark=True,
    ),
    Command(
        name="`verify --against-kafka`",
        typed=("verify", "--against-kafka"),
        needs={
            Right.READ_TOPICS: HIDDEN,
            Right.DESCRIBE_GROUP: goes_on(
                r"the positions of group {group} could not be read: .*grant this user Describe on group {group};",
                "does not compare the backup's commits",
            ),
            **VERIFYING,
        },
    ),
    Command(
        name="… where a copy missed a deletion",
        typed=("verify", "--against-kafka"),
        kind=Kind.COMPARED,
        needs={
            Right.READ_TOPICS: HIDDEN,
            Right.DESCRIBE_GROUP: Loss(
                r"the positions of group {group} could not be read: .*grant this user Describe on group {group};",
                3,
                "does not compare the backup's commits",
            ),
            **VERIFYING,
            Right.PUT_ROLES: Loss(
                r"that its next copy is due could not be noted: .*PutObject was denied; grant s3:PutObject on ",
                3,
                "does not make the next copy due",
            ),
        },
        exit_code=3,
    ),
    Command(
        name="`groups show --against-kafka`",
        typed=("groups", "show", "--against-kafka"),
        needs={
            Right.READ_OFFSETS: Loss(r"grant this user Describe on topic __consumer_offsets"),
            **READING,
        },
        is_brief=True,
    ),
    Command(
        name="`topics`", typed=("topics",), needs={Right.DESCRIBE_TOPICS: HIDDEN, Right.LIST: LIST}, is_brief=True
    ),
    Command(
        name="… `--accept-gone`",
        typed=("topics", "--accept-gone", "{topic}"),
        kind=Kind.GONE,
        needs={
            Right.DESCRIBE_TOPICS: Loss(r"grant this user Describe on topic {topic}", 2),
            Right.LIST: LIST,
            Right.GET: denied(r"/control/topics/\S+: GetObject", "s3:GetObject"),
            Right.PUT_TOPICS: denied(r"/control/topics/\S+: PutObject", "s3:PutObject"),
        },
        exit_code=3,  # of its entry of topics.include, which matches nothing now
        is_brief=True,
    ),
    Command(name="`import kafka-log`", typed=("import", "kafka-log", "{logs}"), kind=Kind.IMPORT, needs=WRITING, is_brief=True),
    Command(
        name="`import kafka-backup`",
        typed=("import", "kafka-backup", "{files}", "--cluster-id", "C1"),
        kind=Kind.IMPORT,
        needs=WRITING,
        is_brief=True,
    ),
    Command(name="`backup --until-end`", typed=UNTIL_END, kind=Kind.BACKUP, backup={"groups": "off"}, needs=ARCHIVING, is_brief=True),
    Command(
        name="… with `storage.tags`",
        typed=UNTIL_END,
        kind=Kind.BACKUP,
        backup={"groups": "off"},
        storage={"tags": {"team": "shop"}},
        needs={**ARCHIVING, Right.TAG: denied(r"topics/orders/\S+: PutObject", r"s3:PutObject, s3:PutObjectTagging \(storage\.tags\)")},
    ),
    Command(
        name="… with `backup.groups: topic`",
        typed=UNTIL_END,
        kind=Kind.BACKUP,
        backup={"groups": "topic"},
        needs={
            **ARCHIVING,
            Right.READ_OFFSETS: goes_on(
                "positions of consumer groups are not kept yet: __consumer_offsets is not there .*, or this user may not describe it",
                "keeps no positions",
            ),
            Right.OFFSETS_CONFIGS: NO_OFFSETS_CONFIGS,
        },
    ),
    Command(
        name="… with `backup.groups: auto`",
        typed=UNTIL_END,
        kind=Kind.BACKUP,
        backup={"groups": "auto"},
        needs={
            **ARCHIVING,
            Right.READ_OFFSETS: goes_on("positions of consumer groups are taken as snapshots:", "takes snapshots"),
            Right.OFFSETS_CONFIGS: NO_OFFSETS_CONFIGS,
        },
    ),
    Command(
        name="… with `backup.groups: snapshot`",
        typed=UNTIL_END,
        kind=Kind.BACKUP,
        backup={"groups": "snapshot"},
        needs={**ARCHIVING, Right.DESCRIBE_GROUPS: NO_GROUPS},
    ),
    Command(
        name="`backup`",
        typed=("backup",),
        kind=Kind.SERVICE,
        backup={"groups": "off"},
        needs={
            **ARCHIVING,
            # It goes on, and asks again and again, until it is stopped.
            Right.READ_TOPICS: Loss(HIDDEN.says, 0),
            Right.READ_GROUP: Loss(r"does not let us in: .*grant this user Read on the group", 0),
        },
    ),
    Command(
        name="`compacted run`",
        typed=("compacted", "run"),
        kind=Kind.INSTANCE,
        needs={
            # It goes on, and asks again and again, until it is stopped.
            Right.READ_TOPICS: Loss(HIDDEN.says, 0),
            Right.TOPIC_CONFIGS: Loss(NO_CONFIGS, 0),
            Right.READ_INSTANCE: Loss(r"does not let us in: .*grant this user Read on the group", 0),
            Right.READ_COORDINATION: without_events("Read"),
            Right.WRITE_COORDINATION: without_events("Write"),
            Right.CREATE_COORDINATION: without_events("Create"),
            **WRITING,
            Right.DELETE_COPIES: goes_on(
                r"/compacted/a/\S+ DeleteObjects was denied; grant s3:DeleteObject on ", "former copies stay"
            ),
            Right.DELETE_MOMENTS: goes_on(
                r"/control/moments/a/\S+ DeleteObjects was denied; grant s3:DeleteObject on ", "its notes stay"
            ),
        },
    ),
    Command(
        name="`drill`",
        typed=("drill",),
        kind=Kind.DRILL,
        needs={
            **CREATING,
            Right.DELETE: Loss(r"grant this user Delete on topics with the prefix __archiver-drill-$", 2),
            **NOTES,
            Right.PUT_DRILLS: denied(r"/control/drills/\S+: PutObject", "s3:PutObject"),
            Right.DELETE_CONTROL: Loss(
                r"/control/restores/\S+: DeleteObjects was denied; grant s3:DeleteObject on ", 1, "leaves its notes (exit code 1)"
            ),
        },
        is_brief=True,
    ),
    Command(name="`restore`", typed=("restore",), kind=Kind.RESTORE, needs={**CREATING, **NOTES}, is_brief=True),
    Command(name="… with `--dry-run`", typed=("restore", "--dry-run"), kind=Kind.RESTORE, needs={**CREATING, **READING}),
    Command(name="… `--repartition`", typed=("restore", "--repartition", "3"), kind=Kind.RESTORE, needs={**CREATING, **NOTES}),
    Command(
        name="… `--groups`",
        typed=("restore", "--groups", "billing"),
        kind=Kind.RESTORE,
        needs={
            **CREATING,
            **NOTES,
            Right.READ_GROUPS: Loss(
                r"could not be found: .*; grant this user Describe on group \S+$", 1, "sets no group (exit code 1)"
            ),
        },
        is_brief=True,
    ),
    Command(
        name="… `--where`",
        typed=("restore", "--where", "partition >= 0"),
        kind=Kind.RESTORE,
        needs={**CREATING, **NOTES},
        has_spark=True,
    ),
    Command(
        name="… `--latest-per-key`",
        typed=("restore", "--latest-per-key"),
        kind=Kind.RESTORE,
        needs={**CREATING, **NOTES},
        has_spark=True,
    ),
    Command(
        name="… `--into-existing`",
        typed=("restore", "--into-existing"),
        kind=Kind.RESTORE,
        standing={},
        needs=APPENDING,
    ),
    Command(
        name="… `--into-existing` with `retention.bytes`",
        typed=("restore", "--into-existing"),
        kind=Kind.RESTORE,
        standing={"retention.bytes": "10000000"},
        needs={**APPENDING, Right.CLUSTER: Loss(r"^{target}: .*is not known \(.*grant this user Describe on the cluster\)", 2)},
    ),
    Command(
        name="… `--purge-target`",
        typed=("restore", "--purge-target"),
        kind=Kind.RESTORE,
        standing={},
        needs={
            Right.CREATE: Loss(AGAIN, 2),
            Right.CREATE_LIKE: Loss(r"grant this user Create on topics with the prefix {target},", 2),
            **PURGING,
        },
        is_brief=True,
    ),
    Command(
        name="… `--purge-target`, without `TARGET-*`",
        typed=("restore", "--purge-target"),
        kind=Kind.RESTORE,
        standing={},
        needs={Right.CREATE_ANY: Loss(r"grant this user Create on topics with the prefix {target},", 2), **PURGING},
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Case:
    """A command without one of its rights; None: with all of them, and no others."""

    number: int
    command: Command
    missing: Right | None

    @property
    def loss(self) -> Loss | None:
        return None if self.missing is None else self.command.needs[self.missing]

    @property
    def rights(self) -> Sequence[Right]:
        return [right for right in self.command.needs if right is not self.missing]

    @property
    def is_long(self) -> bool:
        """Left to `--long`."""
        return self._is_slow or self._repeats

    @property
    def _repeats(self) -> bool:
        """Whether one before it, of another command, is tried in each run and loses the same right with the same message."""
        if self.loss is None:
            return False
        said = (self.missing, self.loss.says, self.loss.exit_code)
        before = (one for one in CASES[: self.number] if one.loss is not None and not one._is_slow)
        return any((one.missing, one.loss.says, one.loss.exit_code) == said for one in before if one.loss)

    @property
    def _is_slow(self) -> bool:
        if self.command.kind is Kind.INSTANCE:
            return self.missing is not None
        is_slow = self.command.has_spark or self.command.kind is Kind.SERVICE
        return is_slow or not (self.command.is_brief or self.missing is None)

    def __str__(self) -> str:
        without = "" if self.missing is None else f" without {self.missing.value}"
        return f"{self.command.name}{without}".replace("`", "")


CASES: Final = tuple(
    Case(number, *what)
    for number, what in enumerate((command, missing) for command in COMMANDS for missing in (None, *command.needs))
)


def table(commands: Sequence[Command] = COMMANDS) -> str:
    """For docs/reference.md."""
    return "\n".join(_lines(commands))


def _lines(commands: Sequence[Command]) -> Iterator[str]:
    yield "| command | in Kafka | in S3 | optional: without it |"
    yield "| --- | --- | --- | --- |"
    above: _Cells = ((), (), ())
    rows: dict[tuple[str, ...], list[str]] = {}
    for command in commands:
        cells = _cells(command)
        is_variant = command.name.startswith("…")
        spelled = [_spelled(*both) for both in zip(cells, above if is_variant else ((), (), ()), strict=True)]
        rows.setdefault(tuple(spelled), []).append(command.name)
        above = above if is_variant else cells
    for texts, names in rows.items():
        yield f"| {', '.join(names)} | {' | '.join(texts)} |"


_Cells = tuple[Sequence[str], Sequence[str], Sequence[str]]


def _cells(command: Command) -> _Cells:
    must = [right for right, loss in command.needs.items() if not loss.is_borne]
    kafka, store = ([one.value for one in must if one.is_of_store is of_store] for of_store in (False, True))
    return kafka, store, [f"{right.value}: {loss.instead}" for right, loss in command.needs.items() if loss.is_borne]


def _spelled(rights: Sequence[str], above: Sequence[str]) -> str:
    """By what comes to those of the row that a variant belongs to, if all of them are needed."""
    if not above or not set(above) <= set(rights):
        return "; ".join(_merged(rights))
    return "; ".join(["the same", *_merged([right for right in rights if right not in above])])


def _merged(rights: Sequence[str]) -> Iterator[str]:
    """`Read on the targets`, `Write on the targets` are `Read, Write on the targets`."""
    found: dict[str, list[str]] = {}
    for right in rights:
        operation, on, what = right.partition(" on ")
        found.setdefault(on + what, []).append(operation)
    return (f"{', '.join(some)}{what}" for what, some in found.items())


def main() -> None:
    """Write the table again."""
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), MARK, table()), encoding="utf-8")


if __name__ == "__main__":
    main()
