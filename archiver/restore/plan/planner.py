"""Plans the topics of a restore from the present archive, and collects notes for the report; for a restore and its dry run."""

from collections.abc import Callable, Mapping

from archiver.archive.copies.archived_topic import ArchivedTopic
from archiver.archive.copies.copied_topic import Pins
from archiver.archive.format.handle import Archive
from archiver.archive.reading.catalog import read_archive
from archiver.config.model import IndexUse
from archiver.process.output.progress import make_asking_reporter
from archiver.restore.plan.request import RestoreRequest
from archiver.restore.plan.restore_plan import (
    TopicPlan,
    plan_restore,
    told_beside,
    told_of_no_record,
    unreadable_notes,
    with_objects,
)


class Planner:
    """Reads the archive of topics, and plans them."""

    def __init__(
        self, archive: Archive, request: RestoreRequest, index: IndexUse, notice: Callable[[str], None]
    ) -> None:
        self._archive = archive
        self._request = request
        self._index = index
        self._notice = notice
        self._problems: dict[str, None] = {}
        self._with_objects: set[str] = set()
        self.lives: dict[str, None] = {}  # a note for each topic that has other lives than the planned one
        self.notes: dict[str, None] = {}  # of copies, and of records that no backup could read

    def plan(self, targets: Mapping[str, str], life: int | None = None, pinned: Pins | None = None) -> list[TopicPlan]:
        """Plan topics, given with their targets, in a life; None: the requested one. `pinned`: the copies planned before."""
        if not targets:
            return []
        archived = read_archive(
            self._archive,
            life=self._request.life if life is None else life,
            wanted=targets.__contains__,
            choice=self._request.copy_choice(pinned or {}),
            use=self._index,
            reads=self._request.wanted.of,
            report_progress=make_asking_reporter(self._notice),
        )
        planned = plan_restore(archived, targets, self._request)
        self.lives |= dict.fromkeys(map(_note_of_lives, (one for one in archived if one.other_lives)))
        self.notes |= dict.fromkeys(note for topic in archived for note in topic.notes)
        self.notes |= dict.fromkeys(unreadable_notes(archived, self._request))
        self._problems |= dict.fromkeys(told_beside(archived, planned, self._request))
        self._with_objects |= with_objects(archived)
        return planned

    def problems(self, records: Mapping[str, int]) -> tuple[str, ...]:
        """Return problems of the archive that stop no restore. `records`: the number of restored records by topic."""
        return tuple(self._problems | dict.fromkeys(told_of_no_record(records, self._with_objects, self._request)))


def _note_of_lives(topic: ArchivedTopic) -> str:
    others = ", ".join(map(str, topic.other_lives))
    return f"{topic.topic}: this is its life {topic.life}; the archive also has life {others} (--life)"
