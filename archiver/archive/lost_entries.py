"""Finds role logs whose newest entries are missing: a copy exists that a later entry began."""

from collections.abc import Callable, Iterator

from archiver.archive.copy_listings import list_copy_objects
from archiver.archive.handle import Archive
from archiver.archive.layout import CopyKey, is_instance
from archiver.archive.role_logs import NEVER_COPIED, list_role_logs
from archiver.archive.roles import RolePlace


def lost_entries(archive: Archive, wanted: Callable[[str], bool] | None = None) -> Iterator[str]:
    """Yield a problem for each role log of the wanted topics whose newest entries are gone.

    A generation has the number of the entry that began it. Copies are listed first: whatever they were begun by was there then.
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
