"""Packs the environment that tasks of ours need into one file for `spark-submit --archives` (docs/clusters.md).

It has packages and no interpreter: `bin/python` searches the machine for one, and reports the problem when none fits.
"""

import gzip
import hashlib
import importlib.metadata
import importlib.util
import io
import json
import marshal
import os
import sysconfig
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path, PurePosixPath
from typing import IO, Final

from archiver.codec import schemas
from archiver.codec.kernels.jit import compiled_kernels, kernel_cache
from archiver.codec.warm import compile_kernels
from archiver.errors import ArchiverError, UsageError
from archiver.process.machine.edition import edition
from archiver.process.output.progress import Eta

_PACKAGE: Final = Path(__file__).parents[2]
_OURS: Final = "kafka-archiver"
_OF_THE_CLUSTER: Final = frozenset({"pyspark", "py4j"})  # 490 MB; the cluster's own must be used
_FOR_SQL: Final = frozenset({"pandas", "pyarrow"})
_LIBRARY: Final = "lib"
_LEVEL: Final = 1  # of gzip: 6 makes a tenth less of it, in three times the time
_MEBIBYTE: Final = 1024 * 1024
_MTIME: Final = 1_000_000_000  # the same for all files, so that equal environments make equal bytes
_PYC_UNCHECKED: Final = (1).to_bytes(4, "little")
_PYC_HEADER_BYTES: Final = 16

