"""Checks that the current copy of a partition is whole: each process reads its listing and facts regularly.

A missing or unreadable object is damage: the next copy is due at once. Both instances check, so either may notice
it. The finding is not stored: a restarted process checks again.
"""

import logging

from archiver.archive.copies.copy_catalog import CopyCatalog
from archiver.archive.copies.roles import CompleteCopy, Generation, RoleEntry, RolePlace

log = logging.getLogger(__name__)


class CurrentCopyCheck:
    """Checks the current copy of one partition: at `first_s`, then every `every_s`."""

    def __init__(self, catalog: CopyCatalog, place: RolePlace, *, first_s: float, every_s: float) -> None:
        self.problem = ""  # of the copy that was checked last
        self.since_ms: int | None = None  # time of the first finding here
        self._catalog = catalog
        self._place = place
        self._due_s = first_s
        self._every_s = every_s
        self._judged: Generation | None = None
        self._reached = 0  # the end of its objects, when it was whole

    def hasten(self, now_s: float) -> None:
        """Check the current copy at the next survey: another instance reports that its turn is over."""
        self._due_s = min(self._due_s, now_s)

    def note_holder(self, entry: RoleEntry | None) -> None:
        """Forget the findings about a former copy."""
        if entry is None or entry.current != self._judged:
            self.problem, self.since_ms, self._reached = "", None, 0
            self.forget()

    def forget(self) -> None:
        """Forget the facts of the copy that was checked last."""
        if self._judged is not None:
            self._catalog.forget_facts(self._place.copy_key(self._judged))
            self._judged = None

    def is_due(self, now_s: float) -> bool:
        return now_s >= self._due_s

    def look(self, copy: CompleteCopy, now_s: float, now_ms: int) -> None:
        """Check the current copy. Called in a worker's thread, one call at a time."""
        problem = self._damage(copy)
        if problem and not self.problem:
            log.error(
                "%s: the copy that is read, generation %s, is damaged, and the next one is due: it %s",
                self._place.stream, copy.generation, problem,
            )  # fmt: skip
        self._judged, self.problem = copy.generation, problem
        self.since_ms = None if not problem else now_ms if self.since_ms is None else self.since_ms
        self._due_s = now_s + self._every_s

    def _damage(self, copy: CompleteCopy) -> str:
        """Return the problem of a copy; empty if it has none."""
        state = self._catalog.look_over(self._place, copy.generation)
        if damage := state.damage(copy):
            return damage
        if state.has_expired and copy.is_sure:
            return "lacks records that expired in Kafka before it had them, and its role log does not say that it is unsure"
        reached = self._reached if copy.generation == self._judged else 0
        if state.end < reached:
            return f"ends at offset {state.end}, and has reached {reached}"
        self._reached = state.end
        return ""
