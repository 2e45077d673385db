"""Member of a consumer group: receives the assignment, and commits hints of archive ends. It fetches no record."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupState, KafkaException, Message
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient

from archiver.config import model as config
from archiver.errors import ArchiverError, KafkaError, KafkaTemporaryError
from archiver.kafka.brokers.cluster import TopicPartition
from archiver.kafka.brokers.codes import NOT_LET_IN, client_error
from archiver.kafka.groups.group import GroupSettings, Hint, MembershipCounters, Owner, hint_of
from archiver.kafka.groups.group_errors import COMMIT_AGAIN, REFUSALS, TOO_LATE, group_error
from archiver.kafka.login.settings import KafkaSettings
from archiver.process.output.defects import as_ours
from archiver.process.output.text import spell_count

log = logging.getLogger(__name__)

# With the session's time, the longest callback, and how long a rebalance waits for a member that librdkafka does not let rejoin.
MAX_POLL_INTERVAL_MS = 60_000
_LONGEST_REFRESH_MS = 3_600_000  # the largest value that librdkafka takes
_LONGEST_HEARTBEAT_MS = 3_000  # its default; a third of a shorter session timeout
_STEP_S = 0.1  # longest wait of a queued command
_ADMIN_TIMEOUT_S = 5.0
_ANY_OFFSET = 0  # nothing is fetched; with an explicit offset librdkafka does not ask for the committed one

_OF_COORDINATOR = "GroupCoordinator: "  # how librdkafka's messages about the connection to the coordinator begin
_RECENT_S = 60.0  # librdkafka suppresses a message that it repeats within 30 s

_COMMIT_RETRIES = 20


class Membership:
    """A member of the group, in a thread of its own. Every method may be called from any thread.

    Partitions are assigned at an explicit offset and paused at once, so that nothing is fetched. Lost
    partitions stay with the owner until we have rejoined: an unreachable group does not reassign them.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        group: GroupSettings,
        owner: Owner,
        *,
        retry_s: float = 5.0,
        admission_s: float = 15.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`retry_s` passes before a broken consumer is replaced, `admission_s` before a silent group is asked whether we are in it."""
        self._settings = settings
        self._group = group
        self._owner = owner
        self._retry_s = retry_s
        self._admission_s = admission_s
        self._clock = clock
        # A consumer of its own for questions: the member's may wait in a callback or be closed meanwhile.
        reader = {"group.id": group.group, "enable.auto.commit": False, "log_level": 2}
        self._reader = Consumer({**settings.for_confluent(), **reader})
        self._thread = threading.Thread(target=self._run, name=f"membership {group.group}", daemon=True)
        self._lock = threading.Lock()  # guards the queues
        self._queued: dict[TopicPartition, Hint] = {}
        self._wanted: tuple[str, ...] = ()
        self._last_hints: tuple[Hint, ...] = ()
        self._leaving = threading.Event()
        self._counters = MembershipCounters()
        self._error: ArchiverError | None = None
        # All below belongs to the thread.
        self._held: set[TopicPartition] = set()
        self._unsure: frozenset[TopicPartition] = frozenset()  # lost, without a known new owner: our worker goes on
        self._subscribed: tuple[str, ...] = ()
        self._serving = False
        self._out_since_s: float | None = clock()  # since when the group has refused us; None: it has accepted us
        self._asked_at_s = 0.0
        self._is_missed = (
            False  # brokers have answered since we lost partitions, and this consumer was not in the group
        )
        self._complaint: tuple[ClientError, float] | None = None  # the last one of the coordinator, and when
        self._delivered = False

    def start(self, topics: Sequence[str]) -> None:
        """Join with these topics (literal names). Call once."""
        self.subscribe(topics)
        self._thread.start()

    def subscribe(self, topics: Sequence[str]) -> None:
        """Subscribe to these topics from now on. Empty: release all partitions, but stay usable."""
        self._wanted = tuple(sorted(set(topics)))

    def commit(self, hints: Sequence[Hint]) -> None:
        """Queue hints; the newest of a partition counts. Hints of partitions that are no longer assigned are dropped."""
        with self._lock:
            self._queued |= {(hint.topic, hint.partition): hint for hint in hints}

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Hint]:
        """Return the commits of the group by any member; partitions without a commit are left out. Blocks for one request."""
        wanted = [ClientPartition(topic, number) for topic, number in sorted(set(partitions))]
        if not wanted:
            return {}
        what = f"group {self._group.group}: committed positions could not be read"
        try:
            found = self._reader.committed(wanted, self._settings.request_timeout_ms / 1000)
        except KafkaException as error:
            raise group_error(error.args[0], what) from error
        for row in found:
            if row.error is not None:
                raise group_error(row.error, f"{what}: {row.topic}-{row.partition}")
        return {(row.topic, row.partition): _hint(row) for row in found if row.offset >= 0}

    def close(self, hints: Sequence[Hint], timeout_s: float) -> bool:
        """Commit, leave the group, end the thread. The owner is not called any more, unless a call is under way.

        False: closing takes longer and continues in its daemon thread.
        """
        self._last_hints = tuple(hints)
        self._leaving.set()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    @property
    def counters(self) -> MembershipCounters:
        """A copy of the counters."""
        now = self._counters
        return replace(now, commit_failures=Counter(now.commit_failures), client_errors=Counter(now.client_errors))

    @property
    def is_member(self) -> bool:
        """Whether the group has accepted us, with or without partitions."""
        return self._out_since_s is None

    @property
    def shut_out_s(self) -> float:
        """Seconds since the group refused us with `error`; else 0."""
        since_s = self._out_since_s
        return 0.0 if since_s is None or self._error is None else self._clock() - since_s

    @property
    def error(self) -> ArchiverError | None:
        """Why the group refuses us. Joining is retried all the time; None after success."""
        return self._error

    # --- the thread

    def _run(self) -> None:
        while not self._leaving.is_set():
            if not self._wanted:
                self._leaving.wait(_STEP_S)
                continue
            try:
                with self._consumer() as consumer:
                    self._serve(consumer)
            except Exception as error:  # noqa: BLE001 - no other code would report it
                self._counters.restarts += 1
                self._refuse(self._broken(error))
                self._leaving.wait(self._retry_s)

    @contextmanager
    def _consumer(self) -> Iterator[Consumer]:
        consumer = Consumer(self._properties())
        self._subscribed = ()
        self._asked_at_s = self._clock()
        if self._error is None:
            self._out_since_s = self._asked_at_s
        self._serving = True
        try:
            yield consumer
        except Exception:
            self._unsure |= self._held
            raise
        finally:
            self._serving = False
            self._held.clear()
            if self._is_missed:  # closing waits for minutes, for commits that it cannot send
                threading.Thread(target=consumer.close, daemon=True).start()
            else:
                consumer.close()

    def _serve(self, consumer: Consumer) -> None:
        """Be a member until no topics are left or we leave. Both end by closing the consumer: unsubscribed, librdkafka 2.16
        sends a heartbeat that brokers of the consumer protocol refuse, and breaks.
        """
        while self._wanted and not self._leaving.is_set():
            self._subscribe(consumer)
            self._commit_queued(consumer)
            self._take_event(consumer, consumer.poll(_STEP_S))
            self._take_complaint()
            self._ask_for_ourselves(consumer)
        if self._leaving.is_set():
            self._commit_now(consumer, self._last_hints)
        else:
            self._give_back(consumer, sorted(self._held))
            self._report_lost()
            self._fall_out()

    def _properties(self) -> dict[str, Any]:
        group = self._group
        properties = {
            **self._settings.for_confluent(),
            "group.id": group.group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "max.poll.interval.ms": MAX_POLL_INTERVAL_MS + group.session_timeout_ms,
            "topic.metadata.refresh.interval.ms": min(group.refresh_ms, _LONGEST_REFRESH_MS),
            "error_cb": self._take_error,
            "on_commit": self._note_commit,
            "logger": _LibrdkafkaLog(),
        }
        match group.protocol:
            case config.GroupProtocol.CLASSIC:
                return properties | {
                    "partition.assignment.strategy": "cooperative-sticky",
                    "session.timeout.ms": group.session_timeout_ms,
                    "heartbeat.interval.ms": min(_LONGEST_HEARTBEAT_MS, group.session_timeout_ms // 3),
                }
            case config.GroupProtocol.CONSUMER:
                return properties | {"group.protocol": "consumer"}

    def _subscribe(self, consumer: Consumer) -> None:
        wanted = self._wanted
        if wanted and wanted != self._subscribed:
            consumer.subscribe(list(wanted), on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost_some)
            self._subscribed = wanted

    def _take_event(self, consumer: Consumer, message: Message | None) -> None:
        error = message.error() if message is not None else None
        if error is not None:
            self._take_error(error)
        elif message is not None:
            self._silence(consumer, ClientPartition(str(message.topic()), int(message.partition() or 0)))

    def _silence(self, consumer: Consumer, partition: ClientPartition) -> None:
        """Pause a partition that delivered a record: fetching it here as well would read every byte twice."""
        if not self._delivered:
            what = "group %s: a record of %s-%d came, though it is paused; please report it"
            log.error(what, self._group.group, partition.topic, partition.partition)
        self._delivered = True
        consumer.pause([partition])

    # --- assignment: in the thread, inside poll

    def _assigned(self, consumer: Consumer, partitions: list[ClientPartition]) -> None:
        if not self._serving:
            return
        explicit = [ClientPartition(row.topic, row.partition, _ANY_OFFSET) for row in partitions]
        consumer.incremental_assign(explicit)
        self._admit()
        if not explicit:
            return
        consumer.pause(explicit)
        gained = _keys(explicit)
        self._held.update(gained)
        self._counters.rebalances += 1
        self._owner.gained(gained)

    def _revoked(self, consumer: Consumer, partitions: list[ClientPartition]) -> None:
        if not self._serving:
            return
        self._give_back(consumer, self._leave_out_strangers(partitions))
        consumer.incremental_unassign(partitions)

    def _give_back(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if partitions:
            self._counters.rebalances += 1
            self._commit_now(consumer, self._owner.revoked(partitions))
            self._held.difference_update(partitions)

    def _lost_some(self, consumer: Consumer, partitions: list[ClientPartition]) -> None:
        if not self._serving:
            return
        lost = self._leave_out_strangers(partitions)
        self._fall_out()  # until the next assignment
        if lost:
            self._counters.rebalances += 1
            self._held.difference_update(lost)
            self._unsure |= {*lost}
        consumer.incremental_unassign(partitions)

    def _report_lost(self) -> None:
        lost, self._unsure = sorted(self._unsure), frozenset()
        if lost:
            self._owner.lost(lost)

    def _leave_out_strangers(self, partitions: list[ClientPartition]) -> list[TopicPartition]:
        return [key for key in _keys(partitions) if key in self._held]

    # --- commits

    def _commit_queued(self, consumer: Consumer) -> None:
        with self._lock:
            hints, self._queued = self._queued, {}
        positions = self._positions(hints.values())
        if not positions:
            return
        try:
            consumer.commit(offsets=positions, asynchronous=True)
        except KafkaException as error:
            self._note_commit(error.args[0], positions)

    def _commit_now(self, consumer: Consumer, hints: Sequence[Hint]) -> None:
        """Commit, and wait for the answer; without a coordinator, for the session timeout."""
        positions = self._positions(hints)
        if not positions:
            return
        error = _commit(consumer, positions)
        for _ in range(_COMMIT_RETRIES):
            if error is None or error.code() not in COMMIT_AGAIN:
                break
            threading.Event().wait(_STEP_S)  # meanwhile a thread of librdkafka finishes its part of the rebalance
            error = _commit(consumer, positions)
        self._note_commit(error, positions)

    def _positions(self, hints: Iterable[Hint]) -> list[ClientPartition]:
        return [
            ClientPartition(hint.topic, hint.partition, hint.offset, metadata=hint.metadata)
            for hint in hints
            if (hint.topic, hint.partition) in self._held
        ]

    def _note_commit(self, error: ClientError | None, positions: list[ClientPartition]) -> None:
        if error is None:
            self._counters.commits += 1
            return
        self._counters.commit_failures[error.name()] += 1
        level = logging.DEBUG if error.code() in TOO_LATE else logging.WARNING
        what = "group %s: hints of %s were not committed: %s; the archive needs none"
        log.log(level, what, self._group.group, spell_count(len(positions), "partition"), error.str())

    # --- errors

    def _take_error(self, error: ClientError) -> None:
        """Count an error. librdkafka recovers from most; fatal ones are raised, refusals and complaints are stored."""
        self._counters.client_errors[error.name()] += 1
        log.debug("group %s: %s", self._group.group, error.str())
        if error.code() == ClientError._FATAL:  # noqa: SLF001 - public; fatal() is false of what comes through poll
            raise KafkaException(error)
        if error.code() in REFUSALS:
            self._refuse(group_error(error, f"group {self._group.group} does not let us in"))
        elif error.str().startswith(_OF_COORDINATOR):
            self._complaint = error, self._clock()

    def _take_complaint(self) -> None:
        """Make the last complaint about the coordinator our error, at once or after a while: it may be down briefly."""
        if self._complaint is None or self._error is not None:
            return
        error, at_s = self._complaint
        now_s = self._clock()
        is_refusal = error.code() in NOT_LET_IN
        if self._out_since_s is None:
            # With the consumer protocol librdkafka ends no session while the coordinator is silent.
            is_due = is_refusal and self._group.protocol is config.GroupProtocol.CONSUMER
        else:
            is_due = at_s > self._out_since_s - _RECENT_S and (
                is_refusal or now_s - self._out_since_s >= self._admission_s
            )
        if is_due:
            what = f"group {self._group.group}: its coordinator cannot be asked"
            self._refuse(client_error(error.code(), what, error.str().removeprefix(_OF_COORDINATOR)))

    def _broken(self, error: Exception) -> ArchiverError:
        what = f"group {self._group.group}: its consumer broke"
        if isinstance(error, KafkaException):
            return group_error(error.args[0], what)
        return as_ours(error, what)

    def _refuse(self, error: ArchiverError) -> None:
        if str(error) != str(self._error):
            log.error("%s", error)
        self._error = error
        self._fall_out()

    def _fall_out(self) -> None:
        self._asked_at_s, self._is_missed = self._clock(), False
        if self._out_since_s is None:
            self._out_since_s = self._asked_at_s

    def _admit(self) -> None:
        if self._error is not None:
            log.info("group %s lets us in again", self._group.group)
        self._error = self._out_since_s = self._complaint = None
        self._report_lost()

    def _ask_for_ourselves(self, consumer: Consumer) -> None:
        """Ask the group whether we are a member. librdkafka is silent in three cases: a refusal ended before the session did, the
        broker lacks the consumer protocol, or we got no partitions with it.
        """
        if self.is_member or not self._subscribed or self._clock() - self._asked_at_s < self._admission_s:
            return
        name = self._group.group
        is_classic = self._group.protocol is config.GroupProtocol.CLASSIC
        admin = AdminClient({**self._settings.for_confluent(), "log_level": 2})
        try:
            group = admin.describe_consumer_groups([name], request_timeout=_ADMIN_TIMEOUT_S)[name].result()
        except KafkaException as error:
            self._is_missed = False
            if not is_classic:  # else librdkafka reports it
                self._take_error(error.args[0])
        else:
            is_listed = consumer.memberid() in [member.member_id for member in group.members]
            if is_listed and (group.state is ConsumerGroupState.STABLE or not is_classic):
                self._admit()
            elif is_classic:
                self._replace_if_missing(is_listed)
            elif self._error is None:
                hint = "backup.group-protocol: consumer needs brokers from 4.0 that have it enabled"
                self._refuse(KafkaError(f"group {name} does not let us in, and does not say why; {hint}"))
        self._asked_at_s = self._clock()

    def _replace_if_missing(self, is_listed: bool) -> None:
        """Raise an error if brokers have answered twice, and our consumer has not joined again. A broker that stops may tell of no
        broker: librdkafka then forgets the last one that it knew, and looks for none.
        """
        is_refused = self._error is not None and not self._error.retriable
        was_missed, self._is_missed = self._is_missed, bool(self._unsure) and not is_listed and not is_refused
        if was_missed and self._is_missed:
            raise KafkaTemporaryError(f"group {self._group.group}: its consumer does not come back, and is replaced")


class _LibrdkafkaLog:
    """Takes librdkafka's log. It repeats messages about connections, so only the worst go to our log above debug."""

    def log(self, level: int, text: str, *fields: object) -> None:
        log.log(logging.ERROR if level >= logging.CRITICAL else logging.DEBUG, text, *fields)


def _commit(consumer: Consumer, positions: list[ClientPartition]) -> ClientError | None:
    try:
        consumer.commit(offsets=positions, asynchronous=False)
    except KafkaException as error:
        cause: ClientError = error.args[0]
        return cause
    return None


def _keys(partitions: Iterable[ClientPartition]) -> list[TopicPartition]:
    return [(row.topic, row.partition) for row in partitions]


def _hint(row: ClientPartition) -> Hint:
    return hint_of(row.topic, row.partition, row.offset, row.metadata or "")
