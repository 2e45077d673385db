"""Reads the notes of runs: last successes, lag, and late runs with the reason. `archiver status` and the report use it."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from archiver.archive.format.handle import Archive
from archiver.archive.notes.run_notes import ListedRun, Outcome, RunKind, RunNote, list_runs, read_run
from archiver.config.quantities import spell_time
from archiver.errors import NotWholeError
from archiver.process.output.progress import spell_seconds
from archiver.process.running.workers import side_by_side
from archiver.process.values.json_values import LARGEST

_MOST_READ: Final = 5
_ALIVE_MS: Final = 3 * 60_000  # three notes of a service
_SCHEDULED_MS: Final = 24 * 3_600_000  # the shortest interval of a schedule that makes a job late
_HOUR_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class KindStatus:
    """The runs of one kind. `last_success_ms` of a service: its newest note."""

    kind: RunKind
    last: ListedRun
    last_success_ms: int | None
    next_ms: int | None = None  # expected: by the note, or the interval of the last two successes
    alive: int = 0  # processes of a service
    durable_through_ms: int | None = None
    partitions: int | None = None
    notes: Sequence[RunNote] = ()
    late: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """All kinds of runs at a time by the store's clock. `missing`: expected kinds without a note."""

    now_ms: int
    kinds: Sequence[KindStatus]
    unfinished: list[str]  # restores
    missing: Sequence[RunKind] = ()
    damaged: Sequence[str] = ()  # a line for each unreadable note

    def of(self, kind: RunKind) -> KindStatus | None:
        return next((one for one in self.kinds if one.kind is kind), None)

    @property
    def durable_through_ms(self) -> int | None:
        """Return the time until which all of Kafka's records are archived; None: unknown."""
        found = [one.durable_through_ms for one in map(self.of, (RunKind.BACKUP, RunKind.UNTIL_END)) if one]
        return max((one for one in found if one is not None), default=None)

    @property
    def late(self) -> list[str]:
        """Return a line for each late kind of run, with the reason."""
        lines = [*self.damaged, *(one.late for one in self.kinds if one.late)]
        if not any(map(self.of, (RunKind.BACKUP, RunKind.UNTIL_END, RunKind.COMPACTED))):
            lines.append("backup: no run has left a note; start `archiver backup` or `archiver backup --until-end`")
        lines += [f"{kind}: no run has left a note, and --max-age {kind}=AGE expects one" for kind in self.missing]
        return lines


def read_status(archive: Archive, now_ms: int, max_ages_ms: Mapping[str, int]) -> RunStatus:
    """Read the notes of runs by one listing and at most five reads; more if more processes run. A damaged note hides no other one.

    `max_ages_ms`: the largest age of the last success by kind; "": of a backup's oldest unwritten record, by default an hour. `now_ms`: this machine's time.
    """
    listed = list_runs(archive)
    now_ms = max([now_ms, *(one.put_ms for one in listed)])
    by_kind: dict[RunKind, list[ListedRun]] = defaultdict(list)
    for one in listed:
        by_kind[one.kind].append(one)
    chosen = _chosen(by_kind, now_ms)
    read = list(side_by_side(_MOST_READ, partial(_read, archive), chosen, "run"))
    notes = {one: note for one, note in zip(chosen, read, strict=True) if isinstance(note, RunNote)}
    damaged = [f"{note}; delete this note" for note in read if isinstance(note, NotWholeError)]
    ages_ms = dict(max_ages_ms)
    if "" in ages_ms and RunKind.BACKUP not in by_kind:  # a schedule is the only backup
        ages_ms.setdefault(RunKind.UNTIL_END, ages_ms[""])
    kinds = [_status_of(kind, by_kind[kind], notes, now_ms, ages_ms) for kind in RunKind if kind in by_kind]
    newest = {one.name: one for one in by_kind[RunKind.RESTORE]}
    unfinished = [name for name, one in newest.items() if one.outcome is not Outcome.DONE]
    missing = [kind for kind in RunKind if kind in max_ages_ms and not by_kind[kind]]
    return RunStatus(now_ms=now_ms, kinds=kinds, unfinished=unfinished, missing=missing, damaged=damaged)


def _read(archive: Archive, listed: ListedRun) -> RunNote | NotWholeError:
    try:
        return read_run(archive, listed)
    except NotWholeError as error:
        return error


