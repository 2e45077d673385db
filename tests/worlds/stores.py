"""How the store of each world is started. All of them are stopped when the world ends."""

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.brokers import REPOSITORY
from tests.support.minio import minio_or_skip
from tests.worlds.world import Store


@contextmanager
def minio(_folder: Path) -> Iterator[Store]:
    with minio_or_skip() as server:
        yield Store(name=f"MinIO {built_version('minio')}", s3=server)


def built_version(program: str) -> str:
    """Of a program that infra/ builds. A Go module's version without a tag holds its date."""
    text = (REPOSITORY / "infra" / f"{program}.sh").read_text(encoding="utf-8")
    (version,) = re.findall(r"^version=v(\S+)", text, re.MULTILINE)
    dated = re.fullmatch(r"0\.0\.0-(\d{4})(\d{2})(\d{2})\d+-\w+", version)
    return "-".join(dated.groups()) if dated else version
