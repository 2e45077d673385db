"""Objects that were listed, or planned, and are not there any more: whether a sweep took them, or they are lost."""

from typing import Final

from archiver.archive.handle import Archive
from archiver.archive.layout import Layout
from archiver.archive.swept import SweptPlace, read_swept_place
from archiver.errors import CorruptSegmentError, NotWholeError
from archiver.store.port import ObjectStore

_BELOW_PREFIX: Final = 4  # parts of a segment's key: topics, topic, partition, name


class SweptError(CorruptSegmentError):
    """A sweep took an object after its reading was planned."""


def gone_error(store: ObjectStore, key: str) -> CorruptSegmentError:
    """Return the error for an object that is gone. What was swept is read now: it was written down before the object went."""
    again = "run the same command again, but a restore, which goes on as it was planned, with another --id and an empty target"
    if _is_swept(store, key):
        return SweptError(
            f"{key}: a retention sweep took this object after its reading was planned, for its topic does not keep it any"
            f" longer; {again}: it goes on without these records"
        )
    return CorruptSegmentError(f"{key}: was listed, and is gone; {again}")


def _is_swept(store: ObjectStore, key: str) -> bool:
    parts = key.split("/")
    if len(parts) < _BELOW_PREFIX or parts[-_BELOW_PREFIX] != "topics":
        return False
    layout = Layout("/".join(parts[:-_BELOW_PREFIX]))
    found = layout.split_segment(key)
    if found is None:
        return False
    (topic, life, partition), base, _ = found
    try:
        swept = read_swept_place(Archive(store, layout), SweptPlace(topic, life, partition))
    except NotWholeError:
        return False
    return any(swept.within(base, base + 1))
