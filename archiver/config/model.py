"""The typed configuration: every key with type, default and meaning. Validated once, at loading."""

import re
import ssl
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import Field, NonNegativeInt, PrivateAttr, field_validator, model_validator

from archiver.config.quantities import MEBIBYTE, spell_exact_duration
from archiver.config.retention import RetentionConfig
from archiver.config.section import Duration, KafkaProperties, Pattern, Section, Size, StartPoint, Text
from archiver.process.values.endpoint import port_of, split_url


class Sse(StrEnum):
    """Server-side encryption of our objects."""

    NONE = "none"
    S3 = "s3"
    KMS = "kms"


class IndexUse(StrEnum):
    """The trust of readers in the entries of `control/index/` for objects that they do not read."""

    CHECK = "check"
    TRUST = "trust"
    IGNORE = "ignore"


class StorageConfig(Section):
    """The location of the archive. Credentials come from the usual AWS chain."""

    url: str = Field(description="s3://bucket/prefix; the prefix may be empty")
    endpoint: str | None = Field(default=None, description="address of an S3-compatible store; absent for AWS")
    ca_file: Path | None = Field(
        default=None,
        description="PEM file with the CA certificates of the endpoint; absent: the system's",
    )
    region: Text | None = Field(default=None, description="absent: by the usual AWS chain")
    profile: Text | None = Field(
        default=None,
        description="profile of the AWS configuration files with this store's credentials; absent: by the usual AWS chain",
    )
    sse: Sse = Field(default=Sse.NONE, description="server-side encryption")
    kms_key_id: Text | None = Field(default=None, description="key for sse: kms; absent: the account's own key")
    storage_class: Text | None = Field(
        default=None, description="storage class of segments; absent: the bucket's default"
    )
    tags: Mapping[Text, str] = Field(default={}, description="tags of segments, at most 10")
    index: IndexUse = Field(
        default=IndexUse.CHECK,
        description="whether readers skip objects by `control/index/`. check: after asking the object for its facts; trust: without asking, if only trusted users can write there; ignore: every object is asked",
    )

    @property
    def bucket(self) -> str:
        """The bucket's name."""
        return self.url.removeprefix("s3://").partition("/")[0]

    @property
    def prefix(self) -> str:
        """The prefix of all keys, without slashes at its ends; may be empty."""
        return self.url.removeprefix("s3://").partition("/")[2]

    @field_validator("url")
    @classmethod
    def _is_s3(cls, url: str) -> str:
        plain = url.rstrip("/")
        if not re.fullmatch(r"s3://[^/\s]+(/[^/\s]+)*", plain) or not plain.isprintable():
            raise ValueError("is not like s3://bucket/prefix")
        bucket = plain.removeprefix("s3://").partition("/")[0]
        if not re.fullmatch(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]", bucket):
            raise ValueError(
                "what stands behind s3:// cannot be a bucket: 3 to 63 of a-z 0-9 . - _, beginning and ending with a letter or a digit"
            )
        return plain

    @field_validator("ca_file")
    @classmethod
    def _is_there(cls, path: Path | None) -> Path | None:
        if path is not None and not path.is_file():
            raise ValueError("is no file" if path.exists() else "there is no such file")
        try:
            ssl.create_default_context(cafile=path)
        except OSError as error:  # ssl.SSLError is an OSError
            reason = getattr(error, "reason", None) or error.strerror or type(error).__name__
            raise ValueError(f"has no certificates in PEM: {reason}") from error
        return path

    @field_validator("endpoint")
    @classmethod
    def _is_http(cls, endpoint: str | None) -> str | None:
        found = None if endpoint is None else split_url(endpoint)
        if endpoint is not None and (found is None or found[-1] not in {"", "/"}):
            raise ValueError("is not like https://host:port")
        return endpoint

    @field_validator("storage_class")
    @classmethod
    def _is_readable_at_once(cls, storage_class: str | None) -> str | None:
        if storage_class in {"GLACIER", "DEEP_ARCHIVE"}:
            raise ValueError(f"objects in {storage_class} cannot be read without a restore request; take GLACIER_IR")
        return storage_class

    @field_validator("tags")
    @classmethod
    def _are_few(cls, tags: Mapping[str, str]) -> Mapping[str, str]:
        if len(tags) > 10:
            raise ValueError(f"{len(tags)} tags; S3 takes 10")
        return tags

    @model_validator(mode="after")
    def _key_goes_with_kms(self) -> Self:
        if self.kms_key_id is not None and self.sse is not Sse.KMS:
            raise ValueError("kms-key-id goes with sse: kms only")
        return self


