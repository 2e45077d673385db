"""Counts control objects, and finds missing ones.

A control object is any object without records: facts, offset maps, lists of chosen records, the index, the probe.
"""

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from typing import NamedTuple

from archiver.archive.control import CLUSTER, MOMENTS, RESTORES, TOPICS, Fact, read_fact
from archiver.archive.handle import Archive
from archiver.archive.index import Index
from archiver.archive.layout import FOLDS, FoldKey, Layout, chosen_name
from archiver.archive.parts import ObjectPart
from archiver.archive.roles import ROLES
from archiver.archive.sweeps import SWEEPS
from archiver.archive.swept import SWEPT
from archiver.archive.taken import Taken, group_of, read_taken, root_of
from archiver.errors import NotWholeError
from archiver.process.text import spell_count
from archiver.process.workers import side_by_side

log = logging.getLogger(__name__)

_READS_AT_ONCE = 16
_PIECE_NAME = re.compile(r"[0-9]{1,10}-[0-9a-f]{24}", re.ASCII)  # of a plan
_MANY_IN_A_ROW = 10  # missing facts in a row are reported in one line
# Not counted: facts that another number accounts for, or that may be deleted.
_UNCOUNTED = frozenset({TOPICS, CLUSTER, MOMENTS, ROLES, SWEPT, SWEEPS})


def count_control_objects(
    archive: Archive, below: str = "", *, goes_on: Callable[[], bool] = lambda: True
) -> Mapping[str, int]:
    """Count the control objects by owner: `restores/<id>`, `group-positions`, `probe` and others.

    The index and the facts of topics are left out: the index knows their numbers. `below`: only streams that begin with
    that. When `goes_on` stops the counting early, counts are too small: each means "at least so many". What sweeps have taken
    counts as well: that is read before the listing, so that nothing is counted twice.
    """
    taken = _taken_or_nothing(archive)
    counts: Counter[str] = Counter()
    in_groups: Counter[str] = Counter()
    for item in takewhile(lambda _: goes_on(), archive.store.list(f"{archive.layout.control_root}{below}")):
        root = _belongs_to(archive.layout, item.key)
        if root:
            counts[root] += 1
            in_groups[_group_of(archive.layout, item.key)] += 1
    found = taken.accounted(counts, in_groups)
    return {root: count for root, count in found.items() if count and f"{root}/".startswith(below)}


def _taken_or_nothing(archive: Archive) -> Taken:
    """Read the notes of deleted objects; `verify` reports a damaged one, and the counts are too low without it."""
    try:
        return read_taken(archive)
    except NotWholeError as error:
        log.info("%s", error)
        return Taken()


def _group_of(layout: Layout, key: str) -> str:
    return group_of(key.removeprefix(layout.control_root))


def _belongs_to(layout: Layout, key: str) -> str:
    """Return the owner of a control object that must not be deleted; empty for other objects."""
    root = root_of(key.removeprefix(layout.control_root))
    is_of_restore = layout.parse_offset_map(key) is not None or layout.is_chosen(key)
    is_ours = is_of_restore or layout.is_fact(key)
    return root if is_ours and root not in _UNCOUNTED else ""


class Gone(NamedTuple):
    """Objects of a stream that are missing: how many, and in `text`, for the user, which."""

    stream: str
    objects: int
    text: str


def gone_facts(layout: Layout, stream: str, there: Iterable[int], until: int) -> Iterator[Gone]:
    """Yield a finding for each missing fact of a stream below a number; many in a row are one finding."""
    for run in _gaps(there, until):
        if len(run) >= _MANY_IN_A_ROW:
            first, last = layout.fact_key(stream, run[0]), layout.fact_key(stream, run[-1])
            text = f"{first} to {last}: {len(run):,} facts are gone; bring them back from the bucket's versions"
            yield Gone(stream, len(run), text)
        else:
            for number in run:
                key = layout.fact_key(stream, number)
                yield Gone(stream, 1, f"{key}: is gone; bring it back from the bucket's versions")


def _gaps(there: Iterable[int], until: int) -> Iterator[range]:
    """Yield the ranges of missing numbers. Ranges, because a single high number may have a million below it."""
    start = 0
    for number in sorted({*(one for one in there if one < until), until}):
        if start < number:
            yield range(start, number)
        start = number + 1


