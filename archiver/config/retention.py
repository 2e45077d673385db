"""What a retention sweep goes by: whose limits, and what it never shortens."""

import re
from typing import Annotated, Final

from pydantic import Field

from archiver.config.section import Duration, Pattern, Section

_DAY_MS: Final = 24 * 3600 * 1000


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
    groups_ms: Annotated[Duration, Field(gt=0)] | None = Field(
        default=None,
        validation_alias="groups",
        description="how long is kept where consumer groups stood as of any time, in __consumer_offsets; absent: for ever",
    )
    keep: tuple[Pattern, ...] = Field(
        default=(), description="regular expressions (Python) that match the whole name of a topic that is never swept"
    )

    def keeps(self, topic: str) -> bool:
        """Tell whether the configuration says that a topic is never swept."""
        return any(re.fullmatch(pattern, topic) for pattern in self.keep)
