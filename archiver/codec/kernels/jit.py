"""Compiles kernels with numba: the decorators of all kernels, and the cache of compiled code."""

import hashlib
import logging
import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import caching, cgutils
from numba.extending import intrinsic

from archiver.process.machine.caches import CachePlace, cache_places
from archiver.process.machine.tampering import REMEDY
from archiver.process.output.logs import progress_log

log = logging.getLogger(__name__)

BYTES = types.Array(types.uint8, 1, "C")
READ_ONLY_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
LONGS = types.Array(types.int64, 1, "C")
TABLE = types.Array(types.int64, 2, "C")
LONG = types.int64

_SETTINGS: Any = numba.config  # its attributes are set at run time
# numba reads settings from a file of this name in the current folder, perhaps another user's: only the environment counts.
_SETTINGS._config_fname = os.devnull  # noqa: SLF001 - there is no other door
_SETTINGS.reload_config()
_raw_memcpy: Callable[..., Any] = cgutils.raw_memcpy
_HERE = Path(__file__).parent


def cache_place() -> CachePlace | None:
    """Return the first usable place for compiled kernels: beside the code, or the user's cache; None: no place.

    A place with kernels need not be writable: an image made them as another user. One whose kernels another user could
    have changed is reported, and not used. Its name depends on all kernel sources: numba itself checks one file only, and
    would keep a kernel whose callee changed.
    """
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(_HERE.rglob("*.py")))).hexdigest()[:16]
    name = f"kernels-{numba.__version__}-{digest}" + ("-checked" if _SETTINGS.BOUNDSCHECK else "")
    for place in cache_places(_HERE, name):
        kept = compiled_kernels(place.path)
        if kept and (exposed := place.exposure(kept)):
            log.warning("compiled kernels in %s are not used: %s; %s", place.path, exposed, REMEDY)
        elif kept or place.make(place.path):
            return place
    return None


def compiled_kernels(directory: Path) -> list[Path]:
    """Return the files that numba has written there."""
    return sorted(path for path in directory.glob("*.nb[ci]") if path.is_file())


_CACHE = cache_place()
_IN_VAIN = "they are compiled again at every start (about 20 s)"
if _CACHE is None:
    log.warning(
        "no writable place for compiled kernels that is ours alone: %s; give this user a home directory that it may write to"
        " ($HOME), or run any command once as the owner of %s, which keeps them there for all users",
        _IN_VAIN,
        _HERE,
    )
_is_told = _CACHE is None  # whether the user knows that compiling takes time


class _KernelLocator(caching._CacheLocator):  # noqa: SLF001 - numba's own door for this
    """Gives numba the folder of our kernels, and a stamp of their sources.

    By default numba uses the path of the package and the times of its files: in a copy that was packed here and unpacked
    elsewhere (archiver.spark.session.packing) it would compile again. The directory's name covers all sources. numba itself detects
    kernels of another processor.
    """

    def __init__(self, directory: Path, line: int) -> None:
        self._directory = directory
        self._line = line

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> "_KernelLocator | None":
        if _CACHE is None or _HERE not in Path(py_file).parents:
            return None
        return cls(_CACHE.path, py_func.__code__.co_firstlineno)

    def get_cache_path(self) -> str:
        return str(self._directory)

    def get_source_stamp(self) -> str:
        return self._directory.name

    def get_disambiguator(self) -> str:
        return str(self._line)


caching.CacheImpl._locator_classes.insert(0, _KernelLocator)  # noqa: SLF001 - as above


