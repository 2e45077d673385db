"""Imports log directories into a store in memory, and reads what came there with fastavro."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import fastavro

from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.archive.segments.segment_writer import SegmentLimits
from archiver.archive.segments.spool import Spool
from archiver.backup.partition.segment_sink import SegmentSink
from archiver.backup.reports.ledger import NO_LEDGER
from archiver.imports.filling.import_run import ImportResult, run_import
from archiver.imports.logs.log_import import LogImportRequest, plan_import
from archiver.process.running.silence import SilenceCounter
from tests.support.frames import of_avro
from tests.support.memory_store import MemoryStore
from tests.support.records import Rec

_LAYOUT = Layout("p")


def import_logs(sources: Sequence[Path], spool: Path, **asked: Any) -> tuple[ImportResult, MemoryStore]:  # noqa: ANN401 - of a request
    """Import into a new archive."""
    store = MemoryStore()
    request = LogImportRequest(sources=sources, **asked)
    sink = SegmentSink(
        archive=Archive(store, _LAYOUT),
        limits=SegmentLimits(uncompressed_bytes=0, records=1_000_000),
        age_s=1e9,
        spool=Spool(spool),
        clock=lambda: 0.0,
        silence_counter=SilenceCounter(1e9),
        ledger=NO_LEDGER,
    )
    return run_import(plan_import(request, lambda _: None), request, sink, lambda _: None, lambda _: None), store


def imported_records(store: MemoryStore) -> dict[int, list[Rec]]:
    """Return the records of all segments by partition, in the order of their keys."""
    found: dict[int, list[Rec]] = {}
    for key, stored in sorted(store.objects.items()):
        segment = _LAYOUT.parse_segment(key)
        if segment is not None:
            rows = fastavro.reader(io.BytesIO(stored.body), handle_unicode_errors="surrogateescape")
            found.setdefault(segment.partition, []).extend(of_avro(cast("dict[str, Any]", row)) for row in rows)
    return found
