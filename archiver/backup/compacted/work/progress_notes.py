"""Notes the reading progress of a process in each generation, and reads the notes of all processes of both instances.

The times of these notes show the store's clock.
"""

import logging
from collections.abc import Collection, Mapping, Sequence

from archiver.archive.copies.moments import (
    FORGOTTEN_AFTER_MS,
    GenerationPlace,
    HeardMoment,
    LeftNote,
    MomentNote,
    NotedLimits,
    NoteName,
    clear_old_moments,
    first_note,
    heard_by_place,
    moment_stream,
    put_moments,
    read_notes,
)
from archiver.archive.copies.roles import Generation, RolePlace
from archiver.archive.format.handle import Archive
from archiver.archive.format.store_clock import StoreClock, since_boot_s
from archiver.config.model import CompactedConfig
from archiver.errors import StoreError, StoreTemporaryError
from archiver.process.running.failpoints import reach
from archiver.process.running.workers import Workers
from archiver.process.values.json_values import LARGEST

log = logging.getLogger(__name__)


class ProgressNotes:
    """The notes of one process of instance `name`. Used on the loop."""

    def __init__(self, archive: Archive, name: str, config: CompactedConfig, clock: StoreClock) -> None:
        self._archive = archive
        self._name = name
        self._instances = config.instances
        self._clock = clock
        self._limits = _limits_of(config)
        self._pool = Workers(2, "moments")  # must not wait behind slow work
        self._next_note = first_note()
        self._uncleared = ""  # why old notes could not be deleted
        # Generations that this process has left, and until when it notes them.
        self._left: dict[GenerationPlace, tuple[LeftNote, float]] = {}
        self._heard: Mapping[RolePlace, Mapping[Generation, HeardMoment]] = {}

    def heard(self, place: RolePlace) -> Mapping[Generation, HeardMoment]:
        """Return the latest notes of processes about the generations of a partition."""
        return self._heard.get(place, {})

    def remember(self, note: LeftNote) -> None:
        """Keep noting the progress on a generation that was left here, until another process notes more."""
        self._left[note.place] = note, since_boot_s() + FORGOTTEN_AFTER_MS / 1000

    async def note(self, moments: Sequence[MomentNote]) -> None:
        """Note the progress of each generation, and read the notes of the others."""
        left = self._still_left({note.place for note in moments})
        archive, note = self._archive, self._next_note
        self._next_note = note.following
        await self._pool.call(self._put, note, moments, left)
        told = {one: await self._pool.call(read_notes, archive, one) for one in self._instances}
        self._heard = heard_by_place(told)
        try:
            await self._pool.call(clear_old_moments, archive, self._name, *note, self._clock.earliest_now_ms())
        except (StoreError, StoreTemporaryError) as error:  # only space is lost
            if str(error) != self._uncleared:
                log.warning("%s; what it has noted of its reading before stays", error)
            self._uncleared = str(error)

    def _still_left(self, working: Collection[GenerationPlace]) -> list[LeftNote]:
        """Return the notes on generations that this process has left, unless it or another one continues them."""
        now_s = since_boot_s()
        self._left = {
            place: (note, until_s)
            for place, (note, until_s) in self._left.items()
            if now_s < until_s and place not in working and not self._has_gone_on(place, note)
        }
        return [note for note, _ in self._left.values()]

    def _has_gone_on(self, place: GenerationPlace, note: MomentNote) -> bool:
        heard = self.heard(place[0]).get(Generation(instance=self._name, number=place[1]))
        return heard is not None and heard.moment is not None and heard.moment.at_ms > (note.at_ms or 0)

    def _put(self, note: NoteName, moments: Sequence[MomentNote], left: Sequence[LeftNote]) -> None:
        """Put moments, and learn the store's clock from them."""
        archive, name, begun_s = self._archive, self._name, since_boot_s()
        noted_ms = self._clock.earliest_now_ms() if self._clock.is_known else None
        if not put_moments(archive, name, *note, moments, left, noted_ms=noted_ms, limits=self._limits):
            return
        reach("moments.put")
        ended_s, stream = since_boot_s(), moment_stream(name, note.process)
        for item in archive.store.list(archive.layout.fact_key(stream, note.number)):
            self._clock.note(begun_s, ended_s, item.last_modified)


def _limits_of(config: CompactedConfig) -> NotedLimits:
    return NotedLimits(
        length_ms=config.length_ms,
        takeover_ms=min(config.takeover_ms, LARGEST),
        margin_ms=None if config.margin_ms is None else min(config.margin_ms, LARGEST),
        clear_delay_ms=min(config.clear_delay_ms, LARGEST),
        keep_generations=min(config.keep_generations, LARGEST),
    )
