"""What a restore would do, and why it could not, as a dry run reports it."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from archiver.process.text import spell_count
from archiver.restore.estimate import Effort
from archiver.restore.plan import TopicPlan
from archiver.restore.request import Existing

NOT_TRIED = (
    "--where was tried on no record: one that it cannot be worked out for ends the restore, before anything is changed"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePreview:
    """What a restore would do, and why it could not."""

    restore_id: str
    topics: Sequence[TopicPlan]
    begun: Collection[str]  # targets that an earlier run has begun to fill, by its plan
    existing: Collection[str]  # targets that are there
    policy: Existing  # what becomes of existing targets
    is_partial: bool  # only a part of the archived records was requested
    refused: Sequence[str]
    damage: Sequence[str]  # why targets are not purged, as was read
    notes: Sequence[str]  # possible typing errors, and what is unknown before the restore
    doubts: Sequence[str]  # what may be refused, by what --where or --latest-per-key choose
    effort: Effort
    told: Sequence[str] = ()  # problems of the archive, which keep nothing from being restored

    @property
    def problems(self) -> list[str]:
        """Why partitions would not be restored, though the others are; and what else is wrong with the archive."""
        return [*(one.problem for topic in self.topics for one in topic.partitions if one.problem), *self.told]

    @property
    def missing(self) -> list[tuple[str, str]]:
        """What the plans know to be missing, by target partition; the tasks of a restore may meet more."""
        return [
            (f"{topic.target}-{one.partition}", missing)
            for topic in self.topics
            for one in topic.partitions
            for missing in one.missing
        ]


def with_missing(topic: TopicPlan, found: Mapping[tuple[str, int], Sequence[str]]) -> TopicPlan:
    """Add to the gaps that a plan knows what reading its objects has found to be damaged, given by (target, partition)."""
    return replace(
        topic,
        partitions=tuple(
            replace(one, missing=(*one.missing, *found.get((topic.target, one.partition), ())))
            for one in topic.partitions
        ),
    )


def copies_archived_again(
    select_topics: Callable[[Iterable[str]], Sequence[str]], targets: Mapping[str, str]
) -> Sequence[str]:
    """Return which copies under other names a backup would archive a second time."""
    copies = select_topics([target for source, target in targets.items() if source != target])
    if not copies:
        return ()
    first, *others = copies
    more = f" and {spell_count(len(others), 'more target')}" if others else ""
    told = f"{first}{more}: topics.include matches the name, and a backup with this configuration archives what is restored"
    return [f"{told}; leave it out by topics.exclude, or choose another name"]
