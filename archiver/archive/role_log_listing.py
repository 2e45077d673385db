"""The role logs of all partitions of a topic, listed together: the newest entry of each, and when its entries were put."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from archiver.archive.control import READS_AT_ONCE
from archiver.archive.handle import Archive
from archiver.archive.layout import is_partition_number, is_topic_name
from archiver.archive.roles import ROLES, RoleEntry, RolePlace, read_entry
from archiver.archive.store_clock import epoch_ms
from archiver.errors import NotWholeError
from archiver.process.workers import side_by_side

_PARTS: Final = 2  # of a stream below that of its topic: life and partition


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRoleLog:
    """One role log as a listing shows it. `entry` None: the newest entry cannot be read, and `problem` says why."""

    place: RolePlace
    number: int  # of the newest entry
    entry: RoleEntry | None
    put_at: Mapping[int, datetime]  # of each entry, by the store's clock
    problem: str = ""

    def put_ms(self, number: int) -> int:
        """Return when an entry was put; where it is gone, when the next one was: it was put no later."""
        return epoch_ms(self.put_at[min(one for one in self.put_at if one >= min(number, self.number))])


def list_topics_with_roles(archive: Archive) -> set[str]:
    """List the topics that have a role log, in any life."""
    return {
        name for name in archive.store.list_directories(archive.layout.control_prefix(ROLES)) if is_topic_name(name)
    }


def read_role_logs(
    archive: Archive, topic: str, wanted: Collection[RolePlace] | None = None
) -> dict[RolePlace, ListedRoleLog]:
    """Read the newest entry of each role log of a topic; of the wanted ones only, if `wanted` is given."""
    times = {
        place: put_at for place, put_at in _list_times(archive, topic).items() if wanted is None or place in wanted
    }
    found = side_by_side(READS_AT_ONCE, lambda one: _read(archive, *one), times.items(), "roles")
    return {log.place: log for log in found}


def _list_times(archive: Archive, topic: str) -> dict[RolePlace, dict[int, datetime]]:
    times: dict[RolePlace, dict[int, datetime]] = {}
    for item in archive.store.list(archive.layout.control_prefix(f"{ROLES}/{topic}")):
        stream = archive.layout.split_fact(item.key)
        parts = stream[0].split("/")[2:] if stream else []
        if stream and len(parts) == _PARTS and all(map(is_partition_number, parts)):
            place = RolePlace(topic=topic, life=int(parts[0]), partition=int(parts[1]))
            times.setdefault(place, {})[stream[1]] = item.last_modified
    return times


def _read(archive: Archive, place: RolePlace, put_at: Mapping[int, datetime]) -> ListedRoleLog:
    number = max(put_at)
    try:
        entry = read_entry(archive, place, number)
    except NotWholeError as error:
        return ListedRoleLog(place=place, number=number, entry=None, put_at=put_at, problem=str(error))
    return ListedRoleLog(place=place, number=number, entry=entry, put_at=put_at)
