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
        return _control_problem(layout, key, content, metadata)
    except NotWholeError as error:
        return str(error)
    except RecursionError:
        return f"{key}: is not as it was written: nested too deep"


def _control_problem(layout: Layout, key: str, content: bytes, metadata: Mapping[str, str]) -> str:
    container = _check_of_container(layout, key, content, metadata)
    if container is not None:
        return _problem_in(*container) or _without_digest(metadata, key)
    problem = probe_problem(layout, key, content, metadata)
    if problem is not None:
        return problem
    if layout.is_chosen(key):
        check_chosen(content, metadata.get(CHOSEN_DIGEST), key)
    elif (fact := layout.split_fact(key)) is not None:
        return _problem_of_fact(content, key, fact[0])
    else:
        return f"{key}: is not one of ours"
    return ""


def _check_of_container(
    layout: Layout, key: str, content: bytes, metadata: Mapping[str, str]
) -> tuple[Callable[[], None], str] | None:
    """Return the check of an object with records, runs or entries, and how to mend it; None for any other object."""
    if key.startswith(layout.index_prefix):
        return lambda: check_index_file(content, metadata, key), MEND_INDEX
    if (offset_map := layout.parse_offset_map(key)) is not None:
        return lambda: check_offset_map(content, metadata, offset_map, key), HOW_TO_MEND
    if (fold := layout.parse_fold(key)) is not None:
        return lambda: check_fold(content, metadata, fold, key), MEND_FOLD
    return None


def _problem_of_fact(content: bytes, key: str, stream: str) -> str:
    if encode_fact(decode_fact(content, key, stream)) == content:
        return ""
    if not has_digest(content):
        return f"{key}: has no sha256, and nothing tells whether it is as it was written; bring its older version back"
    return f"{key}: is not as it was written; bring its older version back"


def _without_digest(metadata: Mapping[str, str], key: str) -> str:
    """Return a problem if an object's metadata has no digest. Readers need none, but only a digest reveals some changed bits."""
    return (
        "" if INDEX_DIGEST in metadata else f"{key}: has no {INDEX_DIGEST} metadata; copy it again, with its metadata"
    )


def _problem_in(check: Callable[[], None], mend: str) -> str:
    try:
        check()
    except NotWholeError as error:
        return f"{error}; {mend}"
    return ""
