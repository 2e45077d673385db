"""Fetches jars from the Maven registry with PySpark's Ivy, and uses only those whose SHA-256 is listed.

Ivy checks downloads only against checksums of the same registry, and an attacker who replaces a jar replaces both.
"""

import hashlib
import importlib.util
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from archiver.errors import ArchiverError, TemporaryError
from archiver.process.machine.java import check_java, last_lines, run_to_end

IVY_MODULE: Final = """\
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="kafka-archiver" module="jars"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
{dependencies}
  </dependencies>
</ivy-module>
"""
_DEPENDENCY: Final = """\
    <dependency org="{0.organisation}" name="{0.name}" rev="{0.version}" transitive="{1}" conf="default->default">{2}</dependency>"""
_ARTIFACT: Final = '<artifact name="{0.name}" type="{0.extension}" ext="{0.extension}" m:classifier="{0.classifier}"/>'
_TOLD: Final = 3  # jars that an error names
_DIGITS: Final = 12  # of a SHA-256 that an error shows
_LISTED: Final = re.compile(r"(?P<digest>[0-9a-f]{64}) [ *](?P<path>\S+)")


class Module(NamedTuple):
    """A module of a Maven registry, by the three parts of its name; with a classifier, another of its files."""

    organisation: str
    name: str
    version: str
    classifier: str = ""
    extension: str = "jar"


@dataclass(frozen=True, slots=True, kw_only=True)
class JarFolder:
    """Modules with their jars in one folder."""

    name: str  # of the folder, and of its entries in the list of hashes
    modules: tuple[Module, ...]
    with_dependencies: bool = True


def fetch_jars(wanted: JarFolder, cache_dir: Path, hashes: Path) -> Path:
    """Return the folder `<cache_dir>/<name>`, fetched if absent; each process compares it with the list before its first use.

    The folder appears whole and compared, or not at all, also if two processes fetch at once. Ivy's own settings apply: a
    file `~/.ivy2/ivysettings.xml` may name another registry or a mirror.
    """
    folder = cache_dir / wanted.name
    if not folder.is_dir():
        read_hashes(hashes, wanted.name)
        cache_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f"{wanted.name}-", dir=cache_dir) as staging:
            fetched = retrieve_jars(wanted, Path(staging))
            _compare(
                fetched, wanted.name, hashes, f"Nothing was kept. Ask who runs the mirror, if {_settings()} names one"
            )
            try:
                fetched.rename(folder)
            except OSError:
                if not folder.is_dir():  # else another process has fetched the same jars
                    raise
    compare_folder(folder, hashes)
    return folder


@cache
def compare_folder(folder: Path, hashes: Path) -> None:
    """Raise an error unless the folder has exactly the files that are listed under its name. 80 ms for a broker's jars."""
    _compare(folder, folder.name, hashes, f"Delete {folder}, and it is fetched again")


def hash_lines(folder: Path, name: str) -> Iterator[str]:
    """Return a line for each file in the folder, as sha256sum writes it and `read_hashes` reads it."""
    for path in sorted(folder.iterdir()):
        yield f"{_sha256(path)}  {name}/{path.name}"


def read_hashes(hashes: Path, name: str) -> Mapping[str, str]:
    """Return the SHA-256 of each file that a list has under the name of a folder."""
    listed: dict[str, str] = {}
    for number, line in enumerate(_lines_of(hashes), 1):
        match = _LISTED.fullmatch(line)
        if match is None:
            raise ArchiverError(
                f"line {number} of {hashes} is no SHA-256 and path, as sha256sum writes them: {line[:80]!r}."
                " Delete that line, or reinstall what brought the file"
            )
        if match["path"].startswith(f"{name}/"):
            listed[match["path"].removeprefix(f"{name}/")] = match["digest"]
    if not listed:
        raise ArchiverError(f"no hashes for {name} in {hashes}: it is not fetched, since nothing would tell what came")
    return listed


def _lines_of(hashes: Path) -> list[str]:
    try:
        return hashes.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ArchiverError(
            f"cannot read the list of hashes {hashes}: {error}. Reinstall what brought the file"
        ) from error


def _compare(folder: Path, name: str, hashes: Path, next_step: str) -> None:
    listed = read_hashes(hashes, name)
    try:
        digests = {path.name: _sha256(path) if path.is_file() else None for path in sorted(folder.iterdir())}
    except OSError as error:
        raise ArchiverError(f"cannot compare {folder} with {hashes}: {error}. {next_step}") from error
    found = {jar: digest for jar, digest in digests.items() if digest is not None}
    wrong = [f"{name} is no file" for name, digest in digests.items() if digest is None]
    wrong += [f"{jar} is not listed" for jar in found if jar not in listed]
    wrong += [f"{jar} is missing" for jar in listed if jar not in digests]
    wrong += [
        f"{jar} has SHA-256 {found[jar][:_DIGITS]}…, listed is {digest[:_DIGITS]}…"
        for jar, digest in listed.items()
        if found.get(jar, digest) != digest
    ]
    if wrong:
        more = f"; {len(wrong) - _TOLD} more" if len(wrong) > _TOLD else ""
        raise ArchiverError(f"{name} is not what {hashes} lists: {'; '.join(wrong[:_TOLD])}{more}. {next_step}")


def _sha256(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def retrieve_jars(wanted: JarFolder, staging: Path) -> Path:
    """Download the jars into a folder in `staging` and return it. Their hashes are not checked yet."""
    java, ivy, jars = check_java(), _find_ivy(), staging / "jars"
    asked = staging / "ivy.xml"
    transitive = str(wanted.with_dependencies).lower()
    lines = [
        _DEPENDENCY.format(module, transitive, _ARTIFACT.format(module) if module.classifier else "")
        for module in wanted.modules
    ]
    asked.write_text(IVY_MODULE.format(dependencies="\n".join(lines)), encoding="utf-8")
    command = [java, "-Djava.net.useSystemProxies=true", "-jar", str(ivy)]
    command += ["-settings", str(_settings())] if _settings().is_file() else []
    command += ["-cache", str(staging / "ivy"), "-ivy", str(asked), "-confs", "default"]
    command += ["-retrieve", str(jars / "[artifact]-[revision](-[classifier]).[ext]")]
    done = run_to_end(command)
    if done.returncode != 0 or any(not _jars_of(module, jars) for module in wanted.modules):
        raise TemporaryError(
            f"could not fetch {wanted.name} from the Maven registry; check the network, a proxy "
            f"(java -Dhttps.proxyHost), or name a mirror in {_settings()}. Ivy said:\n{last_lines(done.stdout, 15)}"
        ).in_lines()
    return jars


def _jars_of(module: Module, jars: Path) -> list[Path]:
    return list(jars.glob(f"{module.name}-{module.version}*.{module.extension}"))


def _settings() -> Path:
    try:
        home = Path.home()
    except RuntimeError:  # a user without a home; never take the current folder, which may have any user's files
        home = Path("/")
    return home / ".ivy2" / "ivysettings.xml"


def _find_ivy() -> Path:
    """Return the jar of Ivy that PySpark brings. PySpark itself is not imported: only spark/ may, and it takes two seconds."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ArchiverError("fetching jars needs PySpark: pip install 'kafka-archiver[demo]'")
    jars = sorted((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))
    if not jars:
        raise ArchiverError(f"no ivy-*.jar in {Path(spec.origin).parent / 'jars'}: reinstall PySpark")
    return jars[-1]
