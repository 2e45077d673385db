"""What `make setup` and the demo fetch is what is listed with its hash, or nothing of it runs. No registry is asked."""

import base64
import hashlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from archiver.errors import ArchiverError, TemporaryError
from archiver.process.machine.jars import JarFolder, Module, fetch_jars, hash_lines
from tests.support.brokers import CACHE, REPOSITORY
from tests.support.pins import CONSTRAINTS, Entry, read_entries

# --- Python packages


@dataclass(frozen=True, slots=True)
class Checkout:
    """What `make setup` reads, with a .venv that has pip and nothing else, and wheels of a stranger instead of an index."""

    folder: Path
    wheels: Path

    def make(self, **environment: str) -> subprocess.CompletedProcess[str]:
        given = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.wheels), "PIP_NO_CACHE_DIR": "1"}
        return _run(["make", "setup"], self.folder, given | environment)

    @property
    def ran(self) -> Path:
        """Left by code of the stranger."""
        return self.folder / "ran"

    @property
    def is_set_up(self) -> bool:
        return (self.folder / ".venv" / ".set-up-test").exists()

    def list_instead(self, name: str, line: str) -> None:
        path = self.folder / "constraints.txt"
        entries = [line if entry.name == name else str(entry) for entry in read_entries(path.read_text())]
        path.write_text("\n".join([*entries, ""]))


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    folder, wheels = tmp_path / "checkout", tmp_path / "wheels"
    (folder / "archiver").mkdir(parents=True)
    wheels.mkdir()
    for name in ("Makefile", "constraints.txt", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, folder)
    for name in ("infra", "schemas"):
        shutil.copytree(REPOSITORY / name, folder / name)
    venv.create(folder / ".venv", with_pip=False)
    (packages,) = (folder / ".venv" / "lib").glob("python*/site-packages")
    for top in {file.parts[0] for file in importlib.metadata.files("pip") or () if file.parts[0] != ".."}:
        shutil.copytree(Path(str(importlib.metadata.distribution("pip").locate_file(top))), packages / top)
    return Checkout(folder, wheels)


def test_a_package_that_is_not_the_listed_one_does_not_run(checkout: Checkout) -> None:
    _hatchling_of_a_stranger(checkout)
    done = checkout.make()
    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stderr
    assert not checkout.ran.exists()
    assert not checkout.is_set_up


def test_a_package_that_is_listed_without_a_hash_is_not_installed(checkout: Checkout) -> None:
    wheel = _hatchling_of_a_stranger(checkout)
    checkout.list_instead("hatchling", f"hatchling=={wheel.name.split('-')[1]}")
    done = checkout.make()
    assert done.returncode != 0
    assert re.search(r"In --require-hashes mode(.|\n)*hatchling", done.stderr)
    assert not checkout.ran.exists()
    assert not checkout.is_set_up


def test_a_package_that_is_not_listed_is_not_installed(checkout: Checkout) -> None:
    """A listed one depends on it."""
    _hatchling_of_a_stranger(checkout, "Requires-Dist: stranger\n")
    for wheel in checkout.wheels.iterdir():
        name, version, *_ = wheel.name.split("-")
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        checkout.list_instead(name, str(Entry(name, version, (digest,))))
    _wheel(checkout.wheels, "stranger", "1.0", {})
    done = checkout.make()
    assert done.returncode != 0
    assert "must have their versions pinned" in done.stderr
    assert "stranger" in done.stderr
    assert not checkout.ran.exists()
    assert not checkout.is_set_up


def test_each_entry_has_hashes() -> None:
    entries = read_entries(CONSTRAINTS.read_text(encoding="utf-8"))
    assert len(entries) > 100
    for entry in entries:
        assert entry.hashes, entry.name
        assert all(len(bytes.fromhex(one)) == 32 for one in entry.hashes), entry.name


