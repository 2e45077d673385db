"""Compiled kernels are found again: in a copy of the package elsewhere, and where nobody may write."""

import os
import pickle
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from archiver.codec.kernels import jit
from archiver.codec.warm import compile_kernels
from archiver.process.machine.caches import CachePlace
from tests.support.bad_input import MACHINE
from tests.support.brokers import REPOSITORY
from tests.support.strangers import NOBODY

_KERNELS = "archiver.codec.kernels.rows"  # of the modules with kernels the quickest to compile
_COUNT = """\
import logging
logging.basicConfig(level="INFO", format="%(message)s")
from numba.core import caching
import importlib
compiled = []
save = caching.Cache.save_overload
caching.Cache.save_overload = lambda self, *rest: compiled.append(self) or save(self, *rest)
importlib.import_module("{kernels}")
print("compiled", len(compiled))
"""
_NOBODY_WRITES = """\
from numba.core import caching
def refuse(*_):
    raise PermissionError(13, "Permission denied")
caching.IndexDataCacheFile._open_for_write = refuse
"""


def run(package: Path, program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program.format(kernels=_KERNELS)],
        capture_output=True,
        text=True,
        cwd=package,
        env={"PATH": os.environ["PATH"], "HOME": str(package), "PYTHONPATH": str(package)},
        timeout=100,
        check=False,
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The package elsewhere, with all times new, and the kernels that this one has."""
    compile_kernels()
    kept = jit.kernel_cache()
    assert kept is not None
    skipped = shutil.ignore_patterns("__pycache__")
    shutil.copytree(REPOSITORY / "archiver", tmp_path / "archiver", ignore=skipped, copy_function=shutil.copyfile)
    there = tmp_path / "archiver" / "codec" / "kernels" / "__pycache__" / kept.name
    shutil.copytree(kept, there, copy_function=shutil.copyfile)
    return tmp_path


def test_a_copy_of_the_package_compiles_nothing(copy: Path) -> None:
    done = run(copy, _COUNT)
    assert done.stdout == "compiled 0\n", done.stderr
    assert "compiling" not in done.stderr


def test_changed_sources_are_compiled_anew(copy: Path) -> None:
    with (copy / "archiver" / "codec" / "kernels" / "rows.py").open("a") as changed:
        changed.write("# changed\n")
    done = run(copy, _COUNT)
    assert done.stdout.startswith("compiled "), done.stderr
    assert done.stdout != "compiled 0\n"
    assert done.stderr.count("compiling kernels, up to 20 s, once for each command") == 1


def test_of_three_processes_that_start_together_one_compiles_each_kernel(copy: Path) -> None:
    with (copy / "archiver" / "codec" / "kernels" / "rows.py").open("a") as changed:
        changed.write("# changed\n")
    folder = copy / "archiver" / "codec" / "kernels" / "__pycache__"
    before = [one.name for one in folder.iterdir()]
    with ThreadPoolExecutor(3) as pool:
        done = list(pool.map(lambda _: run(copy, _COUNT), range(3)))
    counts = [int(one.stdout.removeprefix("compiled ")) for one in done]
    (made,) = (one for one in folder.iterdir() if one.is_dir() and one.name not in before)
    assert sum(counts) == len(list(made.glob("*.nbc"))), (counts, [one.stderr for one in done])


def test_kernels_that_somebody_else_made_need_not_be_writable(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An image made them as root, and a container runs as another user."""
    done = run(copy, _NOBODY_WRITES + _COUNT)
    assert done.stdout == "compiled 0\n", done.stderr
    monkeypatch.setattr(CachePlace, "make", lambda *_: False)
    place = jit.cache_place()
    assert place is not None
    assert place.path == jit.kernel_cache()


def test_kernels_for_another_processor_are_compiled_where_they_cannot_be_kept(copy: Path) -> None:
    """As if for another one: the index knows none of this machine's."""
    for path in copy.glob("archiver/codec/kernels/__pycache__/kernels-*/rows*.nbi"):
        path.write_bytes(b"\x80\x04\x8c\x010\x94.")  # of another version of numba
    done = run(copy, _NOBODY_WRITES + _COUNT)
    assert done.returncode == 0, done.stderr
    assert "compiled kernels cannot be kept in" in done.stderr
    assert "Permission denied" in done.stderr


