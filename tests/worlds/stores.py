"""How the store of each world is started. All of them are stopped when the world ends."""

import importlib.metadata
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from archiver.demo.sandbox import JAVA_OPTIONS
from archiver.process.machine.java import check_java
from tests.support.brokers import CACHE, REPOSITORY, GivenS3
from tests.support.faulty_s3 import FaultyS3, Quirk
from tests.support.kafka_broker import free_ports
from tests.support.minio import minio_or_skip
from tests.support.parts import S3MOCK, S3PROXY, fetch_part
from tests.support.servers import serving
from tests.worlds.world import StartStore, Store

_ACCESS_KEY, _SECRET_KEY = "archiver-test", "archiver-test-secret"


@contextmanager
def minio(_folder: Path) -> Iterator[Store]:
    server = minio_or_skip()
    try:
        yield Store(name=f"MinIO {built_version('minio')}", s3=server)
    finally:
        server.stop()


@contextmanager
def versitygw(folder: Path) -> Iterator[Store]:
    """Objects are files, metadata their extended attributes."""
    subprocess.run([REPOSITORY / "infra" / "versitygw.sh"], check=True, stdout=subprocess.DEVNULL)
    (drive := folder / "drive").mkdir(parents=True)
    (port,) = free_ports(1)
    command = [str(CACHE / "bin" / "versitygw"), "--quiet", "--port", f"127.0.0.1:{port}"]
    keys = {"ROOT_ACCESS_KEY": _ACCESS_KEY, "ROOT_SECRET_KEY": _SECRET_KEY}
    with serving([*command, "posix", str(drive)], port, folder / "log", keys):
        yield store_at(port, f"versitygw {built_version('versitygw')}")


@contextmanager
def s3proxy(folder: Path) -> Iterator[Store]:
    """Its backend of files."""
    (drive := folder / "drive").mkdir(parents=True)
    (port,) = free_ports(1)
    settings = {
        "s3proxy.endpoint": f"http://127.0.0.1:{port}",
        "s3proxy.authorization": "aws-v2-or-v4",
        "s3proxy.identity": _ACCESS_KEY,
        "s3proxy.credential": _SECRET_KEY,
        "jclouds.provider": "filesystem-nio2",
        "jclouds.identity": "any",
        "jclouds.credential": "any",
        "jclouds.filesystem.basedir": str(drive),
    }
    path = folder / "s3proxy.properties"
    path.write_text("".join(f"{name}={text}\n" for name, text in settings.items()))
    java = java_of(fetch_part(S3PROXY), "org.gaul.s3proxy.Main", folder)
    with serving([*java, "--properties", str(path)], port, folder / "log"):
        yield store_at(port, f"s3proxy {S3PROXY.modules[0].version}")


@contextmanager
def s3mock(folder: Path) -> Iterator[Store]:
    """Adobe's."""
    folder.mkdir(parents=True)
    (port,) = free_ports(1)
    jars = fetch_part(S3MOCK)
    java = java_of(jars, "com.adobe.testing.s3mock.S3MockApplication", folder)
    settings = [f"--server.port={free_ports(1)[0]}", f"--http.port={port}"]
    with serving([*java, *settings], port, folder / "log"):
        yield store_at(port, f"S3Mock {S3MOCK.modules[0].version}")


@contextmanager
def moto(folder: Path) -> Iterator[Store]:
    """In memory. It checks no signatures."""
    folder.mkdir(parents=True)
    (port,) = free_ports(1)
    command = [str(Path(sys.executable).with_name("moto_server")), "-H", "127.0.0.1", "-p", str(port)]
    with serving(command, port, folder / "log"):
        yield store_at(port, f"moto {importlib.metadata.version('moto')}")


def quirky(start: StartStore, *quirks: Quirk) -> StartStore:
    """A store behind a proxy that makes it do what no real one does that can be had here."""

    @contextmanager
    def started(folder: Path) -> Iterator[Store]:
        with start(folder) as store, FaultyS3(store.s3.endpoint, *quirks) as proxy:
            yield replace(store, s3=GivenS3(proxy.endpoint, store.s3.access_key, store.s3.secret_key))

    return started


def store_at(port: int, name: str) -> Store:
    return Store(name=name, s3=GivenS3(f"http://127.0.0.1:{port}", _ACCESS_KEY, _SECRET_KEY))


def java_of(jars: Path, main: str, folder: Path) -> Sequence[str]:
    """What it writes for a while goes to the folder, too."""
    options = (*JAVA_OPTIONS, f"-Djava.io.tmpdir={folder}")
    return [check_java(), *options, "-cp", f"{jars}/*", main]


def built_version(program: str) -> str:
    """Of a program that infra/ builds. A Go module's version without a tag holds its date."""
    text = (REPOSITORY / "infra" / f"{program}.sh").read_text(encoding="utf-8")
    (version,) = re.findall(r" v(\S+) \d+ ", text)
    dated = re.fullmatch(r"0\.0\.0-(\d{4})(\d{2})(\d{2})\d+-\w+", version)
    return "-".join(dated.groups()) if dated else version
