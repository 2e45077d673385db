"""Archives in memory that imports fill, with segments of two records; a store that dies."""

from pathlib import Path
from typing import Any

from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.archive.segments.segment_writer import SegmentLimits
from archiver.archive.segments.spool import Spool
from archiver.backup.partition.segment_sink import SegmentSink
from archiver.backup.reports.ledger import NO_LEDGER
from archiver.process.running.silence import SilenceCounter
from tests.support.memory_store import MemoryStore

ARCHIVE = Layout("p")


class Died(BaseException):
    """The process ends here."""


class MortalStore(MemoryStore):
    """Dies at the put of that number, before or after it."""

    def __init__(self, dies_at: int, *, is_put: bool) -> None:
        super().__init__()
        self._left = dies_at
        self._is_put = is_put

    def put_if_absent(self, *arguments: Any, **named: Any) -> str | None:  # noqa: ANN401 - as the store's
        self._left -= 1
        if self._left == 0 and not self._is_put:
            raise Died
        etag = super().put_if_absent(*arguments, **named)
        if self._left == 0:
            raise Died
        return etag


def small_sink(store: MemoryStore, spool: Path) -> SegmentSink:
    spool.mkdir(exist_ok=True)
    return SegmentSink(
        archive=Archive(store, ARCHIVE),
        limits=SegmentLimits(uncompressed_bytes=0, records=2),
        age_s=1e9,
        spool=Spool(spool),
        clock=lambda: 0.0,
        silence_counter=SilenceCounter(1e9),
        ledger=NO_LEDGER,
    )


def bases(store: MemoryStore, partition: int = 0) -> list[int]:
    keys = (ARCHIVE.parse_segment(key) for key in sorted(store.objects))
    return [key.base for key in keys if key is not None and key.partition == partition]


def index_files(store: MemoryStore) -> set[str]:
    return {key for key in store.objects if "/index/" in key}