def lost_control_objects(archive: Archive, index: Index) -> tuple[list[str], list[str]]:
    """Find which control objects are missing: others prove it, or the index has counted more. Returns problems and notes."""
    before = _taken_or_nothing(archive)
    there = _ControlListing(archive)
    problems, notes = list[str](), list[str]()
    try:
        taken = read_taken(archive)  # after the listing: a sweep writes it down before it deletes
    except NotWholeError as error:
        taken, problems = Taken(), [str(error)]
    counts = taken.accounted(there.counts, there.in_groups)
    there.leave_out(before, taken)
    lost = [*_lost_facts(archive.layout, there), *_lost_of_restores(archive, there), *_lost_choices(archive, there)]
    named: Counter[str] = Counter()
    for one in lost:
        named[root_of(one.stream)] += one.objects
    problems += [one.text for one in [*lost, *_lost_folds(archive, there)]]
    seen = {root: count for root, count in index.seen_control.counts.items() if root not in _UNCOUNTED}
    notes += _notes_of_taken(archive.layout, taken)
    for root, count in sorted(seen.items()):
        place, left, is_restore = (
            archive.layout.control_prefix(root),
            counts.get(root, 0),
            root.startswith(f"{RESTORES}/"),
        )
        if not left and is_restore:  # a user has deleted the whole restore
            notes.append(
                f"{place}: is gone, with all of {spell_count(count, 'object')}: that restore can neither go on nor be checked again"
            )
        elif count > left + named[root]:
            gone, more = count - left - named[root], "more " if named[root] else ""
            rest = "; or, if somebody tidied up, delete the rest of it when no run of that restore needs it"
            problems.append(
                f"{place}: {gone:,} {more}of {spell_count(count, 'object')} {'is' if gone == 1 else 'are'} gone; bring back"
                f" what is missing from the bucket's versions{rest if is_restore else ''}"
            )
    unknown = sum(max(0, count - seen.get(root, 0)) for root, count in there.counts.items())
    if unknown and index.files and not index.lost_files and not index.unreadable:
        log.info(  # no action is needed: the next backup counts them
            "%s: %s in no file of the index: put since a backup wrote the last one, or its newest file is gone",
            archive.layout.index_prefix,
            spell_count(unknown, "object beside the records is", "objects beside the records are"),
        )
    return problems, notes


def _notes_of_taken(layout: Layout, taken: Taken) -> Iterator[str]:
    gone = sum(root.startswith(f"{RESTORES}/") for root in taken.taken)
    if gone:
        yield (
            f"{layout.control_prefix(RESTORES)}: retention sweeps have taken the notes of"
            f" {spell_count(gone, 'finished restore')}: nothing can be translated by them, or checked again"
        )
    if taken.taking:
        yield (
            f"{layout.control_root}: a retention sweep takes {', '.join(sorted(taken.taking)[:_MANY_IN_A_ROW])}, or has stopped"
            " before it was done; the next one goes on"
        )


class _ControlListing:
    """What one listing of the control objects shows."""

    def __init__(self, archive: Archive) -> None:
        self.numbers: dict[str, set[int]] = {}  # of facts, by stream
        self.chosen: set[str] = set()
        self.mapped: set[str] = set()  # streams of partitions that have an offset map
        self.folds: set[str] = set()  # keys of folds of group positions
        self.counts: Counter[str] = Counter()
        self.in_groups: Counter[str] = Counter()
        for item in archive.store.list(archive.layout.control_root):
            root = _belongs_to(archive.layout, item.key)
            if root:
                self.counts[root] += 1
                self.in_groups[_group_of(archive.layout, item.key)] += 1
            found = archive.layout.split_fact(item.key)
            if found is not None:
                self.numbers.setdefault(found[0], set()).add(found[1])
            elif (offset_map := archive.layout.parse_offset_map(item.key)) is not None:
                self.mapped.add(f"{RESTORES}/{offset_map.restore_id}/{offset_map.topic}/{offset_map.partition}")
            elif archive.layout.is_chosen(item.key):
                self.chosen.add(item.key)
            elif archive.layout.parse_fold(item.key) is not None:
                self.folds.add(item.key)

    def leave_out(self, before: Taken, after: Taken) -> None:
        """Leave out groups that sweeps delete, or deleted during the listing: missing objects there prove nothing."""
        groups = before.taking.keys() | after.taking.keys()
        roots = {root for root, count in after.taken.items() if count > before.taken.get(root, 0)}
        self.numbers = {
            stream: numbers
            for stream, numbers in self.numbers.items()
            if group_of(stream) not in groups and root_of(stream) not in roots
        }

    def of_restores(self) -> Sequence[str]:
        return sorted(stream for stream in self.numbers if stream.startswith(f"{RESTORES}/"))


def _lost_facts(layout: Layout, there: _ControlListing) -> Iterator[Gone]:
    """Yield the facts that are missing before the newest of each stream.

    Topics are left to the index, which knows more. Of moments, role logs and what sweeps note only the newest matter: others may go.
    """
    newest_alone = tuple(f"{root}/" for root in (TOPICS, MOMENTS, ROLES, SWEPT, SWEEPS))
    for stream, numbers in sorted(there.numbers.items()):
        if not stream.startswith(newest_alone):
            yield from gone_facts(layout, stream, numbers, max(numbers))


