"""What a retention sweep goes by: whose limits, and what it never shortens."""

import re
from typing import Annotated, Final

from pydantic import Field

from archiver.config.section import Duration, Pattern, Section, Size

_DAY_MS: Final = 24 * 3600 * 1000


class FixedLimitsConfig(Section):
    """Limits for sweeps that ask no cluster (`archiver retention --without-kafka`)."""

    ms: Duration | None = Field(default=None, description="how long records are kept; absent: for ever")
    bytes: Size | None = Field(
        default=None, description="how much of each partition is kept, as large as brokers had stored it; absent: all"
    )
    segment_ms: Duration = Field(
        default=7 * _DAY_MS,
        validation_alias="segment.ms",
        description="added to retention.fixed.ms: so long a broker waits until it closes a segment, and may delete it",
    )
    segment_bytes: Size = Field(
        default=1 << 30,
        validation_alias="segment.bytes",
        description="added to retention.fixed.bytes: so large a broker lets a segment become before it may delete it",
    )


class RetentionConfig(Section):
    """What `archiver retention` deletes."""

    grace_ms: Duration = Field(
        default=7 * _DAY_MS,
        validation_alias="grace",
        description="so long after a topic's limits were made shorter, a sweep still goes by the longer ones",
    )
    min_object_age_ms: Annotated[Duration, Field(ge=0)] = Field(
        default=_DAY_MS,
        validation_alias="min-object-age",
        description="an object stays this long at least after it was put, by the store's clock",
    )
    floor_ms: Duration = Field(
        default=0, validation_alias="floor", description="records stay this long at least, whatever their topic says"
    )
    factor: Annotated[float, Field(ge=1, le=1000)] = Field(
        default=1.0, description="so many times as long, and as much, as the topic says is kept"
    )
    keep: tuple[Pattern, ...] = Field(
        default=(), description="regular expressions (Python) that match the whole name of a topic that is never swept"
    )
    groups_ms: Duration | None = Field(
        default=None,
        validation_alias="groups",
        description="how long records of __consumer_offsets are kept, and snapshots of positions; absent: for ever",
    )
    gone_topics_ms: Duration | None = Field(
        default=None,
        validation_alias="gone-topics",
        description="how long records are kept of topics that no longer exist in Kafka, by their times; absent: for ever",
    )
    fixed: FixedLimitsConfig = FixedLimitsConfig()

    def keeps(self, topic: str) -> bool:
        """Tell whether the configuration says that a topic is never swept."""
        return any(re.fullmatch(pattern, topic) for pattern in self.keep)
