"""Finds compacted topics without any archive, and role logs without their newest entries. `verify` uses it."""

from collections.abc import Callable, Container, Iterator, Mapping

from archiver.archive.copies.copy_listings import list_copy_objects
from archiver.archive.copies.role_logs import NEVER_COPIED, list_all_role_logs, list_role_logs
from archiver.archive.copies.roles import RolePlace
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import CopyKey, is_instance
from archiver.archive.notes.cluster_topics import is_kept_by_turns
from archiver.archive.notes.topics import TopicFact, read_newest_topic_facts
from archiver.config.model import ArchiverConfig


def topics_without_archive(
    archive: Archive, config: ArchiverConfig, wanted: Callable[[str], bool] | None = None
) -> Iterator[str]:
    """Yield a problem for each wanted topic that instances should copy but that has nothing archived.

    Such a topic has neither a role log nor an object under `topics/`. Whether an instance is running does not matter.
    """
    if not config.compacted.enabled:
        return
    read = read_newest_topic_facts(archive, wanted)
    facts = {name: fact for name, fact in read.items() if isinstance(fact, TopicFact)}
    begun = list_all_role_logs(archive, wanted)
    missing = {(place.topic, place.life) for place in places_without_role_log(config, facts, ())}
    for topic, life in sorted(missing):
        is_archived = any(True for _ in archive.store.list(archive.layout.topic_prefix(topic, life)))
        if topic not in begun and not is_archived:
            name = f"{topic}@{life}" if life else topic
            why = "is compacted, and neither an instance nor a backup has archived anything of it"
            yield f"{name}: {why}; run both instances (`archiver compacted run`)"


def places_without_role_log(
    config: ArchiverConfig, facts: Mapping[str, TopicFact], known: Container[RolePlace]
) -> Iterator[RolePlace]:
    """Yield the partitions that instances should copy, except the `known` ones, which have a role log."""
    for name in config.topics.select(facts) if config.compacted.enabled else ():
        if is_kept_by_turns(facts[name]):
            for number in range(facts[name].partitions):
                place = RolePlace(topic=name, life=newest_life(facts[name], number), partition=number)
                if place not in known:
                    yield place


def newest_life(fact: TopicFact, partition: int) -> int:
    """Return the life that currently continues a partition of the topic."""
    root = fact.root(fact.current.life)
    return max(life.life for life in fact.lives if fact.root(life.life) == root and life.holds(partition))


def lost_entries(archive: Archive, wanted: Callable[[str], bool] | None = None) -> Iterator[str]:
    """Yield a problem for each role log of the wanted topics whose newest entries are missing.

    A generation has the number of the entry that began it. Copies are listed first: the entries that began them existed then.
    """
    newest: dict[RolePlace, CopyKey] = {}
    for copy in _standing(archive, wanted):
        place = RolePlace.of_copy(copy)
        if place not in newest or copy.generation > newest[place].generation:
            newest[place] = copy
    logs = {topic: list_role_logs(archive, topic) for topic in sorted({place.topic for place in newest})}
    for place, copy in sorted(newest.items(), key=lambda one: one[0].stream):
        last = max(logs[place.topic].numbers(place.life, place.partition), default=-1)
        if copy.generation > last:
            found = f"entry {last} is the newest that is there" if last >= 0 else "no entry is there"
            yield (
                f"{archive.layout.control_prefix(place.stream)}: {found}, and entry {copy.generation} began"
                f" {archive.layout.copy_prefix(copy)}: which copy is read is not known; bring its newest entries back from"
                " the bucket's versions"
            )


def _standing(archive: Archive, wanted: Callable[[str], bool] | None) -> Iterator[CopyKey]:
    """List the copies that have an object."""
    store, layout = archive.store, archive.layout
    for instance in filter(is_instance, store.list_directories(layout.copies_root)):
        for name in store.list_directories(f"{layout.copies_root}{instance}/topics/"):
            found = layout.parse_topic_directory(name)
            if found is None or found[0] == NEVER_COPIED or (wanted is not None and not wanted(found[0])):
                continue
            listed = list_copy_objects(archive, layout.copied_topic_prefix(instance, *found))
            yield from (copy for copy, _ in listed)
