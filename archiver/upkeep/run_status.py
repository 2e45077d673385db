"""Answers "is it working?" from the notes of runs alone: last successes, how far behind, what is late and why. Used by `archiver status`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from archiver.archive.format.handle import Archive
from archiver.archive.notes.run_notes import ListedRun, Outcome, RunKind, RunNote, list_runs, read_run
from archiver.config.quantities import spell_time
from archiver.errors import NotWholeError
from archiver.process.running.workers import side_by_side

_MOST_READ: Final = 5
_ALIVE_MS: Final = 3 * 60_000  # three notes of a service
_SCHEDULED_MS: Final = 24 * 3_600_000  # a job that ran twice within less is not taken for one of a schedule
_HOUR_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class KindStatus:
    """The runs of one kind. `last_success_ms` of a service: its newest note."""

    kind: RunKind
    last: ListedRun
    last_success_ms: int | None
    next_ms: int | None = None  # as the last two successes, or the note, let expect
    alive: int = 0  # processes of a service
    durable_through_ms: int | None = None
    partitions: int | None = None
    notes: Sequence[RunNote] = ()
    late: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """All kinds of runs at a time by the store's clock. `damaged`: notes that cannot be read; `missing`: expected kinds without a note."""

    now_ms: int
    kinds: Sequence[KindStatus]
    unfinished: Sequence[str]  # restores
    damaged: Sequence[str] = ()
    missing: Sequence[RunKind] = ()

    def of(self, kind: RunKind) -> KindStatus | None:
        return next((one for one in self.kinds if one.kind is kind), None)

    @property
    def durable_through_ms(self) -> int | None:
        """Return until when a backup has archived everything that Kafka had; None: unknown."""
        found = [one.durable_through_ms for one in map(self.of, (RunKind.BACKUP, RunKind.UNTIL_END)) if one]
        return max((one for one in found if one is not None), default=None)

    @property
    def late(self) -> list[str]:
        """Return what is late, and why, a line each."""
        lines = [one.late for one in self.kinds if one.late]
        if not any(map(self.of, (RunKind.BACKUP, RunKind.UNTIL_END, RunKind.COMPACTED))):
            lines.append("backup: no run has left a note; start `archiver backup` or `archiver backup --until-end`")
        lines += [f"{kind}: no run has left a note, and --max-age {kind}=AGE expects one" for kind in self.missing]
        return [*lines, *self.damaged]


def read_status(archive: Archive, now_ms: int, max_ages_ms: Mapping[str, int]) -> RunStatus:
    """Read the notes of runs: one listing, and at most five reads, or one for each running process if these are more.

    `max_ages_ms`: how old the last success of a kind may be; of "": how far a backup may be behind. `now_ms`: this machine's time.
    """
    listed = list_runs(archive)
    now_ms = max([now_ms, *(one.put_ms for one in listed)])
    notes: dict[ListedRun, RunNote] = {}
    damaged = []

    def read(one: ListedRun) -> RunNote | str:
        try:
            return read_run(archive, one)
        except NotWholeError as error:
            return str(error)

    chosen = _chosen(listed, now_ms)
    for one, found in zip(chosen, side_by_side(_MOST_READ, read, chosen, "run"), strict=True):
        if isinstance(found, str):
            damaged.append(found)
        else:
            notes[one] = found
    by_kind = {kind: [one for one in listed if one.kind is kind] for kind in RunKind}
    kinds = [_status_of(kind, some, notes, now_ms, max_ages_ms) for kind, some in by_kind.items() if some]
    newest = {one.name: one for one in by_kind[RunKind.RESTORE]}
    unfinished = [name for name, one in newest.items() if one.outcome is not Outcome.DONE]
    missing = [kind for kind, some in by_kind.items() if kind in max_ages_ms and not some]
    return RunStatus(now_ms=now_ms, kinds=kinds, unfinished=unfinished, damaged=damaged, missing=missing)


def _alive(listed: Sequence[ListedRun], now_ms: int) -> list[ListedRun]:
    """Return the newest note of each process that is running; without one, that of the process that was heard of last."""
    newest = {one.name: one for one in listed}
    running = [one for one in newest.values() if one.outcome is Outcome.RUNNING and now_ms - one.put_ms <= _ALIVE_MS]
    return running or list(listed[-1:])


def _chosen(listed: Sequence[ListedRun], now_ms: int) -> list[ListedRun]:
    """Return the notes to read: of all running services; then, up to the limit, the newest of each kind of job."""
    services, jobs = [], []
    for kind in (RunKind.BACKUP, RunKind.COMPACTED):
        services += _alive([one for one in listed if one.kind is kind], now_ms)
    for kind in (RunKind.RETENTION, RunKind.UNTIL_END, RunKind.VERIFY, RunKind.DRILL):
        jobs += [one for one in listed if one.kind is kind][-1:]
    return [*services, *jobs[: max(0, _MOST_READ - len(services))]]


