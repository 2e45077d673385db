"""Brokers that keep positions, simulated with dictionaries: topics come, go and come again, and a backup sees some of that.

What is true is told from all rows that were ever written, with the life of each; the archive gets fewer, and other times.
"""

import base64
import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from archiver.archive.segments.segment_facts import TransactionRange
from archiver.codec.selection import LAST_LONG
from archiver.groups.log.archived_log import LogTimes, OffsetsLog, counting_ms
from archiver.groups.log.commit_log import CommitLog
from archiver.groups.log.doubts import Doubt, Doubts
from archiver.groups.log.lives import Root
from archiver.groups.positions.archived_position import State
from tests.support.commit_frames import commit_value, frame_at, position_key, text
from tests.support.offset_commits import spell_topic_id
from tests.support.simulated_backups import dying_runs, read_log_in_runs

GROUPS, TOPICS, PARTITIONS, LOGS = "abcd", "xy", 2, 2
Place = tuple[str, str, int]  # group, topic, partition
SECOND_MS, MINUTE_MS, HOUR_MS = 1000, 60_000, 3_600_000


@dataclass(frozen=True, kw_only=True)
class World:
    """What may happen."""

    has_ids: str = "no"  # yes; late: from the middle on
    is_seen_late: bool = False
    has_skew: bool = False  # clocks of brokers differ
    lacks_times: bool = False  # some rows have no time
    is_compacted: bool = False
    has_holes: bool = False
    lags: bool = False  # the archive of the log ends before what else is known
    recreates: bool = True
    has_transactions: bool = False  # some positions are committed in transactions, with markers that come late
    dies: bool = False  # backups of the log die half way, and it is compacted meanwhile


class Written(NamedTuple):
    """A row of the log, and what is true of it."""

    place: Place | None  # None: of a group itself
    key: bytes
    value: bytes | None
    offset: int
    stamp_ms: int  # as the broker wrote it
    life: int
    committed: int  # -1: a removal
    with_topic: bool = False
    counts_ms: int = -1  # in a transaction: when its marker came; -1: at its time


class Truth(NamedTuple):
    state: State
    offset: int
    removed_at: int = -1


@dataclass
class Life:
    """A topic, and when a backup saw it."""

    number: int
    created_ms: int
    looks_ms: int  # when the backup looks
    deleted_ms: int | None = None
    seen_ms: int | None = None
    alive_ms: int | None = None


