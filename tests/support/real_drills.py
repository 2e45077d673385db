"""A drill in a process of its own, so that a test can kill it: as the command does, but for Spark's engine."""

import subprocess
import sys

from archiver.cli.main import main
from archiver.process.running.children import start_child
from tests.support.brokers import REPOSITORY
from tests.support.round_trip import ArchiveSite, environment_of, without_spark


def start_drill(site: ArchiveSite, *arguments: str, failpoint: str = "") -> subprocess.Popen[str]:
    files = "-c", str(site.folder / "archive.yaml"), "--target", str(site.folder / "target.yaml")
    return start_child(
        [sys.executable, "-m", "tests.support.real_drills", *files, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        env={**environment_of(site.bucket), "ARCHIVER_FAILPOINT": failpoint},
    )


if __name__ == "__main__":
    with without_spark():
        sys.exit(main(["drill", *sys.argv[1:]]))
