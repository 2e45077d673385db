"""Validates a noted plan against the command and the archive: another program may have written it (docs/format.md §8).

Any program that may write below `control/restores/` may write a plan. None of its values alone decides on reads, or on changes
to a topic.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from archiver.archive.copies.copied_topic import Pins
from archiver.archive.format.control import RESTORES
from archiver.archive.format.layout import Layout
from archiver.archive.segments.parts import are_chosen
from archiver.errors import NotWholeError, UsageError
from archiver.process.output.text import spell_count
from archiver.restore.plan.plan_comparison import Source, difference, has_gaps, later
from archiver.restore.plan.request import Existing, RestoreRequest
from archiver.restore.plan.restore_plan import PartitionPlan, TopicPlan

# Targets by source, the life to read, and its copies to read.
PlanIn = Callable[[Mapping[str, str], int, Pins], Sequence[TopicPlan]]


class _ForeignPlanError(Exception):
    """The noted plan cannot be this restore's: another program wrote or changed it."""


class CheckedPlans(NamedTuple):
    """The noted plans that this run carries out, and its own plans and reports."""

    plans: Sequence[TopicPlan]
    fresh: Sequence[TopicPlan]  # present plans of topics with refused partitions, which may have been mended
    notes: Sequence[str]  # archived objects after their ends


