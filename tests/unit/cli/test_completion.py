"""A shell that has read the script of `archiver completion` completes commands, options, choices and files."""

import shutil
import subprocess
from pathlib import Path

import pytest

from archiver.cli.main import main

ANSWER = "_shtab_archiver; printf '%s\\n' \"${COMPREPLY[@]}\""


@pytest.fixture
def script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert main(["completion", "bash"]) == 0
    path = tmp_path / "archiver.bash"
    path.write_text(capsys.readouterr().out, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (["ret"], {"retention"}),
        (["groups", "ro"], {"rollback"}),
        (["verify", "--lev"], {"--level"}),
        (["verify", "--level", ""], {"listing", "counts", "records"}),
        (["restore", "--target", "tar"], {"target.yaml"}),
        (["import", "kafka-log", "log"], {"logs"}),
        (["inspect", "tar"], {"target.yaml"}),
    ],
)
def test_bash_offers(typed: list[str], offered: set[str], script: Path, tmp_path: Path) -> None:
    (tmp_path / "target.yaml").touch()
    (tmp_path / "logs").mkdir()
    words = " ".join(f"'{word}'" for word in ["archiver", *typed])
    command = f"source {script}; COMP_WORDS=({words}); COMP_CWORD={len(typed)}; {ANSWER}"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == offered, done.stderr


def test_the_script_of_zsh_names_each_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["completion", "zsh"]) == 0
    script = tmp_path / "_archiver"
    script.write_text(capsys.readouterr().out, encoding="utf-8")
    assert script.read_text(encoding="utf-8").startswith("#compdef archiver\n")
    if zsh := shutil.which("zsh"):
        subprocess.run([zsh, "-n", str(script)], check=True)
