"""Selects shadowed objects to delete: no reader reads them, since another object covers all of their offsets. Pure: the caller reads storage.

By the read rule (docs/format.md §7) an object is shadowed if its `next` is not above that of one before it. That one, its *cover*,
begins no later and ends no earlier: it has all offsets, and readers read it instead. Names show which objects may be shadowed,
if a merged one precedes them; for a plain one only its facts do, where they were read for another purpose.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple

from archiver.upkeep.retention.planning.partition_verdict import (
    Answer,
    Ask,
    AskedItem,
    Going,
    GoingItem,
    LifeItems,
    ListedItem,
    PartitionTerms,
    newest_of,
)

Recall = Callable[[ListedItem], Answer | None]  # an earlier answer of an object; None: its facts were not read


class ShadowedItem(NamedTuple):
    """A shadowed object to delete. No part of its cover may be deleted with it."""

    going: GoingItem
    cover: ListedItem


def judge_shadowed(
    lineage: Sequence[LifeItems], ask: Ask, recall: Recall, terms: PartitionTerms, going: Collection[str]
) -> list[ShadowedItem]:
    """Return the shadowed objects to delete. `going`: keys of expired objects."""
    found = {life.life: list(find_shadowed(life.items, ask, recall)) for life in lineage}
    if not any(found.values()):
        return []
    newest = {life.life: newest_of(life.items) for life in lineage}
    told = {life: [ask(one) for one in some] for life, some in newest.items()}
    if not all(isinstance(one, AskedItem) for some in told.values() for one in some):
        return []  # the next offset of a writer is unreadable
    gone = set(going)
    return [
        one
        for life, some in found.items()
        for one in some
        if may_go(one, terms)
        and one.going.item not in newest[life]
        and one.going.told.next < max(answer.next for answer in told[life] if isinstance(answer, AskedItem))
        and gone.isdisjoint({one.going.item.key, one.cover.key})
    ]


def may_go(one: ShadowedItem, terms: PartitionTerms) -> bool:
    """Return whether nothing keeps it. Its cover must be as old: a reader that listed before that was put may still want it."""
    item, told = one.going.item, one.going.told
    is_young = terms.store_now_ms - max(item.put_ms, one.cover.put_ms) < terms.min_age_ms
    is_held = any(times.hold(told) for times in terms.holds)
    is_unproven = told.topic_id != terms.topic_id
    return not (is_young or is_held or is_unproven or told.is_locked or item.key in terms.pinned)


def find_shadowed(items: Sequence[ListedItem], ask: Ask, recall: Recall) -> Iterator[ShadowedItem]:
    """Find the shadowed objects of a partition in one life. `items` are in the order of reading."""
    reach, cover = 0, None
    for item, following in zip_longest(items, items[1:]):
        if cover is not None and item.base < reach:
            told = ask(item)
            if isinstance(told, AskedItem) and told.next <= reach:
                yield ShadowedItem(GoingItem(item=item, told=told, why=Going.SHADOWED), cover)
                continue
        end = _end_of(item, following, ask, recall)
        if end > reach:
            reach, cover = end, item


def _end_of(item: ListedItem, following: ListedItem | None, ask: Ask, recall: Recall) -> int:
    """Return where an object ends, by its facts; 0 where that is not needed. A name may be false: it only selects objects to ask."""
    may_cover = following is not None and item.named_next is not None and following.base < item.named_next
    told = ask(item) if may_cover else recall(item)
    return told.next if isinstance(told, AskedItem) else 0