def kernel(signature: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:  # noqa: ANN401 - numba has no types
    """Compile a function that Python calls: no GIL, explicit signature, kept on disk."""

    def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
        global _CACHE, _is_told  # noqa: PLW0603 - for the kernels that come after this one
        if _CACHE is None:
            return _compile(function, is_kept=False)
        is_kept = _is_kept(_CACHE.path, function)
        if not _is_told and not is_kept:
            _is_told = True
            progress_log.info("compiling kernels, up to 20 s, once for each command; they are kept in %s", _CACHE.path)
        try:
            # Of processes that start together the first one compiles a kernel, and the others wait for it.
            with _CACHE.making_files(), nullcontext() if is_kept else _CACHE.alone():
                return _compile(function, is_kept=True)
        except OSError as error:
            log.warning("compiled kernels cannot be kept in %s (%s): %s", _CACHE.path, error.strerror, _IN_VAIN)
            _CACHE = None
            return _compile(function, is_kept=False)

    def _compile(function: Callable[..., Any], *, is_kept: bool) -> Callable[..., Any]:
        made: Callable[..., Any] = numba.njit(signature, nogil=True, cache=is_kept)(function)
        return made

    return compiled


def _is_kept(directory: Path, function: Callable[..., Any]) -> bool:
    """Return whether numba has cached this kernel; only numba detects a kernel of another processor."""
    module = function.__module__.rpartition(".")[2]  # numba leaves the folder out: no two modules may have one name
    return any(directory.glob(f"{module}.{function.__qualname__}-*.nbi"))


def kernel_cache() -> Path | None:
    """Return the folder of this process's compiled kernels."""
    return None if _CACHE is None else _CACHE.path


def inner(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function that only kernels call."""
    compiled: Callable[..., Any] = numba.njit(function, nogil=True, cache=False, inline="never")
    return compiled


def _move(target: Any, position: int, source: Any, start: int, length: int) -> None:  # noqa: ANN401
    """Copy bytes between two arrays, when kernels run uncompiled or bounds-checked: slices alone would be clipped."""
    if length == 0:
        return
    if length < 0 or position < 0 or start < 0 or position + length > len(target) or start + length > len(source):
        raise IndexError("a copy leaves its buffer")
    target[position : position + length] = source[start : start + length]


@intrinsic
def _compiled_move(_context: Any, target: Any, position: Any, source: Any, start: Any, length: Any) -> Any:  # noqa: ANN401
    # A loop over bytes costs twice as much: LLVM cannot know that the arrays do not overlap (0.28 against 0.15 us a record).
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        target_type, position_type, source_type, start_type, length_type = signature.args
        to, at, origin, begin, size = arguments
        to_array = context.make_array(target_type)(context, builder, to)
        from_array = context.make_array(source_type)(context, builder, origin)
        at = context.cast(builder, at, position_type, types.intp)
        begin = context.cast(builder, begin, start_type, types.intp)
        size = context.cast(builder, size, length_type, types.intp)
        _raw_memcpy(builder, builder.gep(to_array.data, [at]), builder.gep(from_array.data, [begin]), size, 1)
        return context.get_dummy_value()

    return types.none(target, position, source, start, length), generate


def _choose_move() -> Callable[..., None]:
    if _SETTINGS.DISABLE_JIT or _SETTINGS.BOUNDSCHECK:
        return inner(_move)
    return cast("Callable[..., None]", _compiled_move)


move_memory = _choose_move()


def _word(source: Any, position: int) -> int:  # noqa: ANN401
    """Read eight bytes, little-endian: spelled out for kernels that run uncompiled or bounds-checked."""
    value = np.uint64(0)
    for index in range(8):
        value |= np.uint64(source[position + index]) << np.uint64(8 * index)
    return value  # type: ignore[return-value]  # a kernel knows no other integers


@intrinsic
def _compiled_word(_context: Any, source: Any, position: Any) -> Any:  # noqa: ANN401
    # Byte by byte LLVM does not see one load behind numba's checks for negative indices: 2.5 times the time of a hash.
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        source_type, position_type = signature.args
        origin, begin = arguments
        array = context.make_array(source_type)(context, builder, origin)
        begin = context.cast(builder, begin, position_type, types.intp)
        place = builder.bitcast(builder.gep(array.data, [begin]), ir.IntType(64).as_pointer())
        return builder.load(place, align=1)

    return types.uint64(source, position), generate


def _choose_word() -> Callable[[Any, int], int]:
    if _SETTINGS.DISABLE_JIT or _SETTINGS.BOUNDSCHECK or sys.byteorder != "little":
        return inner(_word)
    return cast("Callable[[Any, int], int]", _compiled_word)


read_word = _choose_word()
