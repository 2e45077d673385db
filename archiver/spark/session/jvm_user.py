"""Runs Spark's JVM as any user, also one without a name on this machine, as in a container that is given only a number.

Java gives such a user the home `?`, which Ivy refuses, and no name, which Hadoop requires.
"""

import os
import pwd
from pathlib import Path
from typing import Any


def options_of_user(folder: Path) -> list[str]:
    """Return Java options that set a name, and this folder as home, if the machine has neither."""
    return [] if _has_name() else [f"-Duser.name={os.getuid()}", f"-Duser.home={folder}"]


def log_in(jvm: Any) -> None:  # noqa: ANN401 - py4j's
    """Have Hadoop take a user without a name. Java's own login module fails for one."""
    if not _has_name():
        users = jvm.org.apache.hadoop.security.UserGroupInformation
        users.setLoginUser(users.createRemoteUser(str(os.getuid())))


def _has_name() -> bool:
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        return False
    return True
