"""The program runs nothing that happens to lie in the current folder, which may be anybody's."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.brokers import REPOSITORY
from tests.support.forked_commands import COMMAND

MODULE = [sys.executable, "-m", "archiver"]
PROGRAM = [str(COMMAND)]
PROVIDER = """\
storage: {url: "s3://bucket/prefix", endpoint: "http://127.0.0.1:9"}
kafka:
  bootstrap.servers: 127.0.0.1:9
  security.protocol: sasl_plaintext
  sasl.mechanisms: OAUTHBEARER
  token_provider: badge:token
topics: {include: [orders]}
"""
BAIT = "from pathlib import Path\nPath(__file__).with_suffix('.ran').touch()\ndef token(): return 'stolen', 2**41\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Somebody's, with a module for whatever the program may look for, and a configuration that was written elsewhere."""
    (tmp_path / "archive.yaml").write_text(PROVIDER)
    below = tmp_path / "lib"
    below.mkdir()
    for name in ("badge", "fastavro", "numba", "yaml", "pydantic", "confluent_kafka", "argparse", "json"):
        (tmp_path / f"{name}.py").write_text(BAIT)
        (below / f"{name}.py").write_text(BAIT)
    return tmp_path


def run(folder: Path, command: list[str], path: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*command, "backup", "--until-end", "-c", "archive.yaml"],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


@pytest.mark.parametrize(
    ("command", "path"),
    [(MODULE, "{}"), (MODULE, "{}:"), (PROGRAM, ":{}"), (PROGRAM, ".:lib:../{here}/lib:{}")],
    ids=["python -m", "python -m, and an empty entry", "an empty entry", "relative entries"],
)
def test_nothing_is_imported_from_the_current_folder(command: list[str], path: str, folder: Path) -> None:
    done = run(folder, command, path.format(REPOSITORY, here=folder.name))
    assert sorted(ran.name for ran in folder.rglob("*.ran")) == []
    assert done.returncode == 2, done.stderr
    assert "kafka.token_provider: there is no such module; is it installed" in done.stderr


def test_a_folder_that_is_named_in_full_is_one_wherever_the_program_stands(folder: Path) -> None:
    """It is the user's word, and no accident."""
    for bait in folder.glob("*.py"):
        if bait.stem != "badge":
            bait.unlink()
    run(folder, MODULE, f"{REPOSITORY}:{folder}")
    assert (folder / "badge.ran").exists()


CHILD = """\
import sys
from archiver.import_path import leave_out_current_folder
leave_out_current_folder()
import subprocess
subprocess.run([sys.executable, "-c", "import sys; print(*sys.path[1:], sep='\\\\n')"])
"""


def test_what_the_program_starts_does_not_look_there_either(folder: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": f":lib:{REPOSITORY}:.", "PYTHONSAFEPATH": "1"}
    done = subprocess.run(
        [sys.executable, "-c", CHILD], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    places = done.stdout.splitlines()
    assert not any(place.startswith(str(folder)) or not Path(place).is_absolute() for place in places)


SETTINGS = "disable_jit: 1\nboundscheck: 1\n"


def test_numba_takes_no_settings_from_there(folder: Path) -> None:
    for bait in folder.glob("*.py"):
        bait.unlink()
    (folder / ".numba_config.yaml").write_text(SETTINGS)
    tell = "from archiver.codec.kernels import jit; from numba import config; print(config.DISABLE_JIT, config.BOUNDSCHECK, jit.kernel_cache())"
    done = subprocess.run(
        [sys.executable, "-c", tell],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("0 None "), done.stdout
    assert "-checked" not in done.stdout
