"""Finds missing control objects for `verify`: numbers below the newest of a stream, and objects that a note names."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from archiver.archive.copies.roles import ROLES
from archiver.archive.format.control import MOMENTS, RESTORES, TOPICS, Fact, read_fact
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import FOLDS, FoldKey, Layout, chosen_name, is_partition_number
from archiver.archive.notes.holds import HOLDS
from archiver.archive.notes.run_notes import RUNS
from archiver.archive.notes.sweeps import SWEEPS
from archiver.archive.notes.swept import SWEPT
from archiver.archive.restores.finished_restores import APPLICATIONS, FINISHED, PLAN, is_claim
from archiver.archive.segments.parts import ObjectPart
from archiver.errors import NotWholeError
from archiver.process.running.workers import side_by_side

_READS_AT_ONCE = 16
_PIECE_NAME = re.compile(r"[0-9]{1,10}-[0-9a-f]{24}", re.ASCII)  # of a plan
_MANY_IN_A_ROW = 10  # missing facts in a row are reported in one line
# Streams that may have gaps, or have other checks: `topics/` by the facts of their objects, `roles/` by the copies.
_UNCHECKED: Final = tuple(f"{root}/" for root in (TOPICS, MOMENTS, ROLES, RUNS, SWEPT, SWEEPS))
_TARGET_PARTS: Final = 3  # restores/<id>/<target>


def gone_facts(layout: Layout, stream: str, there: Iterable[int], until: int) -> Iterator[str]:
    """Yield a finding for each missing fact of a stream below a number; many in a row make one finding."""
    for run in _gaps(there, until):
        if len(run) >= _MANY_IN_A_ROW:
            first, last = layout.fact_key(stream, run[0]), layout.fact_key(stream, run[-1])
            yield f"{first} to {last}: {len(run):,} facts are gone; bring them back from the bucket's versions"
        else:
            for number in run:
                yield f"{layout.fact_key(stream, number)}: is gone; bring it back from the bucket's versions"


def _gaps(there: Iterable[int], until: int) -> Iterator[range]:
    """Yield the ranges of missing numbers: a single high number may have a million missing ones below it."""
    start = 0
    for number in sorted({*(one for one in there if one < until), until}):
        if start < number:
            yield range(start, number)
        start = number + 1


def lost_control_objects(archive: Archive, newest_holds: Mapping[str, int]) -> list[str]:
    """Find missing control objects. `newest_holds`: the newest holds in the index.

    A sweep may delete the notes of a finished restore meanwhile, so a restore with a finding is listed again.
    """
    layout = archive.layout
    there = _ControlListing(archive, layout.control_root)
    problems = [*_lost_facts(layout, there, newest_holds), *_lost_folds(archive, there)]
    for restore_id in sorted({restore_id for restore_id, _ in _lost_of_restores(archive, there)}):
        again = _ControlListing(archive, layout.control_prefix(f"{RESTORES}/{restore_id}"))
        problems += [text for _, text in _lost_of_restores(archive, again)]
    return problems


class _ControlListing:
    """The control objects of one listing."""

    def __init__(self, archive: Archive, prefix: str) -> None:
        self.numbers: dict[str, set[int]] = {}  # of facts, by stream
        self.chosen: set[str] = set()
        self.mapped: set[str] = set()  # streams of partitions with an offset map
        self.folds: set[str] = set()  # keys of folds of group positions
        for item in archive.store.list(prefix):
            found = archive.layout.split_fact(item.key)
            if found is not None:
                self.numbers.setdefault(found[0], set()).add(found[1])
            elif (offset_map := archive.layout.parse_offset_map(item.key)) is not None:
                self.mapped.add(f"{RESTORES}/{offset_map.restore_id}/{offset_map.topic}/{offset_map.partition}")
            elif archive.layout.is_chosen(item.key):
                self.chosen.add(item.key)
            elif archive.layout.parse_fold(item.key) is not None:
                self.folds.add(item.key)

    def of_restores(self) -> Sequence[str]:
        return sorted(stream for stream in self.numbers if stream.startswith(f"{RESTORES}/"))


def _lost_facts(layout: Layout, there: _ControlListing, newest_holds: Mapping[str, int]) -> Iterator[str]:
    """Yield the missing facts below the newest of each stream except restores; for holds also the newest."""
    remembered = {f"{HOLDS}/{name}": number for name, number in newest_holds.items()}
    for stream in sorted(there.numbers.keys() | remembered.keys()):
        if not stream.startswith((*_UNCHECKED, f"{RESTORES}/")):
            numbers = there.numbers.get(stream, set())
            yield from gone_facts(layout, stream, numbers, max(*numbers, remembered.get(stream, -1), -1) + 1)


def _half_gone(there: _ControlListing) -> set[str]:
    """Return the finished targets without a claim: a sweep has begun to delete their notes, and deletes claims first."""
    names = [stream.rpartition("/") for stream in there.of_restores()]
    claimed = {target for target, _, name in names if is_claim(name)}
    return {target for target, _, name in names if name == FINISHED} - claimed


def _lost_of_restores(archive: Archive, there: _ControlListing) -> Iterator[tuple[str, str]]:
    """Yield the missing objects of restores, each finding with the id of its restore."""
    layout, streams, half_gone = archive.layout, there.of_restores(), _half_gone(there)
    # Of notes of groups a sweep keeps the newest for last, when no target has a claim.
    going = half_gone | {f"{RESTORES}/{_restore_of(target)}/{APPLICATIONS}" for target in half_gone}
    whole = [one for one in streams if "/".join(one.split("/")[:_TARGET_PARTS]) not in going]
    for stream in whole:
        for text in gone_facts(layout, stream, there.numbers[stream], max(there.numbers[stream])):
            yield _restore_of(stream), text
    with_more = {
        _restore_of(one) for one in [*streams, *there.mapped] if one.rpartition("/")[2] not in {PLAN, FINISHED}
    }
    for stream in streams:
        target, _, name = stream.rpartition("/")
        if name == FINISHED and f"{target}/{PLAN}" not in there.numbers and _restore_of(stream) in with_more:
            for text in gone_facts(layout, f"{target}/{PLAN}", (), 1):
                yield _restore_of(stream), text
    for stream in whole:
        target, _, name = stream.rpartition("/")
        place = f"{layout.control_prefix(stream)}offsets/"
        has_map = stream in there.mapped or not is_partition_number(name) or f"{target}/{FINISHED}" not in there.numbers
        if not has_map and next(archive.store.list(place), None) is None:  # it may have been put while we listed
            yield _restore_of(stream), f"{place}: the offset map is gone; run that restore again, which makes it"
    yield from _lost_parts(archive, there, [one for one in whole if one.endswith(f"/{PLAN}")])


def _restore_of(stream: str) -> str:
    return stream.split("/")[1]


def _lost_parts(archive: Archive, there: _ControlListing, plans: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the missing pieces of plans, and the missing lists of chosen records; plans name both. Earlier plans are read, too."""

    def lost_of(stream: str) -> list[str]:
        pieces: dict[str, None] = {}
        chosen: set[str] = set()
        for number in sorted(there.numbers[stream]):
            with suppress(NotWholeError):  # `verify --level records` reports that
                plan = read_fact(archive, stream, number)
                pieces |= dict.fromkeys(_pieces_in(stream, plan))
                chosen |= set(_choices_in(archive.layout, plan))
        for piece in pieces:
            with suppress(NotWholeError):
                chosen |= set(_choices_in(archive.layout, read_fact(archive, piece, 0)))
        # They may have been put while we listed.
        lost = [piece for piece in pieces if piece not in there.numbers]
        lost = [piece for piece in lost if archive.store.head(archive.layout.fact_key(piece, 0)) is None]
        return [
            *(text for piece in lost for text in gone_facts(archive.layout, piece, (), 1)),
            *(
                f"{key}: is gone: which records a restore takes; bring it back from the bucket's versions"
                for key in sorted(chosen - there.chosen)
                if archive.store.head(key) is None
            ),
        ]

    found = side_by_side(_READS_AT_ONCE, lost_of, plans, "plans")
    for stream, texts in zip(plans, found, strict=True):
        yield from ((_restore_of(stream), text) for text in texts)


def _lost_folds(archive: Archive, there: _ControlListing) -> Iterator[str]:
    """Yield the missing folds: the newest fold of each partition, which a fact names."""

    def lost_of(stream: str) -> str:
        with suppress(NotWholeError, KeyError, TypeError, ValueError, AttributeError):
            fact = read_fact(archive, stream, max(there.numbers[stream]))
            fold, digest = fact["fold"], fact["object_sha256"][:24]
            found = FoldKey(life=fold["life"], partition=fold["partition"], next=fold["next"], digest=digest)
            key = archive.layout.fold_key(found)
            if key not in there.folds and archive.store.head(key) is None:  # it may have been put while we listed
                return f"{key}: is gone: what the beginning of group positions says; bring it back from the bucket's versions"
        return ""

    streams = sorted(stream for stream in there.numbers if stream.startswith(f"{FOLDS}/"))
    yield from filter(None, side_by_side(_READS_AT_ONCE, lost_of, streams, "folds"))


def _choices_in(layout: Layout, plan: Fact) -> Iterator[str]:
    """Yield the keys of chosen-record lists that a plan, or a piece of a plan, names; only keys in our spelling."""
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