class TopicsConfig(Section):
    """The archived topics."""

    include: tuple[Pattern, ...] = Field(
        default=(),
        description="regular expressions (Python) for whole names of topics; absent: none is archived",
    )
    exclude: tuple[Pattern, ...] = Field(default=(), description="the same, for excluded topics; wins over include")
    refresh_ms: Annotated[Duration, Field(ge=500)] = Field(
        default=30_000,
        validation_alias="refresh",
        description="interval of looking for new topics, partitions and configs",
    )

    def select(self, names: Iterable[str]) -> tuple[str, ...]:
        """The included names, sorted. Names that begin with `__` are included only if spelled out."""
        return tuple(name for name in sorted(set(names)) if self.including(name) and not self.excluding(name))

    def including(self, name: str) -> list[int]:
        """The entries of `include` that a name matches, by their numbers."""
        return [number for number, pattern in enumerate(self.include) if _takes(pattern, name)]

    def excluding(self, name: str) -> list[int]:
        """The entries of `exclude` that a name matches, by their numbers."""
        return [number for number, pattern in enumerate(self.exclude) if re.fullmatch(pattern, name)]

    def unmatched(self, names: Iterable[str]) -> list[int]:
        """The entries of `include` that match none of these names."""
        known = list(names)
        return [at for at, pattern in enumerate(self.include) if not any(_takes(pattern, name) for name in known)]


def _takes(pattern: str, name: str) -> bool:
    return pattern == name if name.startswith("__") else re.fullmatch(pattern, name) is not None


class SegmentConfig(Section):
    """Limits of a segment: it is full as soon as one of them is reached."""

    # A segment is put by one PutObject, which takes 5 GiB.
    bytes: Annotated[Size, Field(ge=1, le=4096 * MEBIBYTE)] = Field(
        default=64 * MEBIBYTE, description="a segment is closed at this size of uncompressed Avro"
    )
    age_ms: Duration = Field(
        default=5 * 60_000,
        validation_alias="age",
        description="a segment is closed at this age of its first record; 0: no limit",
    )
    records: NonNegativeInt = Field(default=0, description="a segment is closed at this number of records; 0: no limit")


class SpoolConfig(Section):
    """The folder of open segments on the local disk. They are useless after a crash."""

    dir: Path | None = Field(
        default=None, description="folder for open segments; absent: the system's for temporary files"
    )
    bytes: Annotated[Size, Field(ge=16 * MEBIBYTE)] = Field(
        default=2048 * MEBIBYTE, description="above this size of open segments the oldest are closed early"
    )


Codec = Literal["zstandard", "snappy", "deflate", "null"]
CODEC_LEVELS: Final[Mapping[Codec, range]] = {"zstandard": range(1, 23), "deflate": range(1, 10)}
# zstandard 1 was both faster and smaller than 3 on JSON records of 100 B and 800 B: 508 MB and 715 MB against 547 and 757.
DEFAULT_LEVELS: Final[Mapping[Codec, int]] = {"zstandard": 1, "deflate": 6}


class GroupProtocol(StrEnum):
    """The protocol that shares partitions among the members of a group."""

    CLASSIC = "classic"  # with cooperative-sticky assignment; every broker has it
    CONSUMER = "consumer"  # KIP-848; brokers from 4.0


class PositionKeeping(StrEnum):
    """The way to keep the positions of consumer groups."""

    AUTO = "auto"  # TOPIC if this user may read it, else SNAPSHOT
    TOPIC = "topic"  # by archiving __consumer_offsets like any topic
    SNAPSHOT = "snapshot"  # by asking brokers on an interval, and storing the answers as notes under `control/`
    OFF = "off"


class UnreadablePolicy(StrEnum):
    """The reaction of a backup to an unreadable batch."""

    STOP = "stop"
    SKIP = "skip"


class BatchConfig(Section):
    """Limits for the batches of producers."""

    # Readers still decompress an Avro block of a record of that size.
    bytes: Annotated[Size, Field(ge=MEBIBYTE, le=1024 * MEBIBYTE)] = Field(
        default=256 * MEBIBYTE,
        description="largest record batch that is opened, by its uncompressed records. One that does not fit into backup.memory is decoded alone, and takes up to this much beside it",
    )


