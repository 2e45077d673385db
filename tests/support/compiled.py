"""Compiles the tests' Java sources, at their first use."""

import hashlib
import shutil
import subprocess
import tempfile
import zipfile
from pathlib import Path

SOURCES = Path(__file__).parent / "java"


def compile_java(name: str, jars: Path, cache: Path) -> Path:
    """The folder with the classes of `java/<name>.java`; its name follows from the source and the jars, so that it is never stale."""
    source = SOURCES / f"{name}.java"
    digest = hashlib.sha256(source.read_bytes() + jars.name.encode()).hexdigest()[:16]
    target = cache / f"java-{name.lower()}-{digest}"
    if target.is_dir():
        return target
    if shutil.which("javac") is None:
        raise FileNotFoundError("javac is not on the PATH: install a JDK, 17 or later")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"java-{name.lower()}-", dir=cache) as staging:
        classes = Path(staging) / "classes"
        command = ["javac", "--release", "17", "-d", str(classes), "-cp", f"{jars}/*", str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"javac failed:\n{done.stderr}")
        try:
            classes.rename(target)
        except OSError:
            if not target.is_dir():  # else another session was first
                raise
    return target


def jars_with(name: str, jars: Path, cache: Path, folder: Path) -> Path:
    """The folder, with all of the jars and one more, that has the classes of `java/<name>.java`."""
    folder.mkdir(parents=True)
    for jar in jars.glob("*.jar"):
        (folder / jar.name).symlink_to(jar)
    with zipfile.ZipFile(folder / f"{name}.jar", "w") as made:
        for path in compile_java(name, jars, cache).glob("*.class"):
            made.write(path, path.name)
    return folder