def _is_alive(run: ListedRun, now_ms: int) -> bool:
    return run.outcome is Outcome.RUNNING and now_ms - run.put_ms <= _ALIVE_MS


def _alive(listed: Sequence[ListedRun], now_ms: int) -> list[ListedRun]:
    """Return the newest note of each process that runs."""
    return [one for one in {one.name: one for one in listed}.values() if _is_alive(one, now_ms)]


def _chosen(by_kind: Mapping[RunKind, Sequence[ListedRun]], now_ms: int) -> list[ListedRun]:
    """Return the notes to read: the newest of each running process, and up to the limit of each kind of job."""
    services, jobs = list[ListedRun](), list[ListedRun]()
    for kind in (RunKind.BACKUP, RunKind.COMPACTED):
        services += _alive(by_kind.get(kind, ()), now_ms) or by_kind.get(kind, ())[-1:]
    for kind in (RunKind.RETENTION, RunKind.UNTIL_END, RunKind.VERIFY, RunKind.DRILL):
        jobs += by_kind.get(kind, ())[-1:]
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
        return _service(kind, listed, read, now_ms, max_ages_ms.get(kind, max_ages_ms.get("", _HOUR_MS)))
    last, done = listed[-1], [one.put_ms for one in listed if one.outcome is Outcome.DONE]
    gap_ms = done[-1] - done[-2] if len(done) > 1 else 0
    limit_ms = max_ages_ms.get(kind, 2 * max(gap_ms, _SCHEDULED_MS) if gap_ms else LARGEST)
    why = ""
    if kind is RunKind.RESTORE:  # has no schedule: an unfinished one is listed
        pass
    elif last.outcome is Outcome.FAILED:
        why = f"the run that ended {spell_time(last.put_ms)} failed{_because(read)}"
    elif not done:
        why = "no run has succeeded"
    elif now_ms - done[-1] > limit_ms:
        age = spell_seconds((now_ms - done[-1]) / 1000)
        why = f"the last success was {spell_time(done[-1])}, {age} ago; run it, or allow more with --max-age {kind}=AGE"
    return KindStatus(
        kind=kind,
        last=last,
        last_success_ms=done[-1] if done else None,
        next_ms=done[-1] + gap_ms if gap_ms >= _HOUR_MS else None,
        durable_through_ms=read[-1].durable_through_ms if read else None,
        partitions=read[-1].partitions if read else None,
        notes=read,
        late=f"{kind}: {why}" if why else "",
    )


def _service(
    kind: RunKind, listed: Sequence[ListedRun], read: Sequence[RunNote], now_ms: int, limit_ms: int
) -> KindStatus:
    alive = _alive(listed, now_ms)
    newest = max(alive, key=lambda one: one.put_ms, default=listed[-1])
    silent_ms = now_ms - newest.put_ms
    ends = [one.durable_through_ms for one in read if one.partitions]
    known = [one for one in ends if one is not None]
    durable_ms = min(known) if known and len(known) == len(ends) else None
    partitions = sum(one.partitions or 0 for one in read)
    due = [one.next_ms for one in read if one.next_ms is not None]
    why = ""
    if not alive and silent_ms > limit_ms:
        what = "ended" if newest.outcome is Outcome.DONE else "put its last note"
        why = f"{what} {spell_time(newest.put_ms)}, {spell_seconds(silent_ms / 1000)} ago; start it again"
    elif durable_ms is not None and now_ms - durable_ms > limit_ms:
        why = f"is {spell_seconds((now_ms - durable_ms) / 1000)} behind{_because(read)}"
    elif read and all(one.took_ms > limit_ms for one in read):  # none of them has just begun
        if not partitions:
            why = f"has no partition{_because(read)}"
        elif durable_ms is None and kind is RunKind.BACKUP:
            why = f"how far it is behind is unknown{_because(read)}"
    return KindStatus(
        kind=kind,
        last=newest,
        last_success_ms=newest.put_ms,
        next_ms=min(due, default=None),
        alive=len(alive),
        durable_through_ms=durable_ms,
        partitions=partitions,
        notes=read,
        late=f"{kind}: {why}" if why else "",
    )


def _because(read: Sequence[RunNote]) -> str:
    problems = list(dict.fromkeys(line for one in read for line in one.problems))
    return f": {'; '.join(problems[:3])}" if problems else ""