class HeartbeatConfig(Section):
    """The call that tells an outside monitor that a backup works."""

    url: Text | None = Field(
        default=None,
        repr=False,
        description="called with GET when everything that was known at the start of a round is durable, at most once a minute; absent: none",
    )

    @field_validator("url")
    @classmethod
    def _is_http(cls, url: str | None) -> str | None:
        if url is not None and not url.startswith(("http://", "https://")):
            raise ValueError("must begin with https:// or http://")
        return url


class BackupConfig(Section):
    """Settings of a backup."""

    group: Text | None = Field(
        default=None,
        description="consumer group of all instances that share this archive's work; absent: a name made of storage.url and storage.endpoint (`archiver config show`)",
    )
    group_protocol: GroupProtocol = Field(default=GroupProtocol.CLASSIC, description="consumer is KIP-848")
    session_timeout_ms: Annotated[Duration, Field(ge=1000, le=3_600_000)] = Field(  # librdkafka's maximum
        default=45_000,
        validation_alias="session-timeout",
        description="an instance that is silent for this long loses its partitions; with group-protocol consumer the brokers' setting holds",
    )
    start: StartPoint = Field(
        default="earliest",
        description="where to begin with topics that exist at the first use of this option and have no archive yet",
    )
    rate_bytes: Size = Field(default=0, validation_alias="rate", description="bytes fetched per second; 0: no limit")
    groups: PositionKeeping = Field(
        default=PositionKeeping.AUTO,
        description="how positions of consumer groups are kept",
    )
    groups_interval_ms: Annotated[Duration, Field(ge=1000)] = Field(
        default=60_000,
        validation_alias="groups-interval",
        description="interval of snapshots of group positions",
    )
    segment: SegmentConfig = SegmentConfig()
    codec: Codec = Field(default="zstandard", description="compression of Avro blocks")
    codec_level: int | None = Field(
        default=None,
        validation_alias="codec.level",
        description="zstandard 1 to 22, deflate 1 to 9; absent: zstandard 1, deflate 6",
    )
    memory_bytes: Annotated[Size, Field(ge=16 * MEBIBYTE)] = Field(
        default=256 * MEBIBYTE,
        validation_alias="memory",
        description="memory for fetched and decompressed records. The program takes up to 256MiB beside it; a larger batch is decoded alone",
    )
    batch: BatchConfig = BatchConfig()
    unreadable: UnreadablePolicy = Field(
        default=UnreadablePolicy.STOP,
        description="at a batch that expands to more than backup.batch.bytes, or is damaged on every in-sync replica: stop the partition before it, or skip it (a hole `unreadable`, logged as an error)",
    )
    spool: SpoolConfig = SpoolConfig()
    heartbeat: HeartbeatConfig = HeartbeatConfig()

    @property
    def level(self) -> int:
        """The level to compress at; 0 for a codec without levels."""
        return self.codec_level if self.codec_level is not None else DEFAULT_LEVELS.get(self.codec, 0)

    @field_validator("codec", mode="before")
    @classmethod
    def _null_is_a_codec(cls, codec: object) -> object:
        return "null" if codec is None else codec

    @model_validator(mode="after")
    def _level_fits(self) -> Self:
        levels = CODEC_LEVELS.get(self.codec)
        if self.codec_level is None or (levels is not None and self.codec_level in levels):
            return self
        if levels is None:
            raise ValueError(f"codec {self.codec} has no levels")
        raise ValueError(f"codec.level is not in {levels[0]}..{levels[-1]}, the levels of {self.codec}")


_INSTANCE: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"  # same as archive.layout.is_instance: the name is part of keys
_DAY_MS: Final = 86_400_000
_NOTES_IN_TAKEOVER: Final = 10  # some may be late, or be lost, before an instance counts as silent


