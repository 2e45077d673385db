"""The probe object: tests at each start of a writer whether a store can hold an archive."""

from collections.abc import Mapping
from typing import Final

from archiver.archive.format.control import encode_fact, most_fact_bytes
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.archive.format.readme import put_readme
from archiver.archive.segments.segment_facts import Hole, HoleCause, SegmentFacts
from archiver.archive.segments.segment_writer import MOST_HOLES
from archiver.errors import StoreError, StoreLacksError, StoreTemporaryError
from archiver.store.port import ObjectKind

_STREAM: Final = "probe"
CONTENT: Final = encode_fact({"format": 1})
# The most metadata that segments ever have, with an empty value, as in segments. It must never change: archives contain it.
METADATA: Final = SegmentFacts(
    format=1,
    writer="probe",
    cluster_id="c" * 22,
    topic_id="",
    leader_epoch=2**31 - 1,
    base=2**62,
    first=2**62 + 1,
    last=2**63 - 3,
    next=2**63 - 1,
    records=2**61,
    tombstones=2**60,
    min_timestamp=-(2**63),
    max_timestamp=2**63 - 1,
    timestamp_types=(-1, 0, 1),
    bytes=2**62,
    largest_record=2**40,
    source_bytes=2**62,
    holes=tuple(
        Hole(first_offset=2**62 + 10 * number, last_offset=2**62 + 10 * number + 3, cause=HoleCause.EXPIRED)
        for number in range(MOST_HOLES)
    ),
    sha256="f" * 64,
    digest=2**61 - 2,
).to_metadata()


def probe_key(layout: Layout) -> str:
    """Return the key of the probe object: every writer puts it, no writer deletes it."""
    return layout.fact_key(_STREAM, 0)


def probe_store(archive: Archive) -> None:
    """Refuse a store that overwrites, or changes metadata. In another one, put the readme.

    All writers put the same object, so none blocks another, even if killed at any time. The object stays: later probes try to
    overwrite it.
    """
    key = probe_key(archive.layout)
    try:
        # A second put is needed only if the first one did not find the object.
        overwrites = all(
            archive.store.put_if_absent(key, CONTENT, METADATA, kind=ObjectKind.FACT) is not None for _ in range(2)
        )
    except StoreLacksError as error:
        raise StoreError(_unsafe(key, str(error))) from error
    if overwrites:
        raise StoreError(_unsafe(key, "it overwrote an object"))
    found = archive.store.get(key, most_fact_bytes(_STREAM))
    if found is None:
        raise StoreTemporaryError(f"{key}: was put, and is not there; who deletes objects of the archive?")
    changed = [name for name, text in METADATA.items() if found[1].get(name) != text]
    if changed:
        raise StoreError(
            f"{key}: the store does not give back metadata as it was put ({', '.join(changed)}); what is archived there could"
            " not be read. Use S3, MinIO or another store that keeps it; if this object was copied here without its metadata,"
            " so were the others: copy them again"
        )
    put_readme(archive)


def probe_problem(layout: Layout, key: str, content: bytes, metadata: Mapping[str, str]) -> str | None:
    """Return the problem of a probe object, or an empty text; None: the key is not the probe's key."""
    if key != probe_key(layout):
        return None
    # Stores may drop empty values; readers treat a missing value as empty.
    kept = {name: text for name, text in METADATA.items() if text}
    is_good = content == CONTENT and kept.items() <= metadata.items()
    return "" if is_good else f"{key}: is not what a writer puts there; delete it"


def _unsafe(key: str, why: str) -> str:
    return (
        f"{key}: the store does not honour If-None-Match: * on put ({why}); an archive there could be destroyed by a second"
        " writer. Use S3, MinIO or another store with conditional writes"
    )
