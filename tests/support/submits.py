"""Runs jobs as a cluster does: by spark-submit, with executors in JVMs of their own and a Python without our packages."""

import json
import os
import secrets
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyspark

from archiver.process.running.children import start_child
from archiver.spark.session.class_cache import options_of_spark
from tests.support.brokers import REPOSITORY
from tests.support.processes import end_of
from tests.support.round_trip import ArchiveSite

_PYSPARK = Path(pyspark.__file__).parent
CLUSTER = "local-cluster[2,1,1024]"
_SUBMIT_S = 600.0  # 25 s where nothing else runs
_PATH = "/usr/local/bin:/usr/bin:/bin"
# As this program starts a JVM for itself: a submission is too short for what the second compiler does.
_JAVA_OPTIONS = " ".join(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *options_of_spark()])


def bare_python(folder: Path) -> Path:
    """An interpreter of our kind without any package: another one of this machine if there is one, else a bare venv."""
    abi = sysconfig.get_config_var("SOABI")
    version = sysconfig.get_python_version()
    for other in (Path(f"/usr/bin/python{version}"), Path(f"/usr/local/bin/python{version}")):
        if other.exists() and Path(sys.base_prefix) not in other.resolve().parents:
            told = _ask(other, "import sysconfig; print(sysconfig.get_config_var('SOABI'))").strip()
            if told == abi and not _ask(other, "import numpy"):
                return other
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=60)
    return folder / "bin" / "python"


def _ask(python: Path, program: str) -> str:
    done = subprocess.run(
        [python, "-c", program], capture_output=True, text=True, check=False, cwd="/", env={}, timeout=20
    )
    return done.stdout if done.returncode == 0 else ""


@dataclass(frozen=True, slots=True)
class Submits:
    """Submits our command line with one packed environment, over an archive."""

    site: ArchiveSite
    pack: Path
    python: Path  # the executors'

    @property
    def spark_home(self) -> Path:
        """PySpark's, but for the folder that Spark's workers work in."""
        home = self.site.folder / "spark"
        home.mkdir(exist_ok=True)
        for name in ("bin", "jars", "python"):
            if not (home / name).exists():
                (home / name).symlink_to(_PYSPARK / name)
        return home

    def run(
        self, *arguments: str, confs: Mapping[str, str | None] | None = None, entry: Path, **environment: str | None
    ) -> subprocess.CompletedProcess[str]:
        return end_of(self.start(*arguments, confs=confs, entry=entry, environment=environment), _SUBMIT_S)

    def start(
        self,
        *arguments: str,
        confs: Mapping[str, str | None] | None = None,
        entry: Path,
        environment: Mapping[str, str | None],
        stderr: int = subprocess.PIPE,
    ) -> subprocess.Popen[str]:
        """In the folder that has archive.yaml and target.yaml. The executors get nothing of this process's environment."""
        settings: dict[str, str | None] = {
            "spark.master": CLUSTER,
            "spark.archives": f"{self.pack}#env",
            "spark.authenticate": "true",
            "spark.authenticate.secret": secrets.token_hex(16),
            "spark.network.crypto.enabled": "true",
            "spark.ui.enabled": "false",
            "spark.driver.extraJavaOptions": _JAVA_OPTIONS,
            "spark.executor.extraJavaOptions": _JAVA_OPTIONS,
            "spark.pyspark.python": "./env/bin/python",
            "spark.executorEnv.ARCHIVER_PYTHON": str(self.python),
            "spark.executorEnv.AWS_ACCESS_KEY_ID": self.site.bucket.s3.access_key,
            "spark.executorEnv.AWS_SECRET_ACCESS_KEY": self.site.bucket.s3.secret_key,
            "spark.executorEnv.PYTHONPATH": "/nowhere",
            **(confs or {}),
        }
        properties = self.site.folder / "spark.properties"
        properties.write_text("".join(f"{key} {text}\n" for key, text in settings.items() if text is not None))
        properties.chmod(0o600)
        command = [str(self.spark_home / "bin" / "spark-submit"), "--properties-file", str(properties)]
        return start_child(
            [*command, str(entry), *arguments],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            cwd=self.site.folder,
            env={name: text for name, text in {**self._environment(), **environment}.items() if text is not None},
        )

    def _environment(self) -> dict[str, str | None]:
        s3 = self.site.bucket.s3
        return {
            **{name: os.environ[name] for name in ("JAVA_HOME",) if name in os.environ},
            "PATH": _PATH,
            "HOME": str(self.site.folder),
            "SPARK_HOME": str(self.spark_home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "AWS_ACCESS_KEY_ID": s3.access_key,
            "AWS_SECRET_ACCESS_KEY": s3.secret_key,
        }

    def executors(self) -> int:
        """How many have had a task so far: with its first one an executor unpacks the environment, where it works."""
        return len(list(self.spark_home.glob("work/app-*/*/env/bin/python")))

    def unpack(self) -> Path:
        """As `env`, where the driver runs."""
        folder = self.site.folder / "env"
        with tarfile.open(self.pack) as tar:
            tar.extractall(folder, filter="tar")
        return folder

    def run_by_pack(
        self, *arguments: str, confs: Mapping[str, str | None] | None = None, entry: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """With a driver that has the unpacked environment, and a Python with nothing of ours."""
        packed = self.site.folder / "env" / "lib" / "archiver" / "submit.py"
        return self.run(*arguments, confs=confs, entry=entry or packed, ARCHIVER_PYTHON=str(self.python))

    def run_by_project(
        self, *arguments: str, confs: Mapping[str, str | None] | None = None, **environment: str | None
    ) -> subprocess.CompletedProcess[str]:
        """With the project's Python as the driver's."""
        return end_of(self.start_by_project(*arguments, confs=confs, environment=environment), _SUBMIT_S)

    def start_by_project(
        self,
        *arguments: str,
        confs: Mapping[str, str | None] | None = None,
        environment: Mapping[str, str | None] = MappingProxyType({}),
        stderr: int = subprocess.PIPE,
    ) -> subprocess.Popen[str]:
        return self.start(
            *arguments,
            confs={"spark.pyspark.driver.python": sys.executable, **(confs or {})},
            entry=REPOSITORY / "archiver" / "submit.py",
            environment={"PYTHONPATH": str(REPOSITORY), **environment},
            stderr=stderr,
        )


def by_project(site: ArchiveSite) -> tuple[Submits, dict[str, str | None]]:
    """Executors with the project's own Python, which need no environment to be unpacked: they are there sooner."""
    confs: dict[str, str | None] = {"spark.archives": None, "spark.pyspark.python": sys.executable}
    confs["spark.executorEnv.PYTHONPATH"] = str(REPOSITORY)
    return Submits(site, site.folder / "none", Path(sys.executable)), confs


def result_of(done: subprocess.CompletedProcess[str]) -> Any:  # noqa: ANN401 - JSON
    """The one JSON value that a command prints. spark-submit lets the driver's messages out beside its results."""
    assert done.returncode == 0, f"{done.returncode}: {done.stdout}{done.stderr}"
    return json.loads(done.stdout[done.stdout.index("{") :])


def complaints(done: subprocess.CompletedProcess[str]) -> Sequence[str]:
    return [line for line in done.stdout.splitlines() if line.startswith("archiver: ")]
