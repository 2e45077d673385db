"""The archived position of a group in a partition of one life of a topic, with its state. All readers of positions use it."""

from enum import StrEnum
from typing import Final, NamedTuple

UNKNOWN_MS: Final = -1


class State(StrEnum):
    """The state of an archived position."""

    SET = "set"
    TOPIC_DELETED = (
        "topic deleted"  # removed with its topic, or as the last one in it: this was the group's position then
    )
    REMOVED = "removed"  # expired, or the group was deleted; its position then may be unknown
    UNKNOWN = "unknown"  # a commit, or a removal, may be missing in the archive
    AMBIGUOUS = (
        "ambiguous"  # it may belong to one life of its topic or to another, or the group was at one of two offsets
    )


class Cause(StrEnum):
    """The cause of a removal, as far as the log shows it. It is only displayed."""

    NONE = ""  # not removed
    EXPIRED = "expired"
    GROUP_DELETED = "group deleted"
    TOPIC_DELETED = "topic deleted"
    UNKNOWN = "unknown"


class PositionSource(StrEnum):
    """The source of a position."""

    LOG = "log"
    FOLD = "fold"
    SNAPSHOT = "snapshot"


class ArchivedPosition(NamedTuple):
    """A position of a group; `offset` is -1 without a known commit."""

    group: str
    topic: str
    life: int  # a life without a parent; NOT_ARCHIVED: the archive lacks this topic; or AMBIGUOUS
    partition: int
    state: State
    offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""
    commit_ms: int = -1  # by the clock of the broker
    at_offset: int = -1  # of the record in `__consumer_offsets`
    removed_ms: int = -1  # -1: not removed, or unknown
    at_ms: int = UNKNOWN_MS  # of that record; of a snapshot: when it was taken
    source: PositionSource = PositionSource.LOG
    known_from_ms: int = UNKNOWN_MS  # of an unknown position: the earliest later time as of which it is known
    removed_at: int = -1  # the offset of the record in `__consumer_offsets` that removed it
    cause: Cause = Cause.NONE
    is_stale: bool = False  # of a removed position: its removal may follow another commit
    other_offset: int = -1  # the other possible offset of the group; -1: none
    other_ms: int = -1  # the commit time of that offset, or the time of its snapshot

    @property
    def is_between(self) -> bool:
        """Whether the two possible offsets are known: nothing else is ambiguous."""
        return self.state is State.AMBIGUOUS and min(self.life, self.offset, self.other_offset) >= 0

    def earlier(self) -> "ArchivedPosition":
        """Return the position with the lower of its two offsets: reading again is right, skipping records is not."""
        if not 0 <= self.other_offset < self.offset:
            return self
        return self._replace(offset=self.other_offset, leader_epoch=-1, metadata="")

    @property
    def has_stood(self) -> bool:
        """Whether the group was at the offset: the offset of an unknown or removed position may be stale."""
        return self.offset >= 0 and self.state not in {State.UNKNOWN, State.REMOVED}

    @property
    def was_removed(self) -> bool:
        """Whether it was or may have been removed, even if it counts as set."""
        return self.state in {State.REMOVED, State.TOPIC_DELETED} or self.cause is not Cause.NONE

    @property
    def is_removed_value_known(self) -> bool:
        """Whether the group's offset at the removal of its position is known."""
        return self.was_removed and self.offset >= 0 and self.life >= 0 and not self.is_stale

    @property
    def is_certain(self) -> bool:
        """Whether to set a group to it: the group was certainly there as of the time, or when its topic was deleted."""
        return self.state in {State.SET, State.TOPIC_DELETED} and self.offset >= 0