def _hatchling_of_a_stranger(checkout: Checkout, requires: str = "") -> Path:
    """Builds nothing; that it ran is seen. The tools beside it are of the stranger, too."""
    versions = {entry.name: entry.version for entry in read_entries(CONSTRAINTS.read_text(encoding="utf-8"))}
    build = f"from pathlib import Path\nPath({str(checkout.ran)!r}).touch()\n"
    for name in ("editables", "setuptools"):
        _wheel(checkout.wheels, name, versions[name], {})
    modules = {"hatchling/__init__.py": "", "hatchling/build.py": build}
    return _wheel(checkout.wheels, "hatchling", versions["hatchling"], modules, requires)


def _wheel(folder: Path, name: str, version: str, modules: Mapping[str, str], requires: str = "") -> Path:
    path, info = folder / f"{name}-{version}-py3-none-any.whl", f"{name}-{version}.dist-info"
    files = {
        **modules,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(path, "w") as wheel:
        for file, text in files.items():
            wheel.writestr(file, text)
        wheel.writestr(f"{info}/RECORD", "".join(f"{file},,\n" for file in [*files, f"{info}/RECORD"]))
    return path


# --- jars


class Mirror:
    """A registry of jars in a folder, which Ivy's own settings name; dependencies are not known there."""

    def __init__(self, folder: Path) -> None:
        self.jars = folder / "mirror"
        self.jars.mkdir()
        for name in ("broker", "logging"):
            (self.jars / f"{name}-1.0.jar").write_bytes(f"the jar {name}".encode() * 100)
        pattern = f"{self.jars}/[artifact]-[revision](-[classifier]).[ext]"
        settings = folder / ".ivy2" / "ivysettings.xml"
        settings.parent.mkdir()
        settings.write_text(
            '<ivysettings><settings defaultResolver="mirror"/><resolvers><filesystem name="mirror">'
            f'<artifact pattern="{pattern}"/></filesystem></resolvers></ivysettings>'
        )
        self.hashes = folder / "jars.sha256"
        self.hashes.write_text("".join(f"{line}\n" for line in hash_lines(self.jars, "broker-1.0")))
        self.cache = folder / "cache"

    def fetch(self) -> Path:
        modules = tuple(Module("any", name, "1.0") for name in ("broker", "logging"))
        return fetch_jars(JarFolder(name="broker-1.0", modules=modules), self.cache, self.hashes)


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mirror:
    monkeypatch.setenv("HOME", str(tmp_path))
    return Mirror(tmp_path)


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_jars_that_are_as_listed_are_fetched_once(mirror: Mirror) -> None:
    folder = mirror.fetch()
    assert sorted(path.name for path in folder.iterdir()) == ["broker-1.0.jar", "logging-1.0.jar"]
    assert list(mirror.cache.iterdir()) == [folder]
    shutil.rmtree(mirror.jars)
    assert mirror.fetch() == folder


def test_another_file_of_a_module_is_fetched_in_its_place(mirror: Mirror) -> None:
    (mirror.jars / "broker-1.0-all.tar.gz").write_bytes(b"the whole program")
    wanted = JarFolder(name="packed-1.0", modules=(Module("any", "broker", "1.0", "all", "tar.gz"),))
    with pytest.raises(ArchiverError, match=r"no hashes for packed-1\.0"):
        fetch_jars(wanted, mirror.cache, mirror.hashes)
    digest = hashlib.sha256(b"the whole program").hexdigest()
    mirror.hashes.write_text(f"{digest}  packed-1.0/broker-1.0-all.tar.gz\n")
    (packed,) = fetch_jars(wanted, mirror.cache, mirror.hashes).iterdir()
    assert packed.read_bytes() == b"the whole program"


def test_a_jar_with_one_other_bit_is_not_kept(mirror: Mirror) -> None:
    _flip(mirror.jars / "logging-1.0.jar")
    with pytest.raises(
        ArchiverError, match=r"broker-1\.0 is not what .* lists: logging-1\.0\.jar has SHA-256 \w+…, listed"
    ):
        mirror.fetch()
    assert list(mirror.cache.iterdir()) == []


def test_a_jar_that_is_not_listed_is_not_kept(mirror: Mirror) -> None:
    first = mirror.hashes.read_text().splitlines()[0]
    mirror.hashes.write_text(f"{first}\n")
    with pytest.raises(ArchiverError, match=r"logging-1\.0\.jar is not listed. Nothing was kept"):
        mirror.fetch()
    assert list(mirror.cache.iterdir()) == []


def test_what_has_no_list_is_not_fetched(mirror: Mirror) -> None:
    mirror.hashes.write_text("")
    with pytest.raises(ArchiverError, match=r"no hashes for broker-1\.0"):
        mirror.fetch()
    assert not mirror.cache.exists()


def test_a_kept_jar_is_compared_before_its_use(mirror: Mirror) -> None:
    folder = mirror.cache / "broker-1.0"
    shutil.copytree(mirror.jars, folder)
    _flip(folder / "broker-1.0.jar")
    (folder / "more.jar").touch()
    (folder / "logging-1.0.jar").unlink()
    with pytest.raises(ArchiverError) as told:
        mirror.fetch()
    for part in ("more.jar is not listed", "logging-1.0.jar is missing", "broker-1.0.jar has", f"Delete {folder}"):
        assert part in str(told.value)
    assert not isinstance(told.value, TemporaryError)  # another try brings the same


def test_what_is_no_file_among_kept_jars_is_named(mirror: Mirror) -> None:
    folder = mirror.cache / "broker-1.0"
    shutil.copytree(mirror.jars, folder)
    (folder / "more").mkdir()
    (folder / "logging-1.0.jar").unlink()
    (folder / "logging-1.0.jar").symlink_to("nowhere")
    with pytest.raises(ArchiverError) as told:
        mirror.fetch()
    for part in ("more is no file", "logging-1.0.jar is no file", f"Delete {folder}"):
        assert part in str(told.value)


@pytest.mark.parametrize("line", ["", "# jars", "abc  broker-1.0/broker-1.0.jar"])
def test_a_line_that_lists_nothing_is_named(mirror: Mirror, line: str) -> None:
    mirror.hashes.write_text(f"{mirror.hashes.read_text()}{line}\n")
    with pytest.raises(ArchiverError, match=r"line 3 of .*jars\.sha256 is no SHA-256 and path.*Delete that line"):
        mirror.fetch()


def test_a_list_that_is_gone_is_named(mirror: Mirror) -> None:
    mirror.hashes.unlink()
    with pytest.raises(ArchiverError, match=r"cannot read the list of hashes .*jars\.sha256.*Reinstall"):
        mirror.fetch()


def test_a_wrong_jar_ends_what_fetches_the_parts_of_tests(tmp_path: Path) -> None:
    for name in ("archiver", "tests", "schemas"):
        shutil.copytree(REPOSITORY / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "golden"))
    for listed in ("archiver/demo/kafka_jars.sha256", "tests/support/jars.sha256"):
        for line in (tmp_path / listed).read_text().splitlines():
            path = tmp_path / ".cache" / line.split()[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    done = _run([sys.executable, "-m", "tests.support.parts"], tmp_path, {"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 1, done.stderr
    assert done.stderr.count("Delete ") == 4, done.stderr


def test_make_ends_when_parts_of_tests_are_wrong(tmp_path: Path) -> None:
    shutil.copytree(REPOSITORY / "infra", tmp_path / "infra")
    for name in ("Makefile", "constraints.txt", "pyproject.toml"):
        shutil.copy(REPOSITORY / name, tmp_path)
    _script(tmp_path / "infra" / "minio.sh", "exit 0")
    for told in (1, 0):
        _script(tmp_path / ".venv" / "bin" / "python", f'case "$*" in *tests.support.parts) exit {told} ;; esac')
        done = _run(["make", "setup"], tmp_path)
        assert (done.returncode == 0) == (told == 0), done.stderr
        assert (tmp_path / ".venv" / ".set-up-test").exists() == (told == 0)


def _script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


# --- Go modules


class Modules:
    """A proxy of Go modules in a folder: a program, and what it depends on. No public log of checksums knows them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.checkout = folder, folder / "checkout"
        shutil.copytree(REPOSITORY / "infra", self.checkout / "infra")
        library = {
            "library@v1.0.0/go.mod": "module example.com/library\n\ngo 1.20\n",
            "library@v1.0.0/library.go": 'package library\n\nconst Says = "hello"\n',
        }
        self._publish("library", library)
        requires = f"example.com/library v1.0.0 {_h1(library, 'library@v1.0.0/')}\n"
        requires += f"example.com/library v1.0.0/go.mod {_h1({'go.mod': library['library@v1.0.0/go.mod']})}\n"
        program = {
            "program@v1.0.0/go.mod": "module example.com/program\n\ngo 1.20\n\nrequire example.com/library v1.0.0\n",
            "program@v1.0.0/go.sum": requires,
            "program@v1.0.0/cmd/main.go": 'package main\n\nimport "example.com/library"\n\nfunc main() { print(library.Says) }\n',
        }
        self._publish("program", program)
        self.checksum = _h1(program, "program@v1.0.0/")

    def _publish(self, name: str, files: Mapping[str, str]) -> None:
        folder = self.folder / "proxy" / "example.com" / name / "@v"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "list").write_text("v1.0.0\n")
        (folder / "v1.0.0.info").write_text('{"Version": "v1.0.0"}')
        (folder / "v1.0.0.mod").write_text(files[f"{name}@v1.0.0/go.mod"])
        with zipfile.ZipFile(folder / "v1.0.0.zip", "w") as written:
            for file, text in files.items():
                written.writestr(f"example.com/{file}", text)

    def change_library(self) -> None:
        self._publish(
            "library",
            {
                "library@v1.0.0/go.mod": "module example.com/library\n\ngo 1.20\n",
                "library@v1.0.0/library.go": 'package library\n\nconst Says = "other"\n',
            },
        )

    def build(self, checksum: str) -> subprocess.CompletedProcess[str]:
        given = {
            "GOPROXY": f"file://{self.folder / 'proxy'}",
            "GOMODCACHE": str(self.folder / "modules"),
            "GOFLAGS": "-modcacherw",
            "GOSUMDB": "off",
        }
        named = ["program", "example.com/program", "cmd", "v1.0.0", "20", checksum]
        return _run(["infra/go-program.sh", *named], self.checkout, given)

    @property
    def built(self) -> Path:
        return self.checkout / ".cache" / "bin" / "program"


def _h1(files: Mapping[str, str], inside: str = "") -> str:
    """The checksum as Go spells it: of the lines of sha256sum, whose paths begin with module and version in an archive."""
    lines = sorted((f"example.com/{name}" if inside else name, text) for name, text in files.items())
    listed = "".join(f"{hashlib.sha256(text.encode()).hexdigest()}  {name}\n" for name, text in lines)
    return "h1:" + base64.b64encode(hashlib.sha256(listed.encode()).digest()).decode()


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Modules:
    own_go = CACHE / "go" / "go" / "bin"
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:{own_go}")
    if shutil.which("go") is None:
        pytest.skip("no Go: MinIO was built elsewhere")
    return Modules(tmp_path)


def test_a_program_is_built_of_the_listed_sources(modules: Modules) -> None:
    done = modules.build(modules.checksum)
    assert done.returncode == 0, done.stderr
    assert _run([str(modules.built)], modules.folder).stderr == "hello"
    modified = modules.built.stat().st_mtime_ns
    assert modules.build(modules.checksum).returncode == 0
    assert modules.built.stat().st_mtime_ns == modified


def test_a_program_of_other_sources_is_not_built(modules: Modules) -> None:
    done = modules.build(modules.checksum.replace("h1:", "h1:x"))
    assert done.returncode != 0
    assert f"has checksum {modules.checksum}, listed is h1:x" in done.stderr
    assert not modules.built.exists()


def test_a_program_is_not_built_with_another_library(modules: Modules) -> None:
    """Also where nobody asks the public log of checksums."""
    modules.change_library()
    done = modules.build(modules.checksum)
    assert done.returncode != 0
    assert "checksum mismatch" in done.stderr
    assert not modules.built.exists()


def _run(
    command: list[str], folder: Path, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    given = {**os.environ, **(environment or {})}
    return subprocess.run(command, cwd=folder, env=given, capture_output=True, text=True, timeout=100, check=False)