class _Stolen:
    """What numba unpickles of an index before it looks at anything else."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return os.mkdir, (str(self.marker),)


def test_kernels_that_somebody_else_could_have_changed_are_not_loaded(copy: Path) -> None:
    """Theirs are pickles, and machine code."""
    answer = MACHINE["compiled kernels that somebody else could have changed"]
    folder = copy / "archiver" / "codec" / "kernels" / "__pycache__"
    for index in folder.glob("kernels-*/rows*.nbi"):
        index.write_bytes(pickle.dumps(_Stolen(copy / "stolen")))
        if os.geteuid() == 0:
            os.chown(index, NOBODY, NOBODY)
        else:
            index.chmod(0o666)
    done = run(copy, _COUNT)
    assert not (copy / "stolen").exists()
    assert done.returncode == answer.exit_code, done.stderr
    assert done.stdout != "compiled 0\n"
    (line,) = (line for line in done.stderr.splitlines() if answer.says in line)
    assert "rows" in line
    assert "let no other user write there" in line
    kept = list((copy / ".cache").rglob("*"))  # the user's
    assert {oct(one.stat().st_mode & 0o777) for one in kept if one.is_dir()} == {"0o700"}
    assert {oct(one.stat().st_mode & 0o777) for one in kept if one.is_file()} == {"0o600"}
    assert run(copy, _COUNT).stdout == "compiled 0\n"


_ALL_WORK = """\
from numba.core import dispatcher
compiled = []
compile_one = dispatcher._FunctionCompiler._compile_core
def compile_and_tell(self, *rest):
    compiled.append(self.py_func.__name__)
    return compile_one(self, *rest)
dispatcher._FunctionCompiler._compile_core = compile_and_tell

from archiver.codec.arrow_scan import Scanner
from archiver.codec.avro import BlockEncoder, decode_blocks, decode_header, encode_header
from archiver.codec.batch import decode_batches, first_timestamp_ms
from archiver.codec.batch_encoder import BatchEncoder
from archiver.codec.compression import BatchCodec, BlockCodec
from archiver.codec.kernels.murmur2 import Partitioner
from archiver.archive.restores.offset_map import OffsetMapWriter
from archiver.codec.selection import ALL_RECORDS
from archiver.codec.tally import Tally
from tests.support.frames import frame_of
from tests.support.records import Rec

frame = frame_of([Rec(number, number, 0, b"k", b"v", ((b"h", b"x"),)) for number in range(0, 9, 2)])
batches = BatchEncoder(codec=BatchCodec.LZ4, batch_bytes=1000, most_bytes=1000, producer_id=1, producer_epoch=0, sequence=0)
batches.append(frame, 0)
batch = bytes(batches.flush().content)
Tally().add(decode_batches(batch, 0).frame)
first_timestamp_ms(memoryview(batch))
blocks = BlockEncoder(topic="t", partition=0, codec=BlockCodec.ZSTANDARD, level=1, sync=bytes(16))
blocks.append(frame, 0, len(frame))
content = memoryview(encode_header(BlockCodec.ZSTANDARD, bytes(16), {}) + b"".join(blocks.flush()))
header = decode_header(content, "key")
(again,) = decode_blocks(content, header, topic="t", partition=0, key="key")
list(Partitioner(3, 0).deal(again))
list(Scanner(topic="t", partition=0, columns=["key", "headers"]).scan(content, header, "key", ALL_RECORDS))
offsets = OffsetMapWriter(0)
offsets.add(again)
offsets._flush()
print(compiled)
"""


def test_nothing_is_compiled_but_kernels_that_are_kept() -> None:
    """What is for kernels alone and is called from elsewhere is compiled in each of Spark's workers: 0.15 s."""
    compile_kernels()
    done = subprocess.run(
        [sys.executable, "-c", _ALL_WORK], cwd=REPOSITORY, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.stdout == "[]\n", done.stdout + done.stderr