@dataclass
class Simulated:
    """Partitions of the offsets topic, and topics."""

    drawn: random.Random
    world: World
    now_ms: int = 100 * HOUR_MS
    logs: list[list[Written]] = field(default_factory=lambda: [[] for _ in range(LOGS)])
    lives: dict[str, list[Life]] = field(default_factory=lambda: {name: [] for name in TOPICS})
    times: list[int] = field(default_factory=list)
    stood: list[dict[Place, tuple[int, int]]] = field(default_factory=list)  # at each of them: life and offset
    is_late: bool = False  # ids are committed, where that begins late

    def step(self) -> None:
        pause_ms = self.drawn.choice([20 * SECOND_MS, 10 * MINUTE_MS, 3 * HOUR_MS])
        self.now_ms += self.drawn.randrange(SECOND_MS, pause_ms)
        self._look()
        kind = self.drawn.choice(["commit"] * 9 + ["delete", "create", "create", "remove", "group"])
        topic, group = self.drawn.choice(TOPICS), self.drawn.choice(GROUPS)
        if kind == "create":
            self._create(topic)
        elif kind == "delete":
            self._delete(topic)
        elif kind == "commit":
            self._commit((group, topic, self.drawn.randrange(PARTITIONS)))
        elif kind == "remove" and self._standing():
            self._remove([self.drawn.choice(self._standing())])
        elif kind == "group":
            self._remove([one for one in self._standing() if one[0] == group])
            key = struct.pack(">h", 2) + text(group)
            self._log(_log_of(group), Written(None, key, None, 0, self._stamp(), -1, -1))
        self.times.append(self.now_ms)
        self.stood.append({})
        for row in (row for log in self.logs for row in log):
            if row.place is None:
                continue
            if row.committed >= 0:
                self.stood[-1][row.place] = row.life, row.committed
            else:
                self.stood[-1].pop(row.place, None)

    def existing(self, topic: str) -> Life | None:
        lives = self.lives[topic]
        return lives[-1] if lives and lives[-1].deleted_ms is None else None

    def _create(self, topic: str) -> None:
        if self.existing(topic) or (self.lives[topic] and not self.world.recreates):
            return
        late_ms = self.drawn.choice([MINUTE_MS, 20 * MINUTE_MS, 5 * HOUR_MS]) if self.world.is_seen_late else MINUTE_MS
        looks_ms = self.now_ms + self.drawn.randrange(late_ms)
        self.lives[topic].append(Life(len(self.lives[topic]), self.now_ms, looks_ms))
        while self.drawn.random() < 0.4:  # somebody who waited for it
            self.now_ms += self.drawn.randrange(3 * SECOND_MS)
            self._commit((self.drawn.choice(GROUPS), topic, self.drawn.randrange(PARTITIONS)))

    def _delete(self, topic: str) -> None:
        life = self.existing(topic)
        if life is None:
            return
        if life.number == 0 and life.seen_ms is None:  # the first one is seen by all means, and so is the last one
            life.seen_ms = self.now_ms
        self._note_alive(life)
        deleted_ms = self.now_ms
        for number in self.drawn.sample(range(LOGS), LOGS):  # brokers hear of it one after the other
            self.now_ms += self.drawn.choice([0, self.drawn.randrange(20 * SECOND_MS)])
            if self.drawn.random() < 0.3:
                group = self.drawn.choice([one for one in GROUPS if _log_of(one) == number])
                self._commit((group, topic, self.drawn.randrange(PARTITIONS)))
            places = [one for one in self._standing() if one[1] == topic and _log_of(one[0]) == number]
            self._remove(places, with_topic=True)
        life.deleted_ms = deleted_ms
        if self.drawn.random() < 0.3:
            self._create(topic)

    def _look(self) -> None:
        for lives in self.lives.values():
            for life in lives:
                if life.seen_ms is None and life.deleted_ms is None and life.looks_ms <= self.now_ms:
                    life.seen_ms = life.looks_ms

    def _note_alive(self, life: Life) -> None:
        if life.seen_ms is not None and self.drawn.random() < 0.5:
            life.alive_ms = self.drawn.randrange(life.created_ms - 5 * HOUR_MS, self.now_ms + 1)

    def _standing(self) -> list[Place]:
        found: dict[Place, bool] = {}
        for log in self.logs:
            found |= {row.place: row.committed >= 0 for row in log if row.place is not None}
        return [place for place, stands in found.items() if stands]

    def _stamp(self) -> int:
        return self.now_ms + (self.drawn.randrange(-25 * SECOND_MS, 25 * SECOND_MS) if self.world.has_skew else 0)

    def _commit(self, place: Place) -> None:
        life = self.existing(place[1])
        if life is None:
            return
        offset = self.drawn.randrange(100)
        has_id = self.world.has_ids == "yes" or (self.world.has_ids == "late" and self.is_late)
        value = value_with_id(offset, life.number) if has_id else commit_value(offset)
        row = Written(place, position_key(*place), value, 0, self._stamp(), life.number, offset)
        if self.world.has_transactions and self.drawn.random() < 0.5:
            late_ms = self.drawn.choice([100, MINUTE_MS, 15 * MINUTE_MS, 4 * HOUR_MS])
            row = row._replace(counts_ms=row.stamp_ms + self.drawn.randrange(late_ms))
        self._log(_log_of(place[0]), row)

    def _remove(self, places: Sequence[Place], *, with_topic: bool = False) -> None:
        for place in places:
            log, stamp_ms = self.logs[_log_of(place[0])], self._stamp()
            life = next(row.life for row in reversed(log) if row.place == place)
            for at, row in enumerate(log):
                if row.place == place:  # a transaction is over when the position goes
                    log[at] = row._replace(counts_ms=min(row.counts_ms, stamp_ms))
            row = Written(place, position_key(*place), None, 0, stamp_ms, life, -1, with_topic)
            self._log(_log_of(place[0]), row)

    def _log(self, number: int, row: Written) -> None:
        self.logs[number].append(row._replace(offset=3 * len(self.logs[number])))

    def finish(self) -> None:
        for lives in self.lives.values():
            for life in lives[-1:]:
                life.seen_ms = self.now_ms if life.seen_ms is None else life.seen_ms
                if life.deleted_ms is None:
                    self._note_alive(life)

    # --- what the archive has

    def roots(self) -> dict[str, list[Root]]:
        """Lives that no backup saw are not among them; the others are numbered without gaps."""
        found = {}
        for topic, lives in self.lives.items():
            seen = [life for life in lives if life.seen_ms is not None]
            ids = [topic_id(life.number) if self.world.has_ids != "no" else "" for life in seen]
            found[topic] = [Root(number, ids[number], life.seen_ms, life.alive_ms) for number, life in enumerate(seen)]
        return found

    def true_life(self, topic: str, root: int) -> int:
        return [life.number for life in self.lives[topic] if life.seen_ms is not None][root]

    def archive(self) -> "Archived":
        logs, doubts, ends = [], [], []
        for log in self.logs:
            if self.world.dies:
                kept, found, end = self._read_by_backups(log)
                logs.append(kept)
                doubts.append(found)
                ends.append(end)
                continue
            end = self.drawn.randrange(len(log) + 1) if self.world.lags else len(log)
            kept, found = self._kept(log[:end])
            logs.append(kept)
            doubts.append(sorted(found))
            ends.append(3 * end)
        return Archived(self, logs, doubts, ends, NotedTransactions(self.drawn.choice([1, 1, 2, 5])))

    def _read_by_backups(self, log: Sequence[Written]) -> tuple[list[Written], list[Doubt], int]:
        timed = [self._perhaps_untimed(row) for row in log]
        return read_log_in_runs(
            self.drawn, timed, dying_runs(self.drawn, timed), untouched=self.drawn.choice([0, 1, 5, 20])
        )

    def _perhaps_untimed(self, row: Written) -> Written:
        return row._replace(stamp_ms=-1) if self.world.lacks_times and self.drawn.random() < 0.1 else row

    def _kept(self, log: Sequence[Written]) -> tuple[list[Written], list[Doubt]]:
        dropped: set[int] = set()
        doubts = []
        last = {row.key: row.offset for row in log}
        if self.world.is_compacted:
            for row in log:
                if last[row.key] > row.offset and self.drawn.random() < 0.3:
                    dropped.add(row.offset)
                    begin = row.offset - self.drawn.randrange(6)
                    doubts.append(Doubt(max(0, begin), row.offset + self.drawn.randrange(3), needs_later=True))
                elif row.value is None and self.drawn.random() < 0.3:  # kept for a day alone
                    dropped.add(row.offset)
                    doubts.append(Doubt(row.offset, row.offset, needs_later=False))
        if self.world.has_holes and log:
            first = self.drawn.choice([0, self.drawn.randrange(3 * len(log))])
            doubts.append(Doubt(first, first + self.drawn.randrange(30), needs_later=False))
            dropped |= {row.offset for row in log if doubts[-1].first <= row.offset <= doubts[-1].last}
        kept = [row for row in log if row.offset not in dropped]
        return [self._perhaps_untimed(row) for row in kept], doubts

    def truth(self, until_ms: int, ends: Sequence[int]) -> dict[tuple[Place, int], Truth]:
        """Where groups stood, or had stood when their position was removed, of what is below the ends of archived logs."""
        found: dict[tuple[Place, int], Truth] = {}
        for log, end in zip(self.logs, ends, strict=True):
            for row in log:
                counts_ms = max(row.stamp_ms, row.counts_ms)
                if row.place is None or counts_ms > until_ms or row.offset >= end:
                    continue
                which = row.place, row.life
                if row.committed >= 0:
                    found[which] = Truth(State.SET, row.committed)
                elif which in found and found[which].state is State.SET:
                    state = State.TOPIC_DELETED if row.with_topic else State.REMOVED
                    found[which] = Truth(state, found[which].offset, row.offset)
        return found


