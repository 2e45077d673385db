"""A mistake in the configuration is told at once: before kernels are imported, which compiles them at the first start, for 20 s."""

import subprocess
import sys
from pathlib import Path

from tests.support.brokers import REPOSITORY

PROGRAM = """
import sys
from archiver.cli.main import main
for line in sys.stdin:
    code = main([*line.split(), "-c", "bad.yaml"])
    print(code, "archiver.codec.kernels" in sys.modules, line.strip())
"""
COMMANDS = """\
backup
backup --until-end
backup --dry-run
topics
ls
cat t
compacted run --instance a
compacted status
groups show
groups fold
groups translate --target bad.yaml --restore x
groups apply --target bad.yaml --restore x
groups rollback --target bad.yaml --restore x
import kafka-log .
export kafka-backup new
inspect x
verify
restore --target bad.yaml
retention
query SELECT
"""


def test_no_command_imports_kernels_before_it_has_read_its_configuration(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("bakup: 1\n")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=COMMANDS,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PYTHONPATH": str(REPOSITORY), "HOME": str(tmp_path)},
        timeout=60,
        check=False,
    )
    assert done.stdout.splitlines() == [f"2 False {line}" for line in COMMANDS.splitlines()], done.stderr
