"""Where a group stood in a partition of one life of a topic, by the archive alone."""

from enum import StrEnum
from typing import Final, NamedTuple

UNKNOWN_MS: Final = -1


class State(StrEnum):
    """The state of an archived position."""

    SET = "set"
    TOPIC_DELETED = (
        "topic deleted"  # removed with its topic, or as the last one in it: this is where the group stood then
    )
    REMOVED = "removed"  # expired, or the group was deleted; where it stood then may not be known
    UNKNOWN = "unknown"  # a commit, or a removal, may be missing in the archive
    AMBIGUOUS = (
        "ambiguous"  # it may be of one life of its topic or of another, or the group stood at one of two offsets
    )


class Cause(StrEnum):
    """The cause of a removal, as far as the log shows it. It is displayed, and decides nothing."""

    NONE = ""  # it was not
    EXPIRED = "expired"
    GROUP_DELETED = "group deleted"
    TOPIC_DELETED = "topic deleted"
    UNKNOWN = "unknown"


class PositionSource(StrEnum):
    """What a position was read from."""

    LOG = "log"
    FOLD = "fold"
    SNAPSHOT = "snapshot"


class ArchivedPosition(NamedTuple):
    """Without a commit that is known, `offset` is -1."""

    group: str
    topic: str
    life: int  # without a parent; NOT_ARCHIVED: the archive does not have that topic, or AMBIGUOUS
    partition: int
    state: State
    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int  # by the clock of the broker
    at_offset: int  # of the record in `__consumer_offsets`
    removed_ms: int  # -1: not removed, or unknown
    at_ms: int = UNKNOWN_MS  # of that record; of a snapshot: when it was taken
    source: PositionSource = PositionSource.LOG
    known_from_ms: int = UNKNOWN_MS  # of an unknown position: the earliest time as of which it is known again
    removed_at: int = -1  # the offset of the record in `__consumer_offsets` that removed it
    cause: Cause = Cause.NONE
    is_stale: bool = False  # of a removed one: another commit may have come before its removal
    other_offset: int = -1  # where the group may have stood as well; -1: nowhere else
    other_ms: int = -1  # the commit time of that offset, or the time of its snapshot

    @classmethod
    def without_commit(cls, group: str, topic: str, partition: int, life: int, state: State) -> "ArchivedPosition":
        return cls(
            group=group,
            topic=topic,
            life=life,
            partition=partition,
            state=state,
            offset=-1,
            leader_epoch=-1,
            metadata="",
            commit_ms=-1,
            at_offset=-1,
            removed_ms=-1,
        )

    @property
    def is_between(self) -> bool:
        """Whether it is known which two offsets it may have stood at: nothing else is ambiguous."""
        return self.state is State.AMBIGUOUS and min(self.life, self.offset, self.other_offset) >= 0

    def earlier(self) -> "ArchivedPosition":
        """Return the position with the lower of its two offsets: to read again is right, to skip records is not."""
        if not 0 <= self.other_offset < self.offset:
            return self
        return self._replace(offset=self.other_offset, leader_epoch=-1, metadata="")

    @property
    def has_stood(self) -> bool:
        """Whether the group was at the offset: that of an unknown or removed position may be stale."""
        return self.offset >= 0 and self.state not in {State.UNKNOWN, State.REMOVED}

    @property
    def was_removed(self) -> bool:
        """Whether it was removed, or may have been; also if it counts as set."""
        return self.state in {State.REMOVED, State.TOPIC_DELETED} or self.cause is not Cause.NONE

    @property
    def is_removed_value_known(self) -> bool:
        """Whether it is known where the group stood when its position was removed."""
        return self.was_removed and self.offset >= 0 and self.life >= 0 and not self.is_stale

    @property
    def is_certain(self) -> bool:
        """Whether a group is to be set to it: it stood there, or stood there when its topic was deleted."""
        return self.state in {State.SET, State.TOPIC_DELETED} and self.offset >= 0
