"""A folder with a release of Debian that has Python and little else, entered by chroot: as empty as a container."""

import hashlib
import os
import shutil
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.brokers import CACHE, REPOSITORY
from tests.support.pins import read_entries

_PATH = {"PATH": "/usr/local/bin"}
_IN_FOLDER = 'cd "$0" && exec "$@"'
_CLOSED = """set -e
mount --make-rprivate /
mount --bind "$0" "$0"
mount --options remount,ro,bind "$0"
mount --types tmpfs tmpfs "$0/tmp"
mount --types proc proc "$0/proc"
exec chroot --userspec=10001:10001 "$0" "$@"
"""
# What lines of a Dockerfile use. numpy needs libstdc++, which images of Debian have: apt needs it, too.
_MORE = ("bash", "coreutils", "sed", "passwd", "base-passwd", "libstdc++6")
_DEBIANS_PIP = "/etc/ssl/certs/ca-certificates.crt"  # it looks for this file, even offline
_OFFLINE = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/wheels"}


@dataclass(frozen=True, slots=True)
class BareRoot:
    """Its wheels are fetched once, with their hashes; what a test does there comes without a network."""

    folder: Path

    def clear(self) -> None:
        """Empty the folders of the program, its source, and temporary files."""
        for name in ("opt", "source", "tmp"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
            (self.folder / name).mkdir()
        (self.folder / "tmp").chmod(0o1777)

    def run(
        self, *command: str, cwd: str = "/tmp", variables: Mapping[str, str] = {}
    ) -> subprocess.CompletedProcess[str]:
        """Run a command there as root, with no variable of this process."""
        return self._run(["chroot", str(self.folder), "/bin/bash", "-c", _IN_FOLDER, cwd, *command], variables)

    def run_closed(self, *command: str, variables: Mapping[str, str] = {}) -> subprocess.CompletedProcess[str]:
        """Run a command as a container with a read-only root and an empty /tmp does: user 10001, who has no HOME."""
        return self._run(["unshare", "--mount", "bash", "-c", _CLOSED, str(self.folder), *command], variables)

    def _run(self, command: list[str], variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        given = _PATH | dict(variables)
        given["PATH"] += ":/usr/sbin:/usr/bin:/bin"  # of this machine's chroot and unshare, too
        done = subprocess.run(command, env=given, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done

    def execute(self, script: str, cwd: str, variables: Mapping[str, str]) -> None:
        """Run a line of a Dockerfile."""
        self.run("/bin/bash", "-o", "pipefail", "-c", script, cwd=cwd, variables=_OFFLINE | dict(variables))

    def fetch_wheels(self, python: str) -> None:
        """Fetch what the program needs, and what builds it: each as constraints.txt lists it."""
        constraints, project = REPOSITORY / "constraints.txt", REPOSITORY / "pyproject.toml"
        digest = hashlib.sha256(constraints.read_bytes() + project.read_bytes()).hexdigest()
        stamp = self.folder / "wheels" / "fetched"
        if stamp.exists() and stamp.read_text() == digest:
            return
        shutil.rmtree(stamp.parent, ignore_errors=True)
        stamp.parent.mkdir()
        told = tomllib.loads(project.read_text(encoding="utf-8"))
        needed = ["pip", *told["project"]["dependencies"], *told["dependency-groups"]["build"]]
        (self.folder / "tmp" / "needed.txt").write_text("\n".join(needed), encoding="utf-8")
        shutil.copy(constraints, self.folder / "tmp")
        variables = self._network()
        self.run(python, "-m", "venv", "/tmp/tools", variables=variables)
        pip = ["/tmp/tools/bin/python", "-m", "pip", "--quiet", "--disable-pip-version-check"]
        # Older ones take no hashes from constraints.
        (listed_pip,) = (one for one in read_entries(constraints.read_text(encoding="utf-8")) if one.name == "pip")
        (self.folder / "tmp" / "pip.txt").write_text(str(listed_pip), encoding="utf-8")
        self.run(*pip, "install", "--require-hashes", "--requirement", "pip.txt", variables=variables)
        listed = ["--require-hashes", "--constraint", "constraints.txt", "--requirement", "needed.txt"]
        self.run(*pip, "download", *listed, "--only-binary", ":all:", "--dest", "/wheels", variables=variables)
        stamp.write_text(digest)

    def _network(self) -> dict[str, str]:
        """As this machine reaches its registries."""
        for file in ("/etc/resolv.conf", "/etc/hosts", _DEBIANS_PIP, os.environ.get("PIP_CERT", "")):
            if Path(file).is_file():
                (self.folder / file[1:]).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, self.folder / file[1:])
        passed = {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
        return passed | {name: os.environ[name] for name in ("PIP_CERT", "PIP_INDEX_URL") if name in os.environ}


@contextmanager
def bare_root(release: str, version: str) -> Iterator[BareRoot]:
    """An empty environment with this Python, and empty again afterwards; skips where none can be made."""
    root = BareRoot(CACHE / "roots" / release)
    packages = [f"python{version}", f"python{version}-venv", *_MORE]
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        pytest.skip("only root can chroot, into what Debian's apt unpacks")
    subprocess.run([REPOSITORY / "infra" / "debian-root.sh", release, root.folder, *packages], check=True)
    root.clear()
    for name in ("passwd", "group"):
        shutil.copy(root.folder / "usr" / "share" / "base-passwd" / f"{name}.master", root.folder / "etc" / name)
    python = root.folder / "usr" / "bin" / "python"
    python.unlink(missing_ok=True)
    python.symlink_to(f"python{version}")
    root.fetch_wheels(f"/usr/bin/python{version}")
    try:
        yield root
    finally:
        root.clear()
