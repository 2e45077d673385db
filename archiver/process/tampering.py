"""Finds who else could have changed a file or folder, or put another one in its place: code that is loaded from it runs as we do."""

import grp
import os
import pwd
import stat
from collections.abc import Collection
from pathlib import Path
from typing import Final

REMEDY: Final = "whoever can change them could run code as you: delete them, and let nobody else write there"
_ROOT: Final = 0
_ACCESS_LIST: Final = "system.posix_acl_access"


def exposure(*places: Path, trusted: Collection[int] = ()) -> str:
    """Say who else may change what is at these places, or what leads there; empty: nobody but us, root and `trusted` users.

    If nobody else may, only we, root or trusted users can change that: so the answer still holds when the place is read. Of a
    place that does not exist yet, the folders above it are checked.
    """
    owners = {os.geteuid(), _ROOT, *trusted}
    seen: set[Path] = set()
    told = (_exposure_on_the_way(place.absolute(), owners, seen) for place in places)
    return next(filter(None, told), "")


def _exposure_on_the_way(place: Path, owners: Collection[int], seen: set[Path]) -> str:
    """Check each step from the root to a place, and to where links lead; steps in `seen` were checked before."""
    for step in [*reversed(place.parents), place]:
        if step in seen:
            continue
        seen.add(step)
        try:
            found = step.lstat()
            told = _exposure_of(step, found, owners, is_end=step == place)
            if not told and stat.S_ISLNK(found.st_mode):
                told = _exposure_on_the_way(step.parent / step.readlink(), owners, seen)
        except FileNotFoundError:
            return ""
        except OSError as error:
            return f"{step} cannot be looked at ({error.strerror})"
        if told:
            return told
    return ""


def _exposure_of(step: Path, found: os.stat_result, owners: Collection[int], *, is_end: bool) -> str:
    if found.st_uid not in owners:
        return f"{step} belongs to {_user(found.st_uid)}"
    if stat.S_ISLNK(found.st_mode):
        return ""
    if (
        found.st_mode & stat.S_ISVTX and not is_end
    ):  # the sticky bit, as of /tmp: nobody may replace the files of others
        return ""
    if found.st_mode & stat.S_IWOTH:
        return f"anybody may write to {step}"
    return _exposure_to_groups(step, found) if found.st_mode & stat.S_IWGRP else ""


def _exposure_to_groups(step: Path, found: os.stat_result) -> str:
    if not _is_private(found.st_gid, found.st_uid):
        return f"group {_group(found.st_gid)} may write to {step}"
    return f"an access control list may let others write to {step}" if _has_access_list(step) else ""


def _has_access_list(step: Path) -> bool:
    """Tell whether a file has an ACL: then the bits of the group are only an upper bound for those whom the ACL names."""
    try:
        return _ACCESS_LIST in os.listxattr(step)
    except (AttributeError, OSError):  # this system or file system has no ACLs
        return False


def _is_private(gid: int, uid: int) -> bool:
    """Tell whether the owner is alone in the group: root's, or the group of the user's own name that Linux makes for each user."""
    try:
        group = grp.getgrgid(gid)
    except KeyError:
        return gid == _ROOT
    user = "root" if gid == _ROOT else _user(uid)
    return (gid == _ROOT or group.gr_name == user) and set(group.gr_mem) <= {user}


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
