"""Reports the wait of a backup for its assignment: the reason, the longest duration, and the end."""

import time
from collections.abc import Callable, Collection
from typing import Final

from archiver.config.model import ArchiverConfig, GroupProtocol
from archiver.kafka.brokers.cluster import TopicPartition
from archiver.kafka.groups.membership import Membership
from archiver.process.output.progress import spell_seconds
from archiver.process.output.text import spell_count

_SILENT_S: Final = 5.0  # a healthy group assigns partitions within a few seconds


class JoinReport:
    """Reports each change once. `note_state` is called every second or so."""

    def __init__(
        self,
        config: ArchiverConfig,
        group: str,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._group = group
        self._say = say
        self._clock = clock
        self._has_joined = self._is_let_in = False
        self._say_at_s = clock() + _SILENT_S
        self._said = ""

    def note_state(self, held: Collection[TopicPartition], membership: Membership, *, has_topics: bool) -> None:
        if self._has_joined:
            return
        if held:
            self._has_joined = True
            self._say(self._joined(held))
        elif has_topics and membership.error is None:  # otherwise another line reports the problem
            self._note(is_let_in=membership.is_member and not self._has_brokers_timeout)

    def _note(self, *, is_let_in: bool) -> None:
        now_s, text = self._clock(), self._left_out() if is_let_in else self._waiting()
        if is_let_in is not self._is_let_in:
            self._is_let_in, self._say_at_s = is_let_in, now_s + _SILENT_S
        elif now_s >= self._say_at_s and text != self._said:
            self._said = text
            self._say(text)

    @property
    def _has_brokers_timeout(self) -> bool:
        """Whether the brokers' session timeout counts: then a member joins at once, and gets partitions when dead members expire."""
        return self._config.backup.group_protocol is GroupProtocol.CONSUMER

    def _joined(self, partitions: Collection[TopicPartition]) -> str:
        topics = {topic for topic, _ in partitions}
        what = f"{spell_count(len(partitions), 'partition')} of {spell_count(len(topics), 'topic')}"
        return f"archiving {what} into {self._config.storage.url}, as a member of group {self._group}"

    def _waiting(self) -> str:
        backup = self._config.backup
        longest = f"{spell_seconds(backup.session_timeout_ms / 1000)} (backup.session-timeout)"
        if self._has_brokers_timeout:
            longest = "the session timeout of the brokers"
        return (
            f"group {self._group} has no partition for this instance yet; one that ended without leaving the group holds its"
            f" partitions for up to {longest}"
        )

    def _left_out(self) -> str:
        return f"group {self._group} has let this instance in; other instances have all partitions"
