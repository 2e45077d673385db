"""Finds topics in the archive, each in one life: all topics, or one by its name. Commands that read topics begin here."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache, partial

from archiver.archive.copies.archived_topic import ArchivedTopic
from archiver.archive.copies.copied_topic import BY_ROLES, CopiedTopic, CopyChoice
from archiver.archive.copies.copy_listings import list_instances
from archiver.archive.copies.history_doubts import history_doubts
from archiver.archive.copies.role_logs import RoleLogs, list_all_role_logs, list_copied_topics, list_role_logs
from archiver.archive.format.handle import Archive
from archiver.archive.index.inventory import Inventory, PartitionInventory, read_inventory, swept_note
from archiver.archive.notes.topics import (
    LifeRange,
    TopicFact,
    UnnotedLives,
    list_known_topics,
    read_newest_topic_facts,
    read_topic_history,
    shape_in,
)
from archiver.archive.segments.partition_segments import blocks_of
from archiver.codec.selection import Wanted
from archiver.config.model import IndexUse
from archiver.errors import NotWholeError, UsageError

ReportProblem = Callable[[str], None]


def read_archive(
    archive: Archive,
    life: int | None = None,
    *,
    wanted: Callable[[str], bool] | None = None,
    choice: CopyChoice = BY_ROLES,
    use: IndexUse = IndexUse.CHECK,
    reads: Wanted | None = None,
    report_progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> list[ArchivedTopic]:
    """Read the wanted topics (default: all), also those without a record, each in one life.

    Without a given life, the life to read follows from docs/format.md §7 and §11. Other topics are not read. `choice`: the copies
    to read of a compacted topic. `use`, `reads` and `report_progress` as in read_inventory.
    """
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="topics") as background:
        reading = background.submit(read_newest_topic_facts, archive, wanted)
        inventory = read_inventory(archive, wanted, use=use, reads=reads, report_progress=report_progress)
        newest = reading.result()
    lives = inventory.lives()
    logs = {} if choice.is_history else list_all_role_logs(archive, wanted)
    copied_once = list_copied_topics(archive) if choice.is_history else frozenset()
    found, instances = list[ArchivedTopic](), cache(partial(list_instances, archive))
    for name in sorted(lives.keys() | newest.keys() | logs.keys()):
        fact, ignored = newest.get(name), tuple[str, ...]()
        if isinstance(fact, NotWholeError):
            raise fact
        if name in logs or choice.instance is not None:
            history = read_topic_history(archive, name)
            copied = CopiedTopic(logs.get(name) or RoleLogs(archive, name, {}), inventory, history, instances)
            ignored = copied.ignored
            if copied.has_copies or choice.instance is not None:
                found.append(copied.read(life, choice))
                continue
        with_records = lives.get(name, set())
        topic = _archived(inventory, name, [] if fact is None else [fact], life, with_records)
        if fact is not None and (topic.fact is None or topic.ignored):  # the topic has begun another life since
            topic = _archived(inventory, name, read_topic_history(archive, name), life, with_records)
        topic = replace(topic, ignored=tuple(dict.fromkeys((*ignored, *topic.ignored))))
        found.append(_with_doubts(archive, topic) if name in copied_once else topic)
    return found


def _with_doubts(archive: Archive, topic: ArchivedTopic) -> ArchivedTopic:
    """Note where the history of a topic with role logs may lack deletions."""
    history = read_topic_history(archive, topic.topic)
    doubts = history_doubts(topic.topic, topic.life, topic.partitions, archive.layout, history)
    return replace(topic, notes=(*topic.notes, *doubts.values()))


def topic_names(archive: Archive) -> set[str]:
    """List the topics by name alone. That takes three listings of directories, however many objects are in them."""
    parsed = (
        archive.layout.parse_topic_directory(name)
        for name in archive.store.list_directories(archive.layout.topics_prefix)
    )
    return (
        {found[0] for found in parsed if found is not None} | list_known_topics(archive) | list_copied_topics(archive)
    )


def is_wanted(topic: str, topics_regex: str | None) -> bool:
    """Return whether a topic is wanted: by full match; a topic whose name begins with __ must be spelled out."""
    if topic.startswith("__"):
        return topics_regex is not None and topic in topics_regex.split("|")
    try:
        return topics_regex is None or re.fullmatch(topics_regex, topic) is not None
    except re.error as error:
        raise UsageError(f"--topics {topics_regex}: not a regular expression: {error}") from error


def find_topic(
    archive: Archive,
    name: str,
    life: int | None = None,
    *,
    choice: CopyChoice = BY_ROLES,
    use: IndexUse = IndexUse.CHECK,
    reads: Wanted | None = None,
    report_problem: ReportProblem = lambda _: None,
) -> ArchivedTopic:
    """Read one topic in the given life, or in the one to read. A damaged control fact is reported, and so is an ignored role log.

    `choice`: the copies to read of a compacted topic. `use` and `reads` as in read_inventory.
    """
    inventory = read_inventory(archive, lambda topic: topic == name, use=use, reads=reads)
    try:
        history: Sequence[TopicFact] | None = read_topic_history(archive, name)
    except NotWholeError as error:
        report_problem(str(error))
        history = None
    logs = RoleLogs(archive, name, {}) if choice.is_history else list_role_logs(archive, name)
    copied = CopiedTopic(logs, inventory, history or ())
    is_copied = copied.has_copies or choice.instance is not None
    if is_copied:
        topic = copied.read(life, choice)
    else:
        topic = _archived(inventory, name, history or (), life, inventory.lives().get(name, set()))
    for problem in dict.fromkeys((*copied.ignored, *topic.ignored)):
        report_problem(problem)
    if is_copied:
        return topic
    if history == [] and not topic.partitions and not topic.damaged:
        raise UsageError(f"topic {name} is not in the archive; `archiver ls` shows what is")
    is_known = choice.is_history and history and name in list_copied_topics(archive)
    return _with_doubts(archive, topic) if is_known else topic


def _archived(
    inventory: Inventory,
    topic: str,
    history: Sequence[TopicFact],
    wanted_life: int | None,
    with_records: AbstractSet[int],
) -> ArchivedTopic:
    known = with_records | {life.life for fact in history for life in fact.lives}
    unnoted = UnnotedLives.of(topic, history, with_records if wanted_life is None else ())
    read = with_records - unnoted.lives or known - unnoted.lives
    life = max(read, default=0) if wanted_life is None else wanted_life
    if wanted_life is not None and wanted_life not in known:
        raise UsageError(
            f"{topic} has no life {wanted_life} in the archive; it has {', '.join(map(str, sorted(known))) or 'none'}"
        )
    fact = shape_in(history, life)
    partitions, damaged = join_lives(inventory, topic, life, fact)
    joined = {block.segments.partition[1] for found in partitions.values() for block in blocks_of(found.readable)}
    return ArchivedTopic(
        topic=topic,
        life=life,
        fact=fact,
        partitions=partitions,
        damaged=damaged,
        other_lives=tuple(sorted(with_records - joined - {life})),
        notes=tuple(_swept_notes(topic, partitions)),
        ignored=unnoted.problems,
    )


def _swept_notes(topic: str, partitions: Mapping[int, PartitionInventory]) -> Iterator[str]:
    """Yield one line about the records that sweeps deleted from a topic."""
    swept = [number for number, found in partitions.items() if found.swept]
    if len(swept) == 1:
        yield swept_note(f"{topic}-{swept[0]}", partitions[swept[0]])
    elif swept:
        yield f"{topic}: retention sweeps took records of {len(swept)} partitions; they are no longer in the archive"


def join_lives(
    inventory: Inventory, topic: str, life: int, fact: TopicFact | None
) -> tuple[dict[int, PartitionInventory], dict[int, Sequence[str]]]:
    """Join each partition as of a life: that life, and the parts of earlier lives that it continues."""
    family = {life} if fact is None else {one.life for one in fact.lives if fact.root(one.life) == fact.root(life)}
    partitions: dict[int, PartitionInventory] = {}
    damaged: dict[int, Sequence[str]] = {}
    for number in sorted(inventory.numbers_of(topic, family)):
        lineage = [LifeRange(life, 0, None)] if fact is None else fact.lineage(life, number)
        partitions[number], damaged[number] = inventory.join(topic, number, lineage)
    return partitions, damaged