# Compiled modules fit interpreters of one kind and minor version, which this name shows: cpython-311-x86_64-linux-gnu.
_ABI: Final = str(sysconfig.get_config_var("SOABI"))
_PYTHON: Final = sysconfig.get_python_version()
_LAUNCHER: Final = """\
#!/bin/sh
# Runs a Python of this machine with the packages that lie beside this folder, and no others (-S).
# It is $ARCHIVER_PYTHON, or the first on the PATH that they were made for.
wanted={abi}
here=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd -P) || exit 1
others=
for python in ${{ARCHIVER_PYTHON:-python{version} python3 python /usr/local/bin/python{version} /usr/bin/python{version}}}; do
  path=$(command -v -- "$python") || {{ [ -z "${{ARCHIVER_PYTHON:-}}" ] || others=", $python is not there"; continue; }}
  found=$("$path" -ISc 'import sysconfig; print(sysconfig.get_config_var("SOABI"))' 2>/dev/null) || continue
  if [ "$found" = "$wanted" ]; then
    # Tasks do no linear algebra, for which numpy would start a thread a core.
    export OPENBLAS_NUM_THREADS="${{OPENBLAS_NUM_THREADS:-1}}"
    export PYTHONPATH="$here/{library}${{PYTHONPATH:+:$PYTHONPATH}}"
    exec "$path" -S "$@"
  fi
  others="$others, $path is $found"
done
echo "archiver: $(uname -n) has no Python {version} that the packed environment fits ($wanted)${{others}}:\
 install it, name it in ARCHIVER_PYTHON (spark.executorEnv.ARCHIVER_PYTHON for executors), or pack with a Python that is there" >&2
exit 2
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedEnvironment:
    """The packed environment."""

    path: Path
    stored_bytes: int
    unpacked_bytes: int
    files: int
    sha256: str
    python: str  # which interpreters it fits
    edition: str
    kernels: int  # how many were compiled, for the processor of this machine
    packages: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _PackedFile:
    """A file of the archive; `source` is where its bytes are, or the bytes themselves."""

    name: str
    source: Path | bytes
    is_program: bool = False

    def content(self) -> bytes:
        return self.source if isinstance(self.source, bytes) else self.source.read_bytes()


def pack_environment(
    target: Path,
    *,
    add: Sequence[str] = (),
    with_sql: bool = True,
    overwrite: bool = False,
    report_step: Callable[[str], None] = lambda _: None,
) -> PackedEnvironment:
    """Pack this Python's archiver and its requirements, less Spark itself; `add` names more installed distributions.

    The file is written whole or not at all.
    """
    _refuse_what_is_there(target, overwrite=overwrite)
    packed = _closure(add, frozenset() if with_sql else _FOR_SQL)
    report_step("compiling kernels")
    compile_kernels()
    report_step("looking at the packages")
    kernels = list(_kernels())
    found = [*_own_package(), *kernels, *(entry for one in packed for entry in _installed_files(one))]
    packages = sorted(f"{one.name}=={one.version}" for one in packed)
    about = {
        "edition": edition(),
        "python": _ABI,
        "kernels": len(kernels) // 2,
        "packages": packages,
    }
    launcher = _LAUNCHER.format(abi=_ABI, version=_PYTHON, library=_LIBRARY)
    found.append(_PackedFile(name="bin/python", source=launcher.encode(), is_program=True))
    found.append(_PackedFile(name="environment.json", source=json.dumps(about, indent=1).encode()))
    entries = {entry.name: entry for entry in found}  # related packages may share a file
    stored_bytes, unpacked_bytes, sha256 = _write_whole(target, entries.values(), report_step)
    return PackedEnvironment(
        path=target,
        stored_bytes=stored_bytes,
        unpacked_bytes=unpacked_bytes,
        files=len(entries),
        sha256=sha256,
        python=_ABI,
        edition=edition(),
        kernels=len(kernels) // 2,
        packages=packages,
    )


# --- which packages


def _closure(add: Iterable[str], left_out: frozenset[str]) -> list[Distribution]:
    """Return the distributions that the archiver with its Spark extra needs, each once, and `add` with their requirements."""
    try:
        from packaging.requirements import InvalidRequirement, Requirement  # noqa: PLC0415 - of the extra
        from packaging.utils import canonicalize_name  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise UsageError(f"spark-env pack needs {error.name}: pip install 'kafka-archiver[spark]'") from error

    skipped = _OF_THE_CLUSTER | left_out
    found: dict[str, Distribution] = {}
    asked: set[tuple[str, str]] = set()  # name, and extra; "": without one

    def visit(requirement: Requirement, who: str) -> None:
        name = canonicalize_name(requirement.name)
        if name in skipped:
            return
        found[name] = found.get(name) or _distribution(requirement.name, who)
        for extra in {"", *requirement.extras} - {extra for seen, extra in asked if seen == name}:
            asked.add((name, extra))
            for text in found[name].requires or ():
                needed = Requirement(text)
                if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                    visit(needed, name)

    wanted = [Requirement(f"{_OURS}[spark]")]
    for text in add:
        try:
            wanted.append(Requirement(text))
        except InvalidRequirement as error:
            raise UsageError(f"--add {text}: not the name of a distribution") from error
    for requirement in wanted:
        visit(requirement, "--add")
    return [found[name] for name in sorted(found)]


def _distribution(name: str, who: str) -> Distribution:
    try:
        return importlib.metadata.distribution(name)
    except PackageNotFoundError as error:
        told = f"--add {name}: is" if who == "--add" else f"{name}, which {who} needs, is"
        raise UsageError(
            f"{told} not installed in this Python; pip install 'kafka-archiver[spark]' and what is to be added"
        ) from error


# --- which files


def _own_package() -> Iterator[_PackedFile]:
    """The archiver as it runs here, installed or in a checkout; it is compiled as far as possible."""
    for path in sorted(_PACKAGE.rglob("*")):
        name = f"{_LIBRARY}/archiver/{path.relative_to(_PACKAGE).as_posix()}"
        if not path.is_file() or "__pycache__" in path.parts or "/schemas/" in name:
            continue
        source = path.read_bytes()
        yield _PackedFile(name=name, source=source)
        if path.suffix == ".py":
            code = compile(source, name, "exec", dont_inherit=True, optimize=0)
            yield _PackedFile(name=_compiled_name(name), source=_pyc(source, marshal.dumps(code)))
    for schema in schemas.SCHEMAS:
        yield _PackedFile(
            name=f"{_LIBRARY}/archiver/schemas/{schema}.avsc", source=schemas.load_schema(schema).encode()
        )


def _kernels() -> Iterator[_PackedFile]:
    kept = kernel_cache()
    for path in compiled_kernels(kept) if kept is not None else ():
        yield _PackedFile(
            name=f"{_LIBRARY}/archiver/codec/kernels/__pycache__/{path.parent.name}/{path.name}", source=path
        )


def _installed_files(distribution: Distribution) -> Iterator[_PackedFile]:
    """The installed files of a distribution, without programs, with their compiled modules."""
    name = distribution.name
    if distribution.files is None:
        raise UsageError(f"{name}: nothing tells which files belong to it; install it with pip")
    for file in sorted(distribution.files, key=str):
        is_ours = name == _OURS and file.name != "METADATA"  # the package itself is packed as it runs
        if is_ours or file.is_absolute() or ".." in file.parts or "__pycache__" in file.parts:
            continue
        if file.name in {"direct_url.json", "INSTALLER", "REQUESTED"}:  # how it came here
            continue
        path = Path(str(distribution.locate_file(file)))
        if not path.is_file():
            raise ArchiverError(f"{path}: is missing, of {name} {distribution.version}; install that again")
        packed = f"{_LIBRARY}/{file.as_posix()}"
        yield _PackedFile(name=packed, source=path)
        compiled = _compiled_of(path) if path.suffix == ".py" else None
        if compiled is not None:
            yield _PackedFile(name=_compiled_name(packed), source=compiled)


def _compiled_name(name: str) -> str:
    path = PurePosixPath(name)
    return str(path.parent / "__pycache__" / Path(importlib.util.cache_from_source(path.name)).name)


def _compiled_of(path: Path) -> bytes | None:
    """Return a module as compiled by pip or an import; None if missing, or compiled from another source."""
    source, stat = path.read_bytes(), path.stat()
    try:
        compiled = Path(importlib.util.cache_from_source(str(path))).read_bytes()
    except OSError:
        return None
    dated = (int(stat.st_mtime) & 0xFFFFFFFF).to_bytes(4, "little") + (stat.st_size & 0xFFFFFFFF).to_bytes(4, "little")
    if compiled[:_PYC_HEADER_BYTES] != importlib.util.MAGIC_NUMBER + bytes(4) + dated:
        return None
    return _pyc(source, compiled[_PYC_HEADER_BYTES:])


def _pyc(source: bytes, code: bytes) -> bytes:
    """A compiled module that Python trusts without a check of the source's time: unpacking does not always keep that."""
    return importlib.util.MAGIC_NUMBER + _PYC_UNCHECKED + importlib.util.source_hash(source) + code


