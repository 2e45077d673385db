"""The result of a dry run: the changes that a restore would make, and the problems that would stop it."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from archiver.process.output.text import spell_count
from archiver.restore.groups.group_preview import GroupPreview
from archiver.restore.plan.estimate import Effort
from archiver.restore.plan.request import Existing
from archiver.restore.plan.restore_plan import TopicPlan
from archiver.restore.purge.purge_checks import Damage

NOT_TRIED = (
    "--where was tried on no record: one that it cannot be worked out for ends the restore, before anything is changed"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePreview:
    """The changes that a restore would make, and the problems that would stop it."""

    restore_id: str
    topics: Sequence[TopicPlan]
    begun: Collection[str]  # targets that an earlier run has begun to fill, by its plan
    existing: Collection[str]  # existing targets
    policy: Existing  # the treatment of existing targets
    is_partial: bool  # only a part of the archived records was requested
    refused: Sequence[str]
    damage: Sequence[str]  # why targets are not purged, by a reading of the archive
    notes: Sequence[str]  # possible typing errors, and unknowns before the restore
    doubts: Sequence[str]  # possible refusals, by the choice of --where or --latest-per-key
    effort: Effort
    told: Sequence[str] = ()  # problems of the archive, and of groups, that stop no restore
    groups: Sequence[GroupPreview] | None = None  # None: not asked for
    skips_nameless: bool = False  # the group without a name has positions, which are never set

    @property
    def problems(self) -> list[str]:
        """Why single partitions would not be restored; and other problems of the archive."""
        return [*(one.problem for topic in self.topics for one in topic.partitions if one.problem), *self.told]

    @property
    def missing(self) -> list[tuple[str, str]]:
        """The missing parts that plans know, by target partition; the tasks of a restore may find more."""
        return [
            (f"{topic.target}-{one.partition}", missing)
            for topic in self.topics
            for one in topic.partitions
            for missing in one.missing
        ]


def with_missing(topic: TopicPlan, damage: Iterable[Damage]) -> TopicPlan:
    """Add damage that was found by reading a plan's objects to its known gaps."""
    mine = [one for one in damage if one.target == topic.target]

    def found(partition: int) -> list[str]:
        return [one.message for one in mine if one.partition == partition]

    partitions = (replace(one, missing=(*one.missing, *found(one.partition))) for one in topic.partitions)
    return replace(topic, partitions=tuple(partitions))


def copies_archived_again(
    select_topics: Callable[[Iterable[str]], Sequence[str]], targets: Mapping[str, str]
) -> Sequence[str]:
    """Return a note on renamed targets that a backup would archive as copies."""
    copies = select_topics([target for source, target in targets.items() if source != target])
    if not copies:
        return ()
    first, *others = copies
    more = f" and {spell_count(len(others), 'more target')}" if others else ""
    told = f"{first}{more}: topics.include matches the name, and a backup with this configuration archives what is restored"
    return [f"{told}; leave it out by topics.exclude, or choose another name"]
