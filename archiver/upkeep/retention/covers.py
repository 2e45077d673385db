"""Objects that cover others: read whole before what they cover goes, and asked again right before that (docs/format.md §14)."""

from collections.abc import Mapping, Sequence

from archiver.archive.layout import SegmentKey
from archiver.archive.segment_facts import check_named, facts_from_metadata
from archiver.errors import CorruptSegmentError, NotWholeError
from archiver.process.workers import side_by_side
from archiver.store.port import ObjectStore
from archiver.upkeep.retention.partition_plan import ASKS_AT_ONCE, Ask, AskedItem, ListedItem, remembering
from archiver.upkeep.retention.shadowed import ShadowedItem


def prove_covers(
    store: ObjectStore, topic: str, partition: int, found: Sequence[ShadowedItem], ask: Ask
) -> tuple[list[ShadowedItem], list[str]]:
    """Read each cover whole, once. `ask` asks an object now. Returns what may go because its cover is right, and what is wrong with others."""
    problems: dict[str, str] = {}
    proven: set[str] = set()
    for cover in (one.cover for one in found):
        if cover.key not in problems and cover.key not in proven:
            try:
                _check_whole(store, topic, partition, cover)
                if not isinstance(ask(cover), AskedItem):
                    raise CorruptSegmentError(f"{cover.key}: is not the object that was listed any more")
                proven.add(cover.key)
            except NotWholeError as error:
                problems[cover.key] = f"{error}; what it covers stays"
    return [one for one in found if one.cover.key in proven], list(problems.values())


def _check_whole(store: ObjectStore, topic: str, partition: int, cover: ListedItem) -> None:
    """Read an object as `verify --level records` does. Raises NotWholeError."""
    from archiver.upkeep.verify import Level, check_object  # noqa: PLC0415 - its kernels load slowly, and few sweeps need them

    found = store.get(cover.key)
    if found is None:
        raise CorruptSegmentError(f"{cover.key}: was listed, and is gone")
    content, metadata = found
    facts = facts_from_metadata(metadata, cover.key)
    if facts is None:
        raise CorruptSegmentError(f"{cover.key}: has no facts")
    check_named(facts, cover.base, cover.named_next, cover.key)
    key = SegmentKey(topic=topic, life=cover.life, partition=partition, base=cover.base, next=cover.named_next)
    check_object(content, metadata, key, cover.key, Level.RECORDS)


def still_shadowed(listed: Mapping[str, ListedItem], ask: Ask, batch: Sequence[ShadowedItem]) -> list[ShadowedItem]:
    """Leave out what is not as it was, or has a cover that is not. `listed`: what lies there now, by key; `ask` asks an object now."""
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