# --- one file


def _refuse_what_is_there(target: Path, *, overwrite: bool) -> None:
    if target.is_dir():
        raise UsageError(f"{target}: is a folder; name a file")
    if target.exists() and not overwrite:
        raise UsageError(f"{target}: is there already; name another file, or give --force")
    if not target.name.endswith((".tar.gz", ".tgz")):
        raise UsageError(f"{target}: Spark unpacks what ends with .tar.gz; name it like that")


def _write_whole(
    target: Path, entries: Iterable[_PackedFile], report_step: Callable[[str], None]
) -> tuple[int, int, str]:
    """Write beside the target, and rename at the end. Returns packed and unpacked size in bytes, and the SHA-256."""
    unfinished = target.with_name(f".{target.name}-{os.getpid()}")
    try:
        with unfinished.open("xb") as file:
            unpacked_bytes = _write_tar(file, sorted(entries, key=lambda entry: entry.name), report_step)
        with unfinished.open("rb") as written:
            sha256 = hashlib.file_digest(written, "sha256").hexdigest()
        return unfinished.replace(target).stat().st_size, unpacked_bytes, sha256
    except OSError as error:
        raise ArchiverError(
            f"{target}: cannot be written: {error.strerror}; name a file elsewhere, or make room"
        ) from error
    finally:
        unfinished.unlink(missing_ok=True)


def _write_tar(file: IO[bytes], entries: Sequence[_PackedFile], report_step: Callable[[str], None]) -> int:
    total = sum(_size(entry) for entry in entries)
    what = f"packing {total // _MEBIBYTE:,} MiB"
    eta, done = Eta("MiB"), 0
    with (
        gzip.GzipFile("", "wb", _LEVEL, file, mtime=_MTIME) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.GNU_FORMAT) as tar,
    ):
        for entry in entries:
            content = entry.content()
            about = tarfile.TarInfo(entry.name)
            about.size, about.mtime, about.mode = len(content), _MTIME, 0o755 if entry.is_program else 0o644
            tar.addfile(about, io.BytesIO(content))
            done += len(content)
            report_step(f"{what}: {eta.spell(done // _MEBIBYTE, total // _MEBIBYTE)}")
    return done


def _size(entry: _PackedFile) -> int:
    return len(entry.source) if isinstance(entry.source, bytes) else entry.source.stat().st_size
