"""The user that Spark's JVM runs as: one without a name on this machine too, such as in a container that is given only a number.

Java gives such a user the home `?`, which Ivy refuses, and no name, without which Hadoop lets nobody in.
"""

import os
import pwd
from pathlib import Path
from typing import Any


def options_of_user(folder: Path) -> list[str]:
    """Return what tells Java a name, and this folder as home, where the machine tells it neither."""
    return [] if _has_name() else [f"-Duser.name={os.getuid()}", f"-Duser.home={folder}"]


def log_in(jvm: Any) -> None:  # noqa: ANN401 - py4j's
    """Have Hadoop take a user without a name. The module of Java by which it asks the machine fails for one."""
    if not _has_name():
        users = jvm.org.apache.hadoop.security.UserGroupInformation
        users.setLoginUser(users.createRemoteUser(str(os.getuid())))


def _has_name() -> bool:
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        return False
    return True
