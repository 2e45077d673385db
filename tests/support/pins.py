"""`python -m tests.support.pins`: the hashes of all that is fetched, written again. Versions are changed by hand, before.

Of Python packages: what the index publishes, for each file that a machine of ours may take. Of jars: what the registry sends now.
"""

import json
import re
import tempfile
import urllib.request
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

from packaging.tags import Tag
from packaging.utils import InvalidSdistFilename, InvalidWheelFilename, parse_sdist_filename, parse_wheel_filename
from packaging.version import Version
from pip._internal.models.index import PyPI

from archiver.demo.sandbox import KAFKA_HASHES, kafka_of
from archiver.process.machine.jars import JarFolder, hash_lines, retrieve_jars
from tests.support.brokers import KAFKA_33, KAFKA_37, KAFKA_39, KAFKA_41, KAFKA_44, REPOSITORY
from tests.support.parts import HASHES, PARTS
from tests.support.zookeeper import KAFKA_28

CONSTRAINTS: Final = REPOSITORY / "constraints.txt"
KAFKA_VERSIONS: Final = (KAFKA_28, KAFKA_33, KAFKA_37, KAFKA_39, KAFKA_41, KAFKA_44)
_PYTHONS: Final = ("cp311", "cp312", "cp313", "cp314")
_SYSTEMS: Final = ("manylinux", "musllinux", "macosx")
_MACHINES: Final = ("x86_64", "aarch64", "arm64", "universal2")
_AT_ONCE: Final = 4


class Entry(NamedTuple):
    """Of constraints.txt."""

    name: str
    version: str
    hashes: tuple[str, ...]

    def __str__(self) -> str:
        return " \\\n    ".join([f"{self.name}=={self.version}", *(f"--hash=sha256:{one}" for one in self.hashes)])


def read_entries(text: str) -> list[Entry]:
    """An entry is one logical line; a line that is none, and no comment, is an error."""
    lines = [line.split() for line in text.replace("\\\n", " ").splitlines() if line and not line.startswith("#")]
    return [_entry(*words) for words in lines]


def _entry(pin: str, *options: str) -> Entry:
    name, version = pin.split("==")
    return Entry(name, version, tuple(option.removeprefix("--hash=sha256:") for option in options))


def pin_packages(text: str) -> str:
    """The same constraints with the hashes that the index publishes now."""
    comments = [line for line in text.splitlines() if line.startswith("#")]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        entries = pool.map(_published, read_entries(text))
    return "\n".join([*comments, *map(str, entries), ""])


def _published(entry: Entry) -> Entry:
    request = urllib.request.Request(
        f"{PyPI.simple_url}/{entry.name}/", headers={"Accept": "application/vnd.pypi.simple.v1+json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        files = json.load(answer)["files"]
    hashes = {file["filename"]: file["hashes"]["sha256"] for file in files}
    taken = list(_files_of(Version(entry.version), hashes))
    if not taken:
        raise SystemExit(f"{entry.name} {entry.version}: the index has no file that we could take")
    return entry._replace(hashes=tuple(sorted(hashes[name] for name in taken)))


def _files_of(version: Version, names: Iterable[str]) -> Iterator[str]:
    """Its wheels for us; its source where it has none."""
    wheels = [name for name in names if name.endswith(".whl") and _fits(name, version)]
    yield from wheels or (name for name in names if _source_version(name) == version)


def _fits(wheel: str, version: Version) -> bool:
    try:
        _, found, _, tags = parse_wheel_filename(wheel)
    except InvalidWheelFilename:  # of old releases
        return False
    return found == version and any(_is_ours(tag) for tag in tags)


def _source_version(name: str) -> Version | None:
    try:
        return parse_sdist_filename(name)[1]
    except InvalidSdistFilename:
        return None


def _is_ours(tag: Tag) -> bool:
    ours = tag.platform == "any" or (tag.platform.startswith(_SYSTEMS) and tag.platform.endswith(_MACHINES))
    if tag.interpreter in _PYTHONS:
        return ours and tag.abi in {tag.interpreter, "abi3", "none"}
    return ours and (re.fullmatch(r"py3\d*", tag.interpreter) is not None or tag.abi == "abi3")


def pin_jars(folders: Iterable[JarFolder]) -> str:
    """A list of what the registry sends now, in the way of `sha256sum`."""
    lines: list[str] = []
    for folder in folders:
        with tempfile.TemporaryDirectory() as staging:
            lines += hash_lines(retrieve_jars(folder, Path(staging)), folder.name)
    return "".join(f"{line}\n" for line in lines)


def main() -> None:
    CONSTRAINTS.write_text(pin_packages(CONSTRAINTS.read_text(encoding="utf-8")), encoding="utf-8")
    KAFKA_HASHES.write_text(pin_jars(map(kafka_of, KAFKA_VERSIONS)), encoding="utf-8")
    HASHES.write_text(pin_jars(PARTS), encoding="utf-8")


if __name__ == "__main__":
    main()
