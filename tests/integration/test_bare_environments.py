"""The package in environments that have nothing else: made by the lines of the Dockerfile, and by pip alone with another Python."""

import hashlib
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from archiver.codec.kernels.jit import kernel_cache
from tests.support.bare_root import BareRoot, bare_root
from tests.support.brokers import CACHE, REPOSITORY
from tests.support.dockerfile import Instruction, stages_of, variables_of

pytestmark = pytest.mark.timeout(600)  # fetching packages, once

DOCKERFILE = REPOSITORY / "infra" / "image" / "Dockerfile"
STAGES = stages_of(DOCKERFILE)
OBJECT = REPOSITORY / "tests" / "golden" / "format-1" / "snappy.data"
VARIABLES = {**variables_of(STAGES["base"]), "PATH": "/opt/archiver/bin"}


def build(root: BareRoot, stage: list[Instruction], variables: Mapping[str, str]) -> None:
    """Do what an engine would do for this stage; the stages lie in one folder, so nothing is copied between them."""
    parent = STAGES.get(stage[0].text.partition(" ")[0], [])
    folder = next((text for name, text in parent if name == "WORKDIR"), "/tmp")
    for name, text in stage:
        if name == "WORKDIR":
            folder = text
        elif name == "COPY" and not text.startswith("--from"):
            *sources, target = text.split()
            for source in sources:
                _copy(REPOSITORY / source, root.folder / folder[1:] / ("" if target == "./" else target))
        elif name == "RUN":
            root.execute(text, folder, variables)


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, target)


def kept_kernels() -> Path:
    """Return the folder for the kernels of this image, which take a third of the time. Whatever makes others gives it another name."""
    makers = (DOCKERFILE, REPOSITORY / "constraints.txt", REPOSITORY / "archiver" / "codec" / "warm.py")
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in makers)).hexdigest()[:16]
    sources = kernel_cache()
    assert sources is not None
    return CACHE / "roots" / "kernels" / digest / sources.name


def kernels_in(root: BareRoot) -> Path:
    (packages,) = root.folder.glob("opt/archiver/lib/python*/site-packages")
    return packages / "archiver" / "codec" / "kernels" / "__pycache__"


@pytest.fixture(scope="module")
def image() -> Iterator[BareRoot]:
    """The image `backup`, but for its base: Debian's own Python 3.11."""
    kept = kept_kernels()
    with bare_root("bookworm", "3.11") as root:
        for name in ("tools", "backup-packages"):
            build(root, STAGES[name], variables_of(STAGES["tools"]))
        if kept.exists():
            shutil.copytree(kept, kernels_in(root) / kept.name)
        for name in ("base", "backup"):
            build(root, STAGES[name], VARIABLES)
        if not kept.exists():
            shutil.copytree(kernels_in(root) / kept.name, kept)
        shutil.copy(OBJECT, root.folder / "opt")
        yield root


def test_the_user_of_the_image_compiles_nothing(image: BareRoot) -> None:
    """Nothing is the user's, and the root file system is read-only. Kernels are for any processor: a pod's may be another one."""
    assert Instruction("USER", "10001:10001") in STAGES["backup"]
    done = image.run_closed("archiver", "inspect", "/opt/snappy.data", variables=VARIABLES)
    assert "facts: ok" in done.stdout
    assert (done.stderr, image.run_closed("archiver", "--version", variables=VARIABLES).stderr) == ("", "")
    (kernels,) = kernels_in(image).glob("kernels-*")
    indexes = [path.read_bytes() for path in kernels.glob("*.nbi")]
    assert indexes
    assert [index for index in indexes if b"generic" not in index] == []


def test_the_image_has_no_tools_that_build(image: BareRoot) -> None:
    (packages,) = image.folder.glob("opt/archiver/lib/python*/site-packages")
    names = {path.name for path in packages.iterdir()}
    assert {"archiver", "numba", "shtab"} <= names
    assert names & {"pip", "hatchling", "setuptools", "editables", "pyspark", "pytest"} == set()


def test_the_spark_image_is_built_by_the_same_lines() -> None:
    """PySpark alone is more: set-up installs it by this line, too."""
    (line,) = (text for name, text in STAGES["spark-packages"] if name == "RUN")
    install, uninstall = line.split(" && ")
    (ours,) = (text for name, text in STAGES["tools"] if name == "RUN" and "kafka-archiver" in text)
    assert install.replace("'kafka-archiver[spark]'", "kafka-archiver") in ours
    assert uninstall in [text for name, text in STAGES["backup-packages"] if name == "RUN"]


def test_the_wheel_works_with_python_314_without_a_home_or_a_place_to_write(image: BareRoot) -> None:
    """As pipx installs it: in an environment of its own, started through a link."""
    with bare_root("forky", "3.14") as root:
        (wheel,) = (image.folder / "tmp" / "wheels").iterdir()
        for file in (wheel, OBJECT):
            shutil.copy(file, root.folder / "opt")
        root.run("python", "-m", "venv", "/opt/archiver")
        root.execute(f"/opt/archiver/bin/pip install --quiet /opt/{wheel.name}", "/tmp", {})
        link = root.folder / "usr" / "local" / "bin" / "archiver"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to("/opt/archiver/bin/archiver")
        assert "backup" in root.run_closed("archiver", "--help").stdout
        assert "storage.url" in root.run_closed("archiver", "config", "reference").stdout
        assert "_shtab_archiver" in root.run_closed("archiver", "completion", "bash").stdout
        done = root.run_closed("archiver", "inspect", "/opt/snappy.data")
        assert "facts: ok" in done.stdout
        assert "compiled kernels" in done.stderr  # that there is no place to keep them