def _lost_of_restores(archive: Archive, there: _ControlListing) -> Iterator[Gone]:
    """Yield missing objects of restores: facts and offset maps that must have been put before existing objects."""
    for stream in there.of_restores():
        target, _, last = stream.rpartition("/")
        if last == "finished" and f"{target}/plan" not in there.numbers:
            yield from gone_facts(archive.layout, f"{target}/plan", (), 1)
        place = f"{archive.layout.control_prefix(stream)}offsets/"
        has_map = stream in there.mapped or not last.isdecimal() or f"{target}/finished" not in there.numbers
        if (
            not has_map and next(archive.store.list(place), None) is None
        ):  # the restore may have gone on while we listed
            yield Gone(stream, 1, f"{place}: the offset map is gone; run that restore again, which makes it")


def _lost_choices(archive: Archive, there: _ControlListing) -> Iterator[Gone]:
    """Yield the missing pieces of plans, and the missing lists of chosen records. Plans name both."""

    def lost_of(stream: str) -> tuple[list[str], list[str]]:
        try:
            plan = read_fact(archive, stream, max(there.numbers[stream]))
        except NotWholeError:  # `verify --level records` reports that
            return [], []
        pieces = _pieces_in(stream, plan)
        chosen = set(_choices_in(archive.layout, plan))
        for piece in pieces:
            with suppress(NotWholeError):
                chosen |= set(_choices_in(archive.layout, read_fact(archive, piece, 0)))
        # They may have been put while we listed.
        lost = [piece for piece in pieces if piece not in there.numbers]
        lost = [piece for piece in lost if archive.store.head(archive.layout.fact_key(piece, 0)) is None]
        return lost, [key for key in sorted(chosen - there.chosen) if archive.store.head(key) is None]

    plans = [stream for stream in there.of_restores() if stream.endswith("/plan")]
    found = side_by_side(_READS_AT_ONCE, lost_of, plans, "plans")
    for stream, (pieces, lost) in zip(plans, found, strict=True):
        for piece in pieces:
            yield from gone_facts(archive.layout, piece, (), 1)
        for key in lost:
            text = f"{key}: is gone: which records a restore takes; bring it back from the bucket's versions"
            yield Gone(stream, 1, text)


def _lost_folds(archive: Archive, there: _ControlListing) -> Iterator[Gone]:
    """Yield the folds that are missing: the newest of each partition, which a fact names."""

    def lost_of(stream: str) -> Gone | None:
        with suppress(NotWholeError, KeyError, TypeError, ValueError, AttributeError):
            fact = read_fact(archive, stream, max(there.numbers[stream]))
            fold, digest = fact["fold"], fact["object_sha256"][:24]
            found = FoldKey(life=fold["life"], partition=fold["partition"], next=fold["next"], digest=digest)
            key = archive.layout.fold_key(found)
            if key not in there.folds and archive.store.head(key) is None:  # it may have been put while we listed
                text = f"{key}: is gone: what the beginning of group positions says; bring it back from the bucket's versions"
                return Gone(stream, 1, text)
        return None

    streams = sorted(stream for stream in there.numbers if stream.startswith(f"{FOLDS}/"))
    yield from filter(None, side_by_side(_READS_AT_ONCE, lost_of, streams, "folds"))


def _choices_in(layout: Layout, plan: Fact) -> Iterator[str]:
    """Yield the keys of the lists of chosen records that a plan, or a piece of a plan, names; only keys spelled as ours are."""
    return (key for key in _named_choices(plan) if layout.is_chosen(key))


def _named_choices(plan: Fact) -> Iterator[str]:
    with suppress(KeyError, TypeError, ValueError, AttributeError):
        if "chosen" in plan:
            yield from (
                f"{plan['chosen']['stem']}{chosen_name(digest)}" for digest in plan["chosen"]["digests"].split(" ")
            )
        for partition in plan.get("partitions", [plan]):
            for part in partition.get("parts", ()):
                key = ObjectPart(*part).chosen_key
                if key is not None:
                    yield str(key)


def _pieces_in(stream: str, plan: Fact) -> list[str]:
    """Return the streams of the pieces that a plan names."""
    with suppress(KeyError, TypeError, ValueError, AttributeError):
        names = [name for partition in plan["partitions"] for name in partition.get("pieces", ())]
        return [f"{stream}/{name}" for name in names if _PIECE_NAME.fullmatch(name)]
    return []
