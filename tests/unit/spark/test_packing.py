"""The packed environment: what belongs to it, that the same makes the same bytes, and who may run it."""

import os
import py_compile
import stat
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

import pytest

from archiver.errors import ArchiverError, UsageError
from archiver.spark.session import packing
from archiver.spark.session.packing import pack_environment

ABI = str(sysconfig.get_config_var("SOABI"))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The archiver without what it needs, of which there is 400 MB."""
    monkeypatch.setattr(packing, "_closure", lambda *_: [])
    monkeypatch.setattr(packing, "compile_kernels", lambda: None)


@pytest.fixture
def environment(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    request.getfixturevalue("small")
    pack_environment(tmp_path / "env.tar.gz")
    with tarfile.open(tmp_path / "env.tar.gz") as tar:
        tar.extractall(tmp_path / "env of ours", filter="tar")
    return tmp_path / "env of ours"


def run(environment: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(environment / "bin" / "python"), *arguments],
        capture_output=True,
        text=True,
        cwd=environment,
        env={"PATH": "/usr/bin:/bin", **variables},
        timeout=20,
        check=False,
    )


def fake_python(folder: Path, name: str, abi: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\necho {abi}\n")
    path.chmod(0o755)
    return path


def names_of(*add: str, left_out: frozenset[str] = frozenset()) -> set[str]:
    return {one.name.lower().replace("_", "-") for one in packing._closure(add, left_out)}


def test_what_the_archiver_needs_is_packed_but_not_what_the_cluster_has() -> None:
    found = names_of()
    assert {"kafka-archiver", "numba", "llvmlite", "aiokafka", "packaging", "pyarrow", "pandas"} <= found
    assert not found & {"pyspark", "py4j", "pytest", "mypy", "moto", "pip"}


def test_without_sql_there_is_less() -> None:
    left_out = names_of(left_out=packing._FOR_SQL)
    assert names_of() - left_out >= {"pyarrow", "pandas"}
    assert "numba" in left_out


def test_more_can_be_added_with_what_it_needs() -> None:
    assert {"pytest", "pluggy", "iniconfig"} <= names_of("pytest") - names_of()


@pytest.mark.parametrize(("name", "told"), [("no-such-thing", "is not installed"), ("a b", "not the name of")])
def test_what_cannot_be_added_is_named(name: str, told: str) -> None:
    with pytest.raises(UsageError, match=f"--add {name}: .*{told}"):
        names_of(name)


@pytest.mark.usefixtures("small")
def test_the_same_environment_makes_the_same_bytes(tmp_path: Path) -> None:
    first, second = (pack_environment(tmp_path / f"{name}.tar.gz") for name in "ab")
    assert first.sha256 == second.sha256
    with tarfile.open(tmp_path / "a.tar.gz") as tar:
        members = tar.getmembers()
    assert [one.name for one in members] == sorted(one.name for one in members)
    assert {(one.uid, one.uname, one.mtime) for one in members} == {(0, "", packing._MTIME)}
    assert [one.name for one in members if one.mode & stat.S_IXUSR] == ["bin/python"]
    assert {"lib/archiver/submit.py", "lib/archiver/schemas/AvroKafkaRecord-v2.0.avsc"} <= {one.name for one in members}


@pytest.mark.usefixtures("small")
def test_a_file_that_is_there_is_kept_unless_told(tmp_path: Path) -> None:
    target = tmp_path / "env.tar.gz"
    target.write_text("precious")
    with pytest.raises(UsageError, match="is there already"):
        pack_environment(target)
    assert target.read_text() == "precious"
    pack_environment(target, overwrite=True)
    assert tarfile.is_tarfile(target)
    assert [path.name for path in tmp_path.iterdir()] == [target.name]


@pytest.mark.usefixtures("small")
def test_what_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(packing, "_write_tar", fail)
    with pytest.raises(ArchiverError, match="No space left on device"):
        pack_environment(tmp_path / "env.tar.gz")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", ["env.zip", "folder.tar.gz"])
def test_a_target_that_cannot_be_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder.tar.gz").mkdir()
    with pytest.raises(UsageError, match=name):
        pack_environment(tmp_path / name)


def test_compiled_modules_are_taken_only_where_they_are_of_this_source(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text("answer = 42\n")
    assert packing._compiled_of(path) is None
    py_compile.compile(str(path), invalidation_mode=py_compile.PycInvalidationMode.TIMESTAMP)
    assert packing._compiled_of(path) is not None
    path.write_text("answer = 'forty-two'\n")
    assert packing._compiled_of(path) is None


def test_a_python_of_our_kind_gets_what_was_packed_and_nothing_else(environment: Path) -> None:
    program = "import archiver, sys; print(archiver.__file__, sys.flags.no_site, *sys.path, sep='\\n')"
    done = run(environment, "-c", program, ARCHIVER_PYTHON=sys.executable)
    ours, no_site, *path = done.stdout.splitlines()
    assert (ours, no_site) == (str(environment / "lib" / "archiver" / "__init__.py"), "1"), done.stderr
    assert [place for place in path if place.endswith(("site-packages", "dist-packages"))] == []


def test_the_first_python_that_fits_is_taken(environment: Path, tmp_path: Path) -> None:
    fake_python(tmp_path / "first", "python3", "cpython-27-vax")
    (tmp_path / "second").mkdir()
    (tmp_path / "second" / "python").symlink_to(sys.executable)
    path = os.pathsep.join(str(tmp_path / name) for name in ("first", "second")) + ":/usr/bin:/bin"
    done = run(environment, "-c", "print('ran')", PATH=path)
    assert done.stdout == "ran\n", done.stderr


def test_no_python_that_fits_is_told_in_a_line(environment: Path, tmp_path: Path) -> None:
    other = fake_python(tmp_path / "bin", "python3", "cpython-27-vax")
    done = run(environment, "-m", "archiver.spark.daemon", ARCHIVER_PYTHON=str(other))
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("archiver: ")
    assert f"fits ({ABI}), {other} is cpython-27-vax: " in line
    done = run(environment, "-c", "", ARCHIVER_PYTHON="/nowhere/python")
    assert "/nowhere/python is not there: " in done.stderr


def test_an_environment_that_does_not_load_is_told_in_a_line(environment: Path) -> None:
    """Here it lacks all that was not packed; with an old C library it is the same."""
    done = run(environment, "-m", "archiver.spark.daemon", ARCHIVER_PYTHON=sys.executable)
    (line,) = done.stderr.splitlines()
    assert line.startswith("archiver: ")
    assert "cannot load what tasks need: No module named" in line


def test_what_spark_submit_runs_tells_who_must_run_it(environment: Path) -> None:
    """By a Python without packages, from another folder than that of the package."""
    copied = environment / "submit.py"
    copied.write_bytes((environment / "lib" / "archiver" / "submit.py").read_bytes())
    done = subprocess.run(
        [sys.executable, "-IS", str(copied), "ls"], capture_output=True, text=True, timeout=20, check=False
    )
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"archiver: {sys.executable} has no archiver: run the driver by")
