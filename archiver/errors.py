"""Every error raised on purpose. The class answers two questions: is a retry of use, and which exit code."""

from typing import ClassVar, Self

from archiver.interrupt import EXIT_CODE, INTERRUPTED


class ArchiverError(Exception):
    """Something went wrong that a user can understand. Messages say what, where, and what to do next."""

    exit_code: ClassVar[int] = 1
    retriable: ClassVar[bool] = False
    # Whether line breaks in the message are ours; those in what was read elsewhere must not make lines of their own.
    has_lines: bool = False

    def in_lines(self) -> Self:
        """Say that its line breaks are meant."""
        self.has_lines = True
        return self


class UsageError(ArchiverError):
    """The command line or the configuration is wrong; a line for each mistake."""

    exit_code = 2
    has_lines = True


class PredicateError(UsageError):
    """A predicate cannot be worked out: no way on leads over the same command."""


class NotWholeError(ArchiverError):
    """The archive, or a comparison with it, is not whole."""

    exit_code = 3


class TemporaryError(ArchiverError):
    """It may work when tried again. `cause` is a word for metrics: a code or a class name, never free text."""

    exit_code = 4
    retriable = True

    def __init__(self, message: str, *, cause: str = "") -> None:
        super().__init__(message)
        self.cause = cause or type(self).__name__


class StoppedError(TemporaryError):
    """A signal came before the end."""

    exit_code = EXIT_CODE

    def __init__(self) -> None:
        super().__init__(INTERRUPTED)


class DroppedError(TemporaryError):
    """Records of a partition were held when its work ended, and are not known to be in the archive."""

    def __init__(self, message: str, *, records: int) -> None:
        super().__init__(message)
        self.records = records


class CorruptBatchError(NotWholeError):
    """A record batch that cannot be trusted: bad CRC, bad structure, unknown codec.

    `good_bytes` is how much of the fetched bytes lies before it.
    """

    def __init__(self, message: str, *, good_bytes: int = 0) -> None:
        super().__init__(message)
        self.good_bytes = good_bytes


class UnsupportedBatchError(CorruptBatchError):
    """A batch format that this version does not read (message sets v0 and v1)."""


class LargeBatchError(CorruptBatchError):
    """A record batch that opens to more than is allowed (backup.batch.bytes)."""


class MisplacedBatchError(CorruptBatchError):
    """A record batch that says of itself to be where it cannot be; no checksum covers that.

    `next_offset` is where the next one begins, or the log ends; -1: not known.
    """

    def __init__(self, message: str, *, next_offset: int = -1) -> None:
        super().__init__(message)
        self.next_offset = next_offset


class CorruptSegmentError(NotWholeError):
    """An archived object whose bytes do not agree with its facts."""


class FalseFactsError(ArchiverError):
    """An object that is whole has other facts than those by which its reading was planned: nobody knows what else is missing."""

    exit_code = 3


class FormatTooNewError(NotWholeError):
    """An object written by a later version of the format."""


class StoreError(ArchiverError):
    """The object store refused."""


class StoreLacksError(StoreError):
    """The object store cannot do what was asked, whoever asks, and whenever."""


class StoreNameError(StoreError):
    """The object store takes no object of this name."""


class StoreTemporaryError(TemporaryError):
    """The store did not do it now: throttled, timed out, broken connection. For a put: the outcome is unknown."""


class KafkaError(ArchiverError):
    """The broker refused. `code` is Kafka's own, and `said` what came with it, where a broker gave them."""

    def __init__(self, message: str, *, code: int = 0, said: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.said = said


class TargetError(KafkaError):
    """Topics, as they are, cannot take what is to be restored into them; a line for each problem."""

    exit_code = 2
    has_lines = True


class KafkaTemporaryError(TemporaryError):
    """The broker did not do it now; metadata may have to be read again."""


class CutBackError(NotWholeError):
    """The broker's log no longer goes on from what was read of it: it lost records, and may have others there now."""


class TopicGoneError(KafkaError):
    """The topic was deleted, and perhaps created again: another one has its name."""


class StrangerError(NotWholeError):
    """Someone else wrote where only we should have."""
