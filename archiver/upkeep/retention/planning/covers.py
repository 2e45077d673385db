"""Reads objects that cover others, and compares both before the covered ones are deleted (docs/format.md §14)."""

from collections.abc import Mapping, Sequence

from archiver.archive.format.layout import SegmentKey
from archiver.archive.segments.segment_facts import named_facts
from archiver.errors import CorruptSegmentError, NotWholeError
from archiver.process.running.workers import side_by_side
from archiver.store.port import ObjectStore
from archiver.upkeep.retention.planning.partition_verdict import (
    ASKS_AT_ONCE,
    Ask,
    AskedItem,
    GoingItem,
    ListedItem,
    remembering,
)
from archiver.upkeep.retention.planning.shadowed import ShadowedItem


def prove_covers(
    store: ObjectStore, topic: str, partition: int, found: Sequence[ShadowedItem], ask: Ask
) -> tuple[list[ShadowedItem], list[str]]:
    """Read each cover whole, once, and compare it with each object that it covers. `ask` reads an object's facts now.

    Returns the objects that may be deleted because their cover has their records, and the problems of other covers.
    """
    problems: list[str] = []
    proven: list[ShadowedItem] = []
    covered: dict[str, list[ShadowedItem]] = {}
    for one in found:
        covered.setdefault(one.cover.key, []).append(one)
    for some in covered.values():
        cover = some[0].cover
        try:
            _check_whole(store, topic, partition, cover, [one.going for one in some])
            if not isinstance(ask(cover), AskedItem):
                raise CorruptSegmentError(f"{cover.key}: is not the object that was listed any more")
            proven += some
        except NotWholeError as error:
            problems.append(f"{error}; what it covers stays")
    keys = {one.going.item.key for one in proven}
    return [one for one in found if one.going.item.key in keys], problems


def _check_whole(
    store: ObjectStore, topic: str, partition: int, cover: ListedItem, covered: Sequence[GoingItem]
) -> None:
    """Read an object as `verify --level records` does, and compare it with the covered ones. Raises NotWholeError."""
    # Its kernels load slowly, and few sweeps need them.
    from archiver.archive.segments.segment import open_segment  # noqa: PLC0415
    from archiver.upkeep.covered_ranges import Covered  # noqa: PLC0415
    from archiver.upkeep.object_check import Level, check_content  # noqa: PLC0415

    found = store.get(cover.key)
    if found is None:
        raise CorruptSegmentError(f"{cover.key}: was listed, and is gone")
    named_facts(found[1], cover.base, cover.named_next, cover.key)
    key = SegmentKey(topic=topic, life=cover.life, partition=partition, base=cover.base, next=cover.named_next)
    ranges = [Covered(one.item.key, one.item.base, one.told.next, one.told.records, one.told.digest) for one in covered]
    check_content(open_segment(*found, cover.key), key, Level.RECORDS, ranges)


def still_shadowed(listed: Mapping[str, ListedItem], ask: Ask, batch: Sequence[ShadowedItem]) -> list[ShadowedItem]:
    """Leave out objects that changed, or whose cover changed. `listed`: the present objects by key; `ask` reads an object's facts now."""
    ask_once = remembering(ask)  # many may have one cover

    def is_so(one: ShadowedItem) -> bool:
        item, cover = one.going.item, one.cover
        if (listed.get(item.key), listed.get(cover.key)) != (item, cover):
            return False
        reach = ask_once(cover)
        return isinstance(reach, AskedItem) and one.going.told.next <= reach.next and ask(item) == one.going.told

    for cover in {one.cover.key: one.cover for one in batch}.values():
        ask_once(cover)
    return [one for one, stays in zip(batch, side_by_side(ASKS_AT_ONCE, is_so, batch, "ask"), strict=True) if stays]
