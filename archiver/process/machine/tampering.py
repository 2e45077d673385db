"""Finds other users who could have changed or replaced a file or folder: code that is loaded from it runs as we do."""

import grp
import os
import pwd
import stat
from collections.abc import Collection
from pathlib import Path
from typing import Final

REMEDY: Final = "a user who can change them could run code as you: delete them, and let no other user write there"
_ROOT: Final = 0
_ACCESS_LIST: Final = "system.posix_acl_access"


def exposure(*places: Path, trusted: Collection[int] = ()) -> str:
    """Return another user who may change these paths or their parents; empty if only we, root and `trusted` users can.

    Only those users can change that answer, so it is still true when the path is read. For a
    missing place, the folders above it are checked.
    """
    owners = {os.geteuid(), _ROOT, *trusted}
    seen: set[Path] = set()
    told = (_exposure_on_the_way(place.absolute(), owners, seen) for place in places)
    return next(filter(None, told), "")


def _exposure_on_the_way(place: Path, owners: Collection[int], seen: set[Path]) -> str:
    """Check each step from the root to a place, and to the targets of links; steps in `seen` were checked before."""
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
    if found.st_mode & stat.S_ISVTX and not is_end:  # the sticky bit, as of /tmp: users cannot replace files of others
        return ""
    if found.st_mode & stat.S_IWOTH:
        return f"anybody may write to {step}"
    return _exposure_to_groups(step, found) if found.st_mode & stat.S_IWGRP else ""


def _exposure_to_groups(step: Path, found: os.stat_result) -> str:
    if not _is_private(found.st_gid, found.st_uid):
        return f"group {_group(found.st_gid)} may write to {step}"
    return f"an access control list may let others write to {step}" if _has_access_list(step) else ""


def _has_access_list(step: Path) -> bool:
    """Return whether a file has an ACL: its group bits are then only an upper bound for the users of the ACL."""
    try:
        return _ACCESS_LIST in os.listxattr(step)
    except (AttributeError, OSError):  # this system or file system has no ACLs
        return False


def _is_private(gid: int, uid: int) -> bool:
    """Return whether the owner is the only member: root's group, or the private group that Linux creates for each user."""
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
