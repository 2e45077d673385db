"""Holds what all partition writers of a process share: archive, limits, memory budgets, spool, counters."""

from collections.abc import Callable
from dataclasses import dataclass, field

from archiver.archive.format.handle import Archive
from archiver.archive.index.fresh_entries import FreshEntries
from archiver.archive.segments.block_budget import BlockBudget, DecodingBudget
from archiver.archive.segments.segment_writer import SegmentLimits
from archiver.archive.segments.spool import Spool
from archiver.backup.reports.ledger import Ledger
from archiver.backup.reports.troubles import Troubles
from archiver.codec.batch import MOST_DECOMPRESSED_BYTES
from archiver.config.model import UnreadablePolicy
from archiver.process.running.silence import SilenceCounter


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentSink:
    """Shared by the writers of all partitions: the archive, segment limits, and the memory and files of open segments."""

    archive: Archive
    limits: SegmentLimits
    age_s: float
    spool: Spool
    clock: Callable[[], float]
    silence_counter: SilenceCounter
    ledger: Ledger
    decoding: DecodingBudget = field(default_factory=lambda: DecodingBudget(MOST_DECOMPRESSED_BYTES))
    most_batch_bytes: int = MOST_DECOMPRESSED_BYTES  # decompressed
    unreadable: UnreadablePolicy = UnreadablePolicy.STOP
    blocks: BlockBudget = field(default_factory=BlockBudget)
    fresh: FreshEntries = field(default_factory=FreshEntries)  # new objects, for the index of facts
    troubles: Troubles = field(default_factory=Troubles)
