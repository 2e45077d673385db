"""Another user of this machine."""

import os
from typing import Final

import pytest

NOBODY: Final = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be, or give a file to, another user")
