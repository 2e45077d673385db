"""Every error raised on purpose. The class decides whether a retry may help, and the exit code."""

from typing import ClassVar, Self

from archiver.interrupt import EXIT_CODE, INTERRUPTED


class ArchiverError(Exception):
    """An error that a user can understand. Its message has the problem, the place, and the next step."""

    exit_code: ClassVar[int] = 1
    retriable: ClassVar[bool] = False
    # Whether the message's line breaks are ours. A line break in a text that was read elsewhere must not begin a line.
    has_lines: bool = False

    def in_lines(self) -> Self:
        """Mark the line breaks in the message as ours."""
        self.has_lines = True
        return self

    @property
    def lines(self) -> list[str]:
        """The message, split at its own line breaks."""
        return str(self).split("\n") if self.has_lines else [str(self)]


class UsageError(ArchiverError):
    """The command line or the configuration is wrong; a line for each mistake."""

    exit_code = 2
    has_lines = True


class PredicateError(UsageError):
    """A predicate cannot be evaluated: typing the same command again does not help."""


class NotWholeError(ArchiverError):
    """The archive, or a comparison with it, is not whole."""

    exit_code = 3


class TemporaryError(ArchiverError):
    """A retry may succeed. `cause` is a word for metrics: a code or a class name, never free text."""

    exit_code = 4
    retriable = True

    def __init__(self, message: str, *, cause: str = "") -> None:
        super().__init__(message)
        self.cause = cause or type(self).__name__


class SpoolFullError(TemporaryError):
    """The spool has no room for fetched records."""

    def __init__(self, message: str) -> None:
        super().__init__(message, cause="spool_full")


class StoppedError(TemporaryError):
    """A signal ended the command early."""

    exit_code = EXIT_CODE

    def __init__(self) -> None:
        super().__init__(INTERRUPTED)


class DroppedError(TemporaryError):
    """The work on a partition ended with records in memory that are not proved to be in the archive."""

    def __init__(self, message: str, *, records: int) -> None:
        super().__init__(message)
        self.records = records


class CorruptBatchError(NotWholeError):
    """A record batch that cannot be trusted: bad CRC, bad structure, unknown codec.

    `good_bytes`: the number of fetched bytes before the batch.
    """

    def __init__(self, message: str, *, good_bytes: int = 0) -> None:
        super().__init__(message)
        self.good_bytes = good_bytes


class UnsupportedBatchError(CorruptBatchError):
    """A format or a compression that this version does not know."""


class LargeBatchError(CorruptBatchError):
    """A record batch that decompresses to more than backup.batch.bytes allows."""


class MisplacedBatchError(CorruptBatchError):
    """A record batch whose header names an offset at which it cannot be. No checksum covers that field.

    `next_offset`: the start of the next batch, or the end of the log; -1: unknown.
    """

    def __init__(self, message: str, *, next_offset: int = -1) -> None:
        super().__init__(message)
        self.next_offset = next_offset


class CorruptSegmentError(NotWholeError):
    """An archived object whose bytes do not agree with its facts."""


class TooLargeError(CorruptSegmentError):
    """An object larger than this program writes. It was not read."""


class SweptError(CorruptSegmentError):
    """A sweep deleted an object after its reading was planned: its retention ended, or another object has its records."""


class FalseFactsError(ArchiverError):
    """A whole object's facts differ from those in the plan of a reading, so other objects may be missing from the plan."""

    exit_code = 3


class FormatTooNewError(NotWholeError):
    """An object written by a later version of the format."""


class StoreError(ArchiverError):
    """The object store refused a request."""


class StoreLacksError(StoreError):
    """The object store does not support the request: not for any user, and not later."""


class StoreNameError(StoreError):
    """The object store refuses objects with this name."""


def with_text(error: ArchiverError | TimeoutError) -> ArchiverError:
    """Return an ArchiverError unchanged, and a temporary error for a timeout, which has no text."""
    return error if isinstance(error, ArchiverError) else TemporaryError("no answer in time")


class StoreTemporaryError(TemporaryError):
    """The store failed for now: throttled, timed out, broken connection. The outcome of such a put is unknown."""


class KafkaError(ArchiverError):
    """The broker refused a request. `code`: Kafka's own code; `said`: the broker's text; both if the answer had them."""

    def __init__(self, message: str, *, code: int = 0, said: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.said = said


class NotLetInError(KafkaError):
    """A broker refuses every connection of this process: by its login, by TLS, or because the port speaks something else."""

    cause: ClassVar[str] = "NOT_LET_IN"


class TargetError(KafkaError):
    """The target topics cannot take the restored records now; a line for each problem."""

    exit_code = 2
    has_lines = True


class KafkaTemporaryError(TemporaryError):
    """The broker failed for now; metadata may have to be read again."""


class NoTopicIdError(KafkaError):
    """Brokers report a topic without a topic id, and the archive has none for it: the topic is not archived."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"topic {topic} has no topic id, so it cannot be archived: raise inter.broker.protocol.version to 2.8 or later on all"
            " brokers"
        )


class LostTopicIdError(KafkaTemporaryError):
    """Brokers report a topic without the topic id that it had: unknown whether it is the same topic."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"topic {topic} had a topic id and brokers report none now, so its backup waits: if this lasts, raise"
            " inter.broker.protocol.version to 2.8 or later on all brokers",
            cause="NO_TOPIC_ID",
        )


class CutBackError(NotWholeError):
    """The broker's log was cut back below offsets that were already read: it lost records, and may have others there now."""


class TopicGoneError(KafkaError):
    """The topic was deleted; a present topic of its name is another one."""


class StrangerError(NotWholeError):
    """Another program wrote where only this one may."""


class ForeignArchiveError(StrangerError):
    """The archive is that of another cluster: nothing is written to it."""
