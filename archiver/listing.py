"""The segments under `topics/`, and the strangers: one listing, or in a large archive several side by side."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby, islice, pairwise
from typing import NamedTuple

from archiver.layout import Layout, SegmentKey
from archiver.store import ListedObject, ObjectStore

LISTINGS_AT_ONCE = 8
# What is listed before the rest is shared out: each further listing reads up to a page of 1,000 keys too many.
_ALONE = 5_000


class ListedSegment(NamedTuple):
    """A segment by its key, and its row of the listing."""

    key: SegmentKey
    item: ListedObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Both in the order of their keys."""

    segments: Sequence[ListedSegment]
    strangers: Sequence[str]


class _Span(NamedTuple):
    """Keys with a prefix, after one key and up to another, that one included; empty: from the first, to the last."""

    prefix: str
    after: str
    until: str


def list_segments(store: ObjectStore, layout: Layout, wanted: Callable[[str], bool] | None = None) -> Listing:
    """List the archive; of the wanted topics only, if told which."""
    items: list[ListedObject] = []
    if wanted is None:
        items += islice(store.list(layout.topics_prefix), _ALONE)
        spans = _rest_of(store, layout, items[-1].key) if len(items) == _ALONE else []
    else:
        spans = _spans_of(store, layout, wanted)
    with ThreadPoolExecutor(max_workers=LISTINGS_AT_ONCE, thread_name_prefix="list") as pool:
        for found in pool.map(lambda span: list(_list(store, span)), spans):
            items += found
    return _parse(layout, items)


def _parse(layout: Layout, items: Sequence[ListedObject]) -> Listing:
    segments: list[ListedSegment] = []
    strangers: list[str] = []
    for item in items:
        key = layout.parse_segment(item.key)
        if key is None:
            strangers.append(item.key)
        else:
            segments.append(ListedSegment(key, item))
    return Listing(segments=segments, strangers=strangers)


def _list(store: ObjectStore, span: _Span) -> Iterator[ListedObject]:
    for item in store.list(span.prefix, span.after):
        if span.until and item.key.encode() > span.until.encode():
            return
        yield item


def _rest_of(store: ObjectStore, layout: Layout, after: str) -> list[_Span]:
    """Share out what sorts after a key, by topic directories."""
    prefix = layout.topics_prefix
    starts = [f"{prefix}{name}/" for name in store.list_directories(prefix)]
    later = [start for start in starts if start.encode() > after.encode()]
    bounds = [after, *(chunk[0] for chunk in _chunks(later)[1:]), ""]
    return [_Span(prefix, first, last) for first, last in pairwise(bounds)]


def _spans_of(store: ObjectStore, layout: Layout, wanted: Callable[[str], bool]) -> list[_Span]:
    """A span for each wanted directory; one for several of them that are neighbours, because each costs a request."""
    prefix = layout.topics_prefix
    names = list(store.list_directories(prefix))
    parsed = {name: layout.parse_topic_directory(name) for name in names}
    is_wanted = {name: topic is not None and wanted(topic[0]) for name, topic in parsed.items()}
    following = dict(zip(names, [f"{prefix}{name}/" for name in names[1:]], strict=False))
    spans: list[_Span] = []
    for chunk in _chunks(names):
        for chosen, run in groupby(chunk, is_wanted.__getitem__):
            first, *others = run
            if chosen and not others:
                spans.append(_Span(f"{prefix}{first}/", "", ""))
            elif chosen:
                spans.append(_Span(prefix, f"{prefix}{first}/", following.get(others[-1], "")))
    return spans


def _chunks(names: Sequence[str]) -> list[Sequence[str]]:
    """Cut into as many pieces as are listed at once."""
    size = -(-len(names) // LISTINGS_AT_ONCE) or 1
    return [names[start : start + size] for start in range(0, len(names), size)]