def _status_of(
    kind: RunKind,
    listed: Sequence[ListedRun],
    notes: Mapping[ListedRun, RunNote],
    now_ms: int,
    max_ages_ms: Mapping[str, int],
) -> KindStatus:
    read = [notes[one] for one in listed if one in notes]
    if kind.is_service:
        return _service(kind, listed, read, now_ms, max_ages_ms.get(kind, max_ages_ms[""]))
    done = [one.put_ms for one in listed if one.outcome is Outcome.DONE]
    gap_ms = done[-1] - done[-2] if len(done) > 1 else None
    durable = [one.durable_through_ms for one in read if one.durable_through_ms is not None]
    last_ms, limit_ms = (done[-1] if done else None), max_ages_ms.get(kind)
    if limit_ms is None and gap_ms is not None and kind is not RunKind.RESTORE:
        limit_ms = 2 * max(gap_ms, _SCHEDULED_MS)
    late = "" if kind is RunKind.RESTORE else _why_late(kind, listed, read, last_ms, now_ms, limit_ms)
    return KindStatus(
        kind=kind,
        last=listed[-1],
        last_success_ms=last_ms,
        next_ms=None if gap_ms is None or last_ms is None or gap_ms < _HOUR_MS else last_ms + gap_ms,
        durable_through_ms=max(durable, default=None),
        partitions=next((one.partitions for one in read if one.partitions is not None), None),
        notes=read,
        late=late,
    )


def _why_late(
    kind: RunKind,
    listed: Sequence[ListedRun],
    read: Sequence[RunNote],
    last_ms: int | None,
    now_ms: int,
    limit_ms: int | None,
) -> str:
    """Return why a kind of job is late: its last run failed, it never succeeded, or its last success is too old."""
    if listed[-1].outcome is Outcome.FAILED:
        why = "; ".join(read[-1].problems[:3]) if read else ""
        return f"{kind}: the run that ended {_at(listed[-1].put_ms)} failed{f': {why}' if why else ''}"
    if last_ms is None:
        return f"{kind}: no run has succeeded"
    if limit_ms is not None and now_ms - last_ms > limit_ms:
        return (
            f"{kind}: the last success was {_at(last_ms)}, {spell_age(now_ms - last_ms)} ago; run it, or allow more with"
            f" --max-age {kind}=AGE"
        )
    return ""


def _service(
    kind: RunKind, listed: Sequence[ListedRun], read: Sequence[RunNote], now_ms: int, limit_ms: int
) -> KindStatus:
    newest = listed[-1]
    is_alive = newest.outcome is Outcome.RUNNING and now_ms - newest.put_ms <= _ALIVE_MS
    told = [one.durable_through_ms for one in read if one.partitions]
    known = [one for one in told if one is not None]
    durable_ms = min(known) if known and len(known) == len(told) else None
    partitions = sum(one.partitions or 0 for one in read)
    due = [one.next_ms for one in read if one.next_ms is not None]
    is_new = any(one.took_ms <= limit_ms for one in read)
    late = ""
    if not is_alive and now_ms - newest.put_ms > limit_ms:
        what = "ended" if newest.outcome is not Outcome.RUNNING else "was last heard of"
        late = f"{kind}: {what} {_at(newest.put_ms)}, {spell_age(now_ms - newest.put_ms)} ago; start it again"
    elif durable_ms is not None and now_ms - durable_ms > limit_ms:
        late = f"{kind}: is {spell_age(now_ms - durable_ms)} behind{_because(read)}"
    elif not partitions and read and not is_new:
        late = f"{kind}: has no partition{_because(read)}"
    elif durable_ms is None and read and not is_new and kind is RunKind.BACKUP:
        late = f"{kind}: how far it is behind is unknown{_because(read)}"
    return KindStatus(
        kind=kind,
        last=newest,
        last_success_ms=newest.put_ms,
        next_ms=min(due, default=None),
        alive=len(read) if is_alive else 0,
        durable_through_ms=durable_ms,
        partitions=partitions,
        notes=read,
        late=late,
    )


def _because(read: Sequence[RunNote]) -> str:
    problems = list(dict.fromkeys(line for one in read for line in one.problems))
    return f": {'; '.join(problems[:3])}" if problems else ""


def _at(time_ms: int) -> str:
    """Spell a put time, which has whole seconds."""
    return spell_time(time_ms).replace(".000Z", "Z")


def spell_age(age_ms: int) -> str:
    """Spell an age for people, in its largest two units."""
    return " ".join(list(_units(max(0, age_ms) // 1000))[:2]) or "0 s"


def _units(seconds: int) -> Iterator[str]:
    for name, length in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, seconds = divmod(seconds, length)
        if count:
            yield f"{count} {name}"