class CompactedConfig(Section):
    """Settings of the two instances that copy compacted topics by turns."""

    enabled: bool = Field(
        default=False,
        description="whether two instances keep copies of the included compacted topics in turn",
    )
    instances: tuple[Text, ...] = Field(
        default=(), description="names of both instances, such as [a, b]; required if enabled"
    )
    log_backup_length_days: Annotated[float, Field(gt=0, le=36_500)] = Field(
        default=7.0,
        validation_alias="log.backup.length.days",
        description="length of a turn in days, also fractions",
    )
    takeover_ms: Annotated[Duration, Field(ge=1000)] = Field(
        default=3_600_000,
        validation_alias="takeover",
        description="an instance that is silent for this long is replaced",
    )
    interval_ms: Annotated[Duration, Field(ge=100)] = Field(
        default=60_000,
        validation_alias="interval",
        description="interval of an instance's notes of its progress; at most a tenth of compacted.takeover",
    )
    margin_ms: Duration | None = Field(
        default=None,
        validation_alias="margin",
        description="a reading must be this much faster than delete.retention.ms: more than the longest pass of the brokers' log cleaner and file.delete.delay.ms together; absent: a tenth of delete.retention.ms",
    )
    clear_delay_ms: Duration = Field(
        default=24 * 3_600_000,
        validation_alias="clear.delay",
        description="how long a replaced copy stays",
    )
    keep_generations: NonNegativeInt = Field(
        default=0,
        validation_alias="keep.generations",
        description="number of replaced complete copies that stay for restores as of earlier times",
    )

    @property
    def length_ms(self) -> int:
        """The length of a turn."""
        return max(1, round(self.log_backup_length_days * _DAY_MS))

    @field_validator("instances")
    @classmethod
    def _are_two(cls, instances: tuple[str, ...]) -> tuple[str, ...]:
        if not all(re.fullmatch(_INSTANCE, name, re.ASCII) for name in instances):
            raise ValueError("an instance's name is 1 to 64 of A-Z a-z 0-9 . _ -, and begins with a letter or a digit")
        if instances and (len(instances) != 2 or len(set(instances)) != 2):
            raise ValueError("must be two different names, such as [a, b]")
        return instances

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        if self.enabled and not self.instances:
            raise ValueError("compacted.enabled goes with compacted.instances: give two names, such as [a, b]")
        if self.interval_ms * _NOTES_IN_TAKEOVER > self.takeover_ms:
            raise ValueError(
                f"compacted.interval ({spell_exact_duration(self.interval_ms)}) must be at most a tenth of compacted.takeover"
                f" ({spell_exact_duration(self.takeover_ms)}), or an instance that works counts as unheard of"
            )
        return self


class RestoresConfig(Section):
    """Settings that protect objects for running restores."""

    pin_ms: Duration = Field(
        default=7 * _DAY_MS,
        validation_alias="pin",
        description="nothing that an unfinished restore reads is deleted for this long after its beginning",
    )
    keep_ms: Duration = Field(
        default=30 * _DAY_MS,
        validation_alias="keep",
        description="notes of a finished restore stay this long; then a retention sweep may delete them",
    )


class MetricsConfig(Section):
    """The HTTP endpoint of a running backup: /metrics, /healthz, /readyz."""

    listen: Text | None = Field(
        default=None,
        description="host:port of the endpoint for metrics and health checks; absent: none. It has no password",
    )

    @field_validator("listen")
    @classmethod
    def _is_an_address(cls, listen: str | None) -> str | None:
        if listen is not None and port_of(listen) is None:
            raise ValueError("is not like 127.0.0.1:9404, with a port up to 65535")
        return listen


class WithKafka(Section):
    """A configuration that names a cluster."""

    kafka: KafkaProperties = Field(default={}, repr=False, description="librdkafka properties")
    _place_of: Callable[[str], str] = PrivateAttr(default=str)

    def place_of_kafka(self, key: str) -> str:
        """Return file, line and name of a `kafka` key, for messages."""
        return self._place_of(f"kafka.{key}")


class ArchiverConfig(WithKafka):
    """archive.yaml: the configuration of an archive."""

    storage: StorageConfig
    topics: TopicsConfig = TopicsConfig()
    backup: BackupConfig = BackupConfig()
    compacted: CompactedConfig = CompactedConfig()
    restores: RestoresConfig = RestoresConfig()
    retention: RetentionConfig = RetentionConfig()
    metrics: MetricsConfig = MetricsConfig()

    def place_of_include(self, number: int) -> str:
        """Return file and line of an entry of `topics.include`, for messages."""
        return self._place_of(f"topics.include[{number}]")

    def place_of_exclude(self, number: int) -> str:
        """Return file and line of an entry of `topics.exclude`, for messages."""
        return self._place_of(f"topics.exclude[{number}]")


class TargetConfig(WithKafka):
    """target.yaml: the cluster that a restore writes to."""

    kafka: KafkaProperties = Field(repr=False, description="librdkafka properties")