@dataclass(frozen=True, slots=True)
class PlanCheck:
    """Checks the noted plans of one restore."""

    layout: Layout
    restore_id: str
    request: RestoreRequest

    def check_plan(self, noted: TopicPlan, present: TopicPlan) -> TopicPlan:
        """Return a noted plan as this run may carry it out, or refuse it if this restore cannot have noted it.

        `present`: this run's plan for the target, in the same life: the noted objects must be the archive's, and configs are
        taken from it. Raises UsageError for another command, and NotWholeError for a foreign plan.
        """
        self.check_command(noted, present.source)
        try:
            _same(noted.target, present.target, "target")
            _same(noted.life, present.life, "life")
            if self.request.life is not None:
                _same(noted.life, self.request.life, "life")
            _same(noted.repartition, present.repartition, "number of partitions to be dealt out to")
            if [one.partition for one in noted.partitions] != list(range(len(noted.partitions))):
                raise _ForeignPlanError("has its partitions not in order")  # noqa: TRY301
            if len(noted.partitions) > len(present.partitions):
                raise _ForeignPlanError(f"has {len(noted.partitions)} partitions of {len(present.partitions)}")  # noqa: TRY301
            pairs = zip(noted.partitions, present.partitions, strict=False)
            partitions = tuple(self._partition(noted, one, other) for one, other in pairs)
        except _ForeignPlanError as error:
            raise self.refusal(noted.target, str(error)) from error
        return replace(
            noted,
            partitions=partitions,
            final_configs=present.final_configs,
            archived_retention=present.archived_retention,
        )

    def check_held(self, held: TopicPlan, planned: TopicPlan) -> TopicPlan:
        """Return the valid plan of a ready target. Raises NotWholeError if another one was noted meanwhile.

        Only a continuing run leaves out objects after the plan's end, and it reports them.
        """
        found = self.check_plan(held, planned)
        pairs = zip(found.partitions, planned.partitions, strict=False)
        if len(found.partitions) != len(planned.partitions) or not all(one.reads_as(other) for one, other in pairs):
            raise NotWholeError(
                f"{self.layout.control_prefix(f'{RESTORES}/{self.restore_id}/{held.target}/plan')} (the newest): has other objects"
                " than this run has planned, and was noted meanwhile: by another run of this restore, or by another client. Run"
                " the same command again: it goes on as was planned there, and says what that leaves out"
            )
        return found

    def check_plans(self, noted: Iterable[TopicPlan], plan_in: PlanIn) -> CheckedPlans:
        """Check each noted plan against the present archive (check_plan)."""
        begun = list(noted)
        present: dict[str, TopicPlan] = {}
        for life in sorted({one.life for one in begun}):
            some = [one for one in begun if one.life == life]
            wave, pins = {one.source: one.target for one in some}, {one.source: one.pins for one in some}
            present |= {one.target: one for one in self._planned(plan_in, wave, life, pins)}
        gone = [one for one in begun if one.target not in present]
        if gone:
            raise self.refusal(gone[0].target, f"is of topic {gone[0].source}, which the archive does not have")
        believed = [self.check_plan(one, present[one.target]) for one in begun]
        return CheckedPlans(
            believed,
            [present[one.target] for one in believed if one.may_be_mended],
            [told for one in believed for told in self._later(one, present[one.target])],
        )

    def check_command(self, noted: TopicPlan, source: str) -> None:
        """Refuse a plan that the command would not have made. Raises UsageError."""
        begun = f"restore {self.restore_id} into {noted.target} was begun with"
        if noted.source != source:
            raise UsageError(f"{begun} topic {noted.source}, not with {source}; take another --id, and another target")
        if noted.appends and self.request.existing is not Existing.APPEND:
            raise UsageError(
                f"{begun} --into-existing, behind records that were there; repeat that, or take another --id and another target"
            )

    def refusal(self, target: str, what: str) -> NotWholeError:
        """Return the error for a plan that is not this restore's."""
        return NotWholeError(
            f"{self.layout.control_prefix(f'{RESTORES}/{self.restore_id}/{target}/plan')} (the newest): {what}; this restore has"
            " not noted that. Nothing was changed. See who wrote it, and take another --id and an empty target"
        )

    def _planned(self, plan_in: PlanIn, wave: Mapping[str, str], life: int, pins: Pins) -> Sequence[TopicPlan]:
        try:
            return plan_in(wave, life, pins)
        except UsageError as error:
            raise self.refusal(next(iter(wave.values())), f"is of life {life}: {error}") from error

    # --- one partition

    def _partition(self, topic: TopicPlan, noted: PartitionPlan, present: PartitionPlan) -> PartitionPlan:
        where = f"{topic.source}-{noted.partition}"
        _same(noted.selection, present.selection, f"selection of {where}")
        if noted.missing and not self.request.skips_damage:
            raise _ForeignPlanError(f"leaves out of {where} what is missing, without --skip-damaged")
        if noted.problem:  # this partition is not read; if planned again, the present plan is used
            return noted
        _same(noted.held_copies(topic.life), present.held_copies(topic.life), f"copies of {where}")
        if noted.parts and are_chosen(noted.parts) is not self.request.chooses(is_copied=topic.is_copied):
            raise _ForeignPlanError(f"has records of {where} chosen otherwise than was asked for")
        try:
            may_lack = bool(noted.missing)
            source = self._source(topic, noted)
            problem = difference(noted, present, source, may_lack=may_lack)
            missing = present.problem or "; ".join(present.missing)
            if not problem and missing and not may_lack and has_gaps(noted, source):
                raise NotWholeError(
                    f"{missing}. What restore {self.restore_id} had planned of {where} does not show that it was there; bring"
                    " it back, or take another --id and an empty target"
                )
        except (TypeError, ValueError, OverflowError, IndexError) as error:
            problem = f"cannot be: {error}"
        if problem:
            raise _ForeignPlanError(f"of {where} it {problem}")
        return replace(noted, stored_bytes=max(0, min(noted.stored_bytes, present.stored_bytes)))

    def _source(self, topic: TopicPlan, partition: PartitionPlan) -> Source:
        number = partition.partition
        return Source(
            layout=self.layout,
            topic=topic.source,
            life=topic.life,
            partition=number,
            chosen_stem=self.layout.chosen_stem(self.restore_id, topic.target, number),
            stems=frozenset(self._stems(topic.source, partition)),
        )

    def _stems(self, source: str, partition: PartitionPlan) -> Iterator[str]:
        """Yield the common beginnings of keys of objects that may be read from copies."""
        number = partition.partition
        for stretch in partition.copies:
            copy = stretch.copy_of(source, number)
            if copy is not None:
                yield f"{self.layout.copy_prefix(copy)}{source}+{number}-"

    def _later(self, noted: TopicPlan, present: TopicPlan) -> Iterator[str]:
        """Return the objects that a continued restore leaves out: those put after it was planned."""
        if self.request.chooses(is_copied=noted.is_copied):  # objects without a chosen record are in no plan
            return
        pairs = zip(noted.partitions, present.partitions, strict=False)
        found = [later(one, other, self._source(noted, one)) for one, other in pairs if not one.problem]
        found += [(len(one.parts), one.records) for one in present.partitions[len(noted.partitions) :]]
        objects, records = sum(one for one, _ in found), sum(one for _, one in found)
        if objects:
            yield (
                f"{noted.target}: restore {self.restore_id} goes on as it was planned when it was begun, with"
                f" {spell_count(noted.records, 'record')} at most; the archive of {noted.source} has"
                f" {spell_count(objects, 'object')} with {spell_count(records, 'record')} behind that, which are not restored:"
                " take another --id for them"
            )


def _same(noted: object, present: object, what: str) -> None:
    if noted != present:
        raise _ForeignPlanError(f"has {noted!s:.200} as its {what}, not {present!s:.200}")