@dataclass(frozen=True)
class NotedTransactions:
    """The ranges of transactions as a backup notes them: so many are joined, with the longest of their waits."""

    joined: int = 1

    def ranges(self, rows: Sequence[Written]) -> list[TransactionRange]:
        found = [
            TransactionRange(row.offset, row.offset, row.counts_ms - row.stamp_ms)
            for row in rows
            if row.counts_ms > row.stamp_ms >= 0
        ]
        groups = (found[at : at + self.joined] for at in range(0, len(found), self.joined))
        return [
            TransactionRange(some[0].first_offset, some[-1].last_offset, max(one.within_ms for one in some))
            for some in groups
        ]


_EACH_ALONE: Final = NotedTransactions()


@dataclass(frozen=True)
class Archived:
    """What is left of the logs."""

    of: Simulated
    kept: Sequence[Sequence[Written]]
    doubts: Sequence[Sequence[Doubt]]
    ends: Sequence[int]
    transactions: NotedTransactions = _EACH_ALONE

    def logs(self, until_ms: int = LAST_LONG) -> list[OffsetsLog]:
        return [
            archived_log(number, *one, until_ms, self.transactions)
            for number, one in enumerate(zip(self.kept, self.doubts, self.ends, strict=True))
        ]


def archived_log(
    number: int,
    rows: Sequence[Written],
    doubts: Sequence[Doubt],
    end: int,
    until_ms: int,
    transactions: NotedTransactions = _EACH_ALONE,
) -> OffsetsLog:
    log, times = CommitLog(until_ms), LogTimes(until_ms)
    frame = frame_at([(row.offset, row.key, row.value, row.stamp_ms) for row in rows])
    if rows:
        log.add(frame, counting_ms(frame, transactions.ranges(rows)))
        times.add(frame)
    return OffsetsLog(
        partition=number,
        rows=log.finish(),
        doubts=Doubts(sorted(doubts)),
        cut=times.cut(end),
        next=end,
        first_ms=times.first_ms,
        last_ms=times.last_ms,
    )


def _log_of(group: str) -> int:
    return ord(group) % LOGS


def topic_id(life: int) -> str:
    return spell_topic_id(bytes(15) + bytes([life + 1]))


def value_with_id(offset: int, life: int) -> bytes:
    raw = base64.urlsafe_b64decode(f"{topic_id(life)}==")
    return struct.pack(">hqi", 4, offset, -1) + b"\1" + struct.pack(">q", 1000) + b"\1\0\x10" + raw


def simulate(seed: int, world: World, steps: int = 50) -> Simulated:
    found = Simulated(random.Random(seed), world)
    for number in range(steps):
        found.is_late = number > steps // 2
        found.step()
    found.finish()
    return found


def draw_world(seed: int) -> World:
    drawn = random.Random(seed ^ 0x5EED)
    return replace(
        World(),
        has_ids=drawn.choice(["no", "no", "no", "yes", "late"]),
        **{
            name: drawn.random() < 0.4
            for name in (
                "is_seen_late",
                "has_skew",
                "lacks_times",
                "is_compacted",
                "has_holes",
                "lags",
                "dies",
                "has_transactions",
            )
        },
    )
