"""Checks each object below `control/`: notes, offset maps, folds, lists of chosen records, the index, the probe."""

from collections.abc import Callable, Mapping

from archiver.archive.format.control import decode_fact, encode_fact, has_digest, most_fact_bytes, turn_for
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.archive.index.index_file import MOST_FILE_BYTES
from archiver.archive.index.index_generations import INDEX_DIGEST, check_index_file
from archiver.archive.restores.chosen_records import CHOSEN_DIGEST, MOST_CHOSEN_BYTES, check_chosen
from archiver.archive.restores.offset_map import HOW_TO_MEND, MOST_MAP_BYTES, check_offset_map
from archiver.archive.segments.probe import probe_problem
from archiver.errors import CorruptSegmentError, NotWholeError
from archiver.groups.log.fold_object import HOW_TO_MEND as MEND_FOLD
from archiver.groups.log.fold_object import MOST_FOLD_BYTES, check_fold
from archiver.process.running.workers import side_by_side
from archiver.store.port import ListedObject, refuse_larger

_READS_AT_ONCE = 16
MEND_INDEX = (
    "it remembered where partitions ended: hold that against Kafka (--against-kafka), then delete it: it is a cache"
)


def check_control(archive: Archive) -> list[str]:
    """Read all control objects: facts, offset maps, lists of chosen records, the index, the probe. Returns damaged ones."""
    listed = list(archive.store.list(archive.layout.control_root))

    def problem_of(item: ListedObject) -> str:
        try:
            refuse_larger(item.key, item.size, _most_bytes(archive.layout, item.key))
            with turn_for(item.size):
                found = archive.store.get(item.key, item.size)
                return "" if found is None else control_problem(archive.layout, item.key, *found)
        except CorruptSegmentError as error:
            return str(error)

    return [problem for problem in side_by_side(_READS_AT_ONCE, problem_of, listed, "control") if problem]


def _most_bytes(layout: Layout, key: str) -> int:
    """Return the largest size of the control object of this key, in bytes."""
    if key.startswith(layout.index_prefix):
        return MOST_FILE_BYTES
    if layout.parse_offset_map(key) is not None:
        return MOST_MAP_BYTES
    if layout.parse_fold(key) is not None:
        return MOST_FOLD_BYTES
    if layout.is_chosen(key):
        return MOST_CHOSEN_BYTES
    fact = layout.split_fact(key)
    return most_fact_bytes(fact[0] if fact is not None else "")


def control_problem(layout: Layout, key: str, content: bytes, metadata: Mapping[str, str]) -> str:
    """Return the problem of a control object; an empty text if it has none."""
    try:
        _check_control_object(layout, key, content, metadata)
    except NotWholeError as error:
        return str(error)
    except RecursionError:
        return f"{key}: is not as it was written: nested too deep"
    return ""


def _check_control_object(layout: Layout, key: str, content: bytes, metadata: Mapping[str, str]) -> None:
    if key.startswith(layout.index_prefix):
        _check_container(lambda: check_index_file(content, metadata, key), MEND_INDEX, metadata, key)
    elif (offset_map := layout.parse_offset_map(key)) is not None:
        _check_container(lambda: check_offset_map(content, metadata, offset_map, key), HOW_TO_MEND, metadata, key)
    elif (fold := layout.parse_fold(key)) is not None:
        _check_container(lambda: check_fold(content, metadata, fold, key), MEND_FOLD, metadata, key)
    elif (problem := probe_problem(layout, key, content, metadata)) is not None:
        if problem:
            raise CorruptSegmentError(problem)
    elif layout.is_chosen(key):
        check_chosen(content, metadata.get(CHOSEN_DIGEST), key)
    elif (fact := layout.split_fact(key)) is None:
        raise CorruptSegmentError(f"{key}: is not one of ours")
    elif encode_fact(decode_fact(content, key, fact[0])) != content:
        what = "is not as it was written"
        if not has_digest(content):
            what = "has no sha256, and nothing tells whether it is as it was written"
        raise CorruptSegmentError(f"{key}: {what}; bring its older version back")


def _check_container(check: Callable[[], object], mend: str, metadata: Mapping[str, str], key: str) -> None:
    """Check an object with records, runs or entries. Readers need no digest of it, but only that reveals some changed bits."""
    try:
        check()
    except NotWholeError as error:
        raise CorruptSegmentError(f"{error}; {mend}") from error
    if INDEX_DIGEST not in metadata:
        raise CorruptSegmentError(f"{key}: has no {INDEX_DIGEST} metadata; copy it again, with its metadata")
