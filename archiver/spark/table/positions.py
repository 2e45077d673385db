"""The table of consumer group positions, as Arrow batches.

One task reads it: only all partitions of `__consumer_offsets` together show which position is known, and which topic has ended.
"""

import logging
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from archiver.archive.format.handle import patient_archive_of
from archiver.codec.selection import LAST_LONG
from archiver.errors import NotWholeError
from archiver.spark.table.options import OnDamage, PositionOptions
from archiver.spark.table.scan import HOW_TO_GO_ON

if TYPE_CHECKING:
    import pyarrow as pa

    from archiver.groups.positions.shown import ShownGroups, ShownPosition

log = logging.getLogger(__name__)

_ROWS_A_BATCH: Final = 1 << 16
_LAST_MOMENT_MS: Final = LAST_LONG // 1000  # of a timestamp of Spark


def read_positions(
    options: PositionOptions, schema: "pa.Schema", given_up: Collection[str]
) -> Iterator["pa.RecordBatch"]:
    """Read the positions as of a time. A missing part ends the read, or is left out with a warning.

    `schema`: of the wanted columns. `given_up`: missing parts that were reported before.
    """
    found, problems = _read(options)
    new = [problem for problem in problems if problem not in given_up]
    if new and options.on_damage is OnDamage.FAIL:
        raise NotWholeError("; ".join(new) + HOW_TO_GO_ON)
    for problem in new:
        log.warning("skipped: %s", problem)
    positions = found.positions
    for start in range(0, len(positions), _ROWS_A_BATCH):
        yield _batch(positions[start : start + _ROWS_A_BATCH], schema)


def survey_positions(options: PositionOptions) -> tuple[str, ...]:
    """Return the missing parts of the sources of positions."""
    return tuple(_read(options)[1])


def _read(options: PositionOptions) -> tuple["ShownGroups", list[str]]:
    from archiver.groups.positions.shown import PositionFilter, show_groups  # noqa: PLC0415 - kernels, which planning does not need

    every, problems = re.compile(".*", re.DOTALL), list[str]()
    wanted = PositionFilter(as_of_ms=options.as_of_ms, groups=every, topics=every)
    found = show_groups(patient_archive_of(options.storage), wanted, options.storage.index, problems.append)
    return found, problems


def _batch(positions: Sequence["ShownPosition"], schema: "pa.Schema") -> "pa.RecordBatch":
    import pyarrow as pa  # noqa: PLC0415 - as above

    return pa.record_batch([pa.array(map(_VALUES[one.name], positions), one.type) for one in schema], schema)


ALWAYS_THERE: Final = frozenset({"group", "topic", "partition", "state", "source"})


def _known(number: int) -> int | None:
    return None if number < 0 else number


def _where_it_stood(one: "ShownPosition", number: int) -> int | None:
    return _known(number) if one.position.has_stood else None


def _text(name: str) -> str:
    """Spell bytes that are not UTF-8: a name has them as surrogates, which Arrow does not take."""
    return name.encode(errors="surrogateescape").decode(errors="backslashreplace")


def _moment_us(at_ms: int) -> int | None:
    return at_ms * 1000 if 0 <= at_ms <= _LAST_MOMENT_MS else None


_VALUES: Final[Mapping[str, Callable[["ShownPosition"], Any]]] = {
    "group": lambda one: _text(one.position.group),
    "topic": lambda one: _text(one.position.topic),
    "life": lambda one: _known(one.position.life),
    "partition": lambda one: one.position.partition,
    "state": lambda one: str(one.position.state),
    "offset": lambda one: _where_it_stood(one, one.position.offset),
    "leaderEpoch": lambda one: _where_it_stood(one, one.position.leader_epoch),
    "metadata": lambda one: _text(one.position.metadata) if one.position.has_stood else None,
    "committed": lambda one: _moment_us(one.position.commit_ms) if one.position.has_stood else None,
    "removed": lambda one: _moment_us(one.position.removed_ms),
    "lag": lambda one: one.lag,
    "source": lambda one: str(one.position.source),
}
