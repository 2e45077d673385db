"""Settings of `archiver retention`: the source of limits, and topics that are never shortened."""

import re
from typing import Annotated, Final, Self

from pydantic import Field, model_validator

from archiver.config.section import Duration, Pattern, Section, Size

_DAY_MS: Final = 24 * 3600 * 1000
_Factor = Annotated[float, Field(ge=1, le=1000)]
_Age = Annotated[Duration, Field(gt=0)]
_Amount = Annotated[Size, Field(gt=0)]
_OVERRIDDEN: Final = ("floor_ms", "factor", "grace_ms")
_OVERRIDDEN_FIXED: Final = ("ms", "bytes")


class FixedConfig(Section):
    """Limits of topics in a run without a cluster."""

    ms: _Age | None = Field(default=None, description="with `--without-kafka`: age limit of records; absent: none")
    bytes: _Amount | None = Field(
        default=None, description="with `--without-kafka`: size limit of each partition; absent: none"
    )
    segment_ms: Duration = Field(
        default=7 * _DAY_MS,
        validation_alias="segment-ms",
        description="added to `retention.fixed.ms`, because Kafka deletes whole files. At least the topics' largest segment.ms",
    )
    segment_bytes: Size = Field(
        default=1024**3,
        validation_alias="segment-bytes",
        description="added to `retention.fixed.bytes`, for the same reason. At least the topics' largest segment.bytes",
    )


class OverrideConfig(Section):
    """Values for some topics that replace the section's own."""

    topics: Pattern = Field(description="a regular expression (Python) for whole names; the first match counts")
    floor_ms: Duration | None = Field(
        default=None, validation_alias="floor", description="in place of `retention.floor`"
    )
    factor: _Factor | None = Field(default=None, description="in place of `retention.factor`")
    grace_ms: Duration | None = Field(
        default=None, validation_alias="grace", description="in place of `retention.grace`"
    )
    ms: _Age | None = Field(default=None, description="in place of `retention.fixed.ms`")
    bytes: _Amount | None = Field(default=None, description="in place of `retention.fixed.bytes`")

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if all(getattr(self, name) is None for name in (*_OVERRIDDEN, *_OVERRIDDEN_FIXED)):
            raise ValueError("gives no value but topics; leave it out, or give one of floor, factor, grace, ms, bytes")
        return self


class GoneConfig(Section):
    """The retention of topics that the cluster no longer has."""

    topics: Pattern = Field(description="a regular expression (Python) for whole names; the first match counts")
    ms: _Age = Field(
        description="how long records stay of a topic that the cluster no longer has, or of an earlier life of it"
    )


class RetentionConfig(Section):
    """Settings of `archiver retention`."""

    grace_ms: Duration = Field(
        default=7 * _DAY_MS,
        validation_alias="grace",
        description="how long sweeps still use the longer limits after a topic's limits became shorter",
    )
    min_object_age_ms: Annotated[Duration, Field(ge=0)] = Field(
        default=_DAY_MS,
        validation_alias="min-object-age",
        description="minimal age of a deleted object, by the store's clock",
    )
    floor_ms: Duration = Field(
        default=0, validation_alias="floor", description="minimal age of deleted records, whatever their topic says"
    )
    factor: _Factor = Field(default=1.0, description="factor on the topic's limits of age and size")
    groups_ms: Annotated[Duration, Field(gt=0)] | None = Field(
        default=None,
        validation_alias="groups",
        description="how long positions of consumer groups stay known; absent: for ever",
    )
    keep: tuple[Pattern, ...] = Field(
        default=(), description="regular expressions (Python) for whole names of topics that are never swept"
    )
    overrides: tuple[OverrideConfig, ...] = Field(default=(), description="other values for some topics")
    gone: tuple[GoneConfig, ...] = Field(
        default=(),
        description="how long topics are kept that the cluster no longer has; without a match: for ever",
    )
    fixed: FixedConfig = FixedConfig()

    def keeps(self, topic: str) -> bool:
        """Return whether the configuration excludes a topic from sweeps."""
        return any(re.fullmatch(pattern, topic) for pattern in self.keep)

    def of_topic(self, topic: str) -> "RetentionConfig":
        """Return the settings of a topic: the section, with the values of the first matching override."""
        found = next((one for one in self.overrides if re.fullmatch(one.topics, topic)), None)
        if found is None:
            return self
        given = {name: value for name in _OVERRIDDEN if (value := getattr(found, name)) is not None}
        fixed = {name: value for name in _OVERRIDDEN_FIXED if (value := getattr(found, name)) is not None}
        return self.model_copy(update={**given, "fixed": self.fixed.model_copy(update=fixed)})

    def gone_ms_of(self, topic: str) -> int | None:
        """Return the retention of a topic that the cluster no longer has; None: unlimited."""
        return next((one.ms for one in self.gone if re.fullmatch(one.topics, topic)), None)

    @property
    def says_fixed(self) -> bool:
        """Return whether a run without a cluster has any limits."""
        several: list[FixedConfig | OverrideConfig] = [self.fixed, *self.overrides]
        return any(one.ms is not None or one.bytes is not None for one in several)
