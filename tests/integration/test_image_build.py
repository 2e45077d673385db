"""The image `backup`, built and run by buildah, over a base of Debian's packages. It takes a minute and a half."""

import json
import shutil
import subprocess

import pytest

from tests.support.bare_root import bare_root
from tests.support.brokers import CACHE, REPOSITORY

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

OBJECT = REPOSITORY / "tests" / "golden" / "format-1"
# Of the builder's root, the project, the root that is the base, and what reads an object. Nothing is left but the builder's root.
BUILD = """set -e
mount --make-rprivate /
mount --bind "$0" "$0"
cd "$0"
mkdir -p source base golden sys root var/tmp run
mount --bind "$1" source
mount --bind "$2" base
mount --bind "$3" golden
mount --types proc proc proc
mount --rbind /dev dev
mount --rbind /sys sys
mount --types tmpfs --options size=6g tmpfs var/lib
exec chroot . /bin/bash -ec '
export HOME=/root STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot
c=$(buildah from scratch)
folder=$(buildah mount $c)
cp -a /base/{bin,etc,lib,lib64,sbin,usr} $folder
mkdir -m 1777 $folder/tmp
buildah commit --quiet --rm $c docker.io/library/python:3.11-slim-bookworm
cd /source
buildah bud --format docker --pull-never --volume /base/wheels:/wheels:ro \\
  --env PIP_NO_INDEX=1 --env PIP_FIND_LINKS=/wheels \\
  -f infra/image/Dockerfile --ignorefile infra/image/Dockerfile.dockerignore --target backup -t archiver . >&2
c=$(buildah from --pull-never localhost/archiver)
buildah run --volume /golden:/golden:ro $c -- archiver inspect /golden/snappy.data >/tmp/inspected 2>&1
buildah inspect --type image localhost/archiver
'
"""


def test_buildah_builds_the_image_and_runs_it() -> None:
    builder = CACHE / "roots" / "builder"
    with bare_root("bookworm", "3.11") as base:
        maker = REPOSITORY / "infra" / "debian-root.sh"
        subprocess.run([maker, "bookworm", str(builder), "buildah", "bash", "coreutils"], check=True)
        shell = base.folder / "usr" / "bin" / "sh"
        if not shell.is_symlink():
            shell.symlink_to("bash")
        for name in ("passwd", "group"):
            shutil.copy(base.folder / "etc" / name, builder / "etc")
        folders = [str(one) for one in (builder, REPOSITORY, base.folder, OBJECT)]
        command = ["unshare", "--mount", "bash", "-c", BUILD, *folders]
        done = subprocess.run(
            command, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}, capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr[-3000:]
    inspected = (builder / "tmp" / "inspected").read_text(encoding="utf-8")
    assert inspected.endswith("facts: ok\n")
    assert "compil" not in inspected
    config = json.loads(done.stdout[done.stdout.index("{") :])["Docker"]["config"]
    assert (config["User"], config["Entrypoint"], config["Cmd"]) == ("10001:10001", ["archiver"], ["--help"])
    assert config["Healthcheck"]["Test"][:3] == ["CMD", "python", "-c"]
    assert config["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"
