"""Reads and writes a restore's notes on each topic: its plan, its claims, its end. Used by targets and their survey."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from archiver.archive.format.control import FACT_FORMAT, RESTORES, Fact, append_fact, read_fact
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import is_partition_number, is_restore_id
from archiver.archive.notes.restore_streams import ListedNote, list_restore_notes, read_each, required
from archiver.archive.restores.finished_restores import FINISHED, PLAN, REPARTITION
from archiver.errors import NotWholeError, UsageError
from archiver.process.running.failpoints import reach
from archiver.process.running.workers import side_by_side
from archiver.process.values.json_values import as_number, as_object, spelled_number
from archiver.restore.plan.claims import PARTITION_CLAIMS, TOPIC_CLAIMS, PartitionClaim, TopicClaim
from archiver.restore.plan.noted_plan import plan_from_fact, plan_to_fact
from archiver.restore.plan.noted_target import is_here, is_of
from archiver.restore.plan.restore_plan import TopicPlan

_REPLACED = "replaced"  # a stream beside those of a topic's partitions
_REPLICATION_FACTOR = "replication_factor"  # of a topic that is replaced
_ENDS = "ends"  # of a topic that is appended to: the ends of its partitions when that was planned
_NOTHING: Mapping[str, Mapping[str, object]] = {}
_NO_ENDS: Mapping[str, Mapping[int, int]] = {}
_NOTES_AT_ONCE = 16
_MOST_REPLICAS = 2**15 - 1
Terms = Mapping[str, object]
_Noted = tuple[ListedNote, Fact]


class RestoreNotes:
    """The notes of all runs of a restore on its targets, read together: one listing, and each fact once.

    Targets are given as {topic: topic id}; notes on an earlier topic of that name are not returned.
    """

    def __init__(self, archive: Archive, restore_id: str, cluster_id: str) -> None:
        self.archive = archive
        self._cluster_id = cluster_id  # of the targets
        self.restore_id = restore_id
        self._parent = f"{RESTORES}/{restore_id}"
        self._read: dict[ListedNote, Fact] = {}  # facts never change

    def claims(self, targets: Mapping[str, str]) -> dict[str, dict[int, PartitionClaim]]:
        """Return the claims on these very topics, by topic and partition."""
        claims: dict[str, dict[int, PartitionClaim]] = {topic: {} for topic in targets}
        for note, fact in self._latest(targets, is_partition_number):
            claim = PARTITION_CLAIMS.read(fact, note.stream)  # also of another topic: a broken note hides nothing
            if self._is_of(fact, targets[note.target]):
                claims[note.target][int(note.name)] = claim
        return claims

    def topic_claims(self, targets: Mapping[str, str]) -> dict[str, TopicClaim]:
        """Return the claims on all partitions of these very topics at once, by topic."""
        found = self._latest(targets, REPARTITION.__eq__)
        claims = [(note.target, fact, TOPIC_CLAIMS.read(fact, note.stream)) for note, fact in found]
        return {topic: claim for topic, fact, claim in claims if self._is_of(fact, targets[topic])}

    def finished(self, targets: Mapping[str, str]) -> set[str]:
        """Return the finished ones of these very topics: filled, read back, their configs set."""
        return {note.target for note, _ in self._latest_of(targets, FINISHED.__eq__)}

    def begun_by_others(self, targets: Mapping[str, str]) -> dict[str, str]:
        """Return those of these very topics that another restore has begun and not finished: {topic: id of that restore}."""
        begun: dict[str, str] = {}
        ids = self.archive.store.list_directories(self.archive.layout.control_prefix(RESTORES)) if targets else ()
        for restore_id in (one for one in ids if one != self.restore_id and is_restore_id(one)):
            other = RestoreNotes(self.archive, restore_id, self._cluster_id)
            named = set(self.archive.store.list_directories(self.archive.layout.control_prefix(other._parent)))
            if mine := {name: one for name, one in targets.items() if name in named}:
                planned = {note.target for note, _ in other._latest_of(mine, PLAN.__eq__)}
                begun |= dict.fromkeys(planned - other.finished(mine), restore_id)
        return begun

    def plans(self, targets: Mapping[str, str], terms: Terms) -> dict[str, TopicPlan]:
        """Return the noted plans of exactly these topics, by target: a later run carries out the first run's plan.

        `terms` are those of the present request. Raises UsageError if they differ.
        """
        plans: dict[str, TopicPlan] = {}
        for note, fact in self._latest_of(targets, PLAN.__eq__):
            if fact.get("terms") != terms:
                raise UsageError(
                    f"restore {self.restore_id} into {note.target} was begun with other options (life, partitions,"
                    " offsets, times, --where, --latest-per-key, --repartition, --skip-damaged, --retention); repeat those, or"
                    " take another --id and an empty target"
                )
            plans[note.target] = plan_from_fact(self.archive, note.stream, fact)
        return plans

    def check_earlier_plans(self, targets: Mapping[str, str]) -> None:
        """Raise NotWholeError if an earlier plan of these very topics has other objects of a partition than the newest one.

        A later plan changes only partitions that the plan before it refused. Otherwise, a forged note could leave records out.
        """
        for note, fact in self._latest(targets, PLAN.__eq__):
            stream, topic = note.stream, note.target
            facts = [read_fact(self.archive, stream, number) for number in range(note.listed.number)]
            earlier = [plan_from_fact(self.archive, stream, one) for one in facts if self._is_of(one, targets[topic])]
            newest = plan_from_fact(self.archive, stream, fact).partitions if earlier else ()
            held = {one.partition: one for one in newest}
            for one in (one for plan in earlier for one in plan.partitions if not one.problem):
                if one.partition not in held or not one.reads_as(held[one.partition]):
                    raise NotWholeError(
                        f"control/{stream}/ (the newest): has other objects of {topic}-{one.partition} than an earlier plan"
                        " there, and no run of this restore has noted that. Nothing was changed. See who wrote it, and"
                        " delete it, or take another --id and an empty target"
                    )

    def planned_ends(self, targets: Mapping[str, str]) -> dict[str, Mapping[int, int]]:
        """Return the partition ends of topics that are appended to, when the first plan was noted. Raises NotWholeError."""
        plans = self._latest_of(targets, PLAN.__eq__)
        return {note.target: _ends_of(fact, note.stream) for note, fact in plans if fact.get("appends")}

    def note_plans(
        self,
        plans: Iterable[TopicPlan],
        targets: Mapping[str, str],
        terms: Terms,
        ends: Mapping[str, Mapping[int, int]] = _NO_ENDS,
    ) -> dict[str, TopicPlan]:
        """Note the plans of topics. Returns the valid plans: of two concurrent runs, the first one's.

        A later plan changes only partitions that the plan before it refused. `ends`: of topics that are appended to; of a partition
        those count that the first plan with its objects had.
        """

        def note(plan: TopicPlan) -> TopicPlan:
            topic_id = targets[plan.target]
            stream = f"{self._parent}/{plan.target}/{PLAN}"
            holds = plan
            planned: dict[str, object] = {_ENDS: ends[plan.target]} if plan.target in ends else {}

            def decide(latest: Fact | None) -> Fact | None:
                nonlocal holds, planned
                if latest is not None and self._is_of(latest, topic_id):
                    noted = plan_from_fact(self.archive, stream, latest)
                    holds = noted.mended_by(plan)
                    if holds == noted:
                        return None
                    unwritten = {one.partition for one in noted.partitions if one.problem}
                    news = {number: end for number, end in ends.get(plan.target, {}).items() if number in unwritten}
                    planned = {_ENDS: {**_ends_of(latest, stream), **news}} if _ENDS in latest else {}
                as_fact = plan_to_fact(self.archive, stream, holds)
                return {**self._place(topic_id), "terms": terms, **planned, **as_fact}

            append_fact(self.archive, stream, decide)
            reach("plan.noted")
            return holds

        return {plan.target: plan for plan in side_by_side(_NOTES_AT_ONCE, note, plans, "plans")}

    def replaced(self, topics: Collection[str]) -> dict[str, str]:
        """Return the topic ids from before this restore: {topic: id}; empty: the topic did not exist."""
        return {note.target: str(fact.get("target_topic_id", "")) for note, fact in self._replaced(topics)}

    def replicas_before(self, topics: Collection[str]) -> dict[str, int]:
        """Return the noted former number of replicas of topics that this restore has begun to recreate."""
        found = self._replaced(topics)
        return {note.target: _replicas(fact, note.stream) for note, fact in found if _REPLICATION_FACTOR in fact}

    def _replaced(self, topics: Collection[str]) -> Iterator[_Noted]:
        return (one for one in self._latest(topics, _REPLACED.__eq__) if is_here(one[1], self._cluster_id))

    def note_replaced(self, targets: Mapping[str, str], replicas: Mapping[str, int]) -> None:
        """Note, before anything is deleted or created, the topics to recreate, their ids, and numbers of replicas.

        Any later topic of that name is another one.
        """
        self._note_each(_REPLACED, targets, {name: {_REPLICATION_FACTOR: count} for name, count in replicas.items()})

    def note_finished(self, targets: Mapping[str, str]) -> None:
        """Note that these topics were finished, once each. From then on a rerun leaves them alone."""
        self._note_each(FINISHED, targets)

    def _note_each(
        self, name: str, targets: Mapping[str, str], further: Mapping[str, Mapping[str, object]] = _NOTHING
    ) -> None:
        def note(target: tuple[str, str]) -> None:
            ours = {**self._place(target[1]), **further.get(target[0], {})}
            append_fact(
                self.archive,
                f"{self._parent}/{target[0]}/{name}",
                lambda latest: None if latest == ours else ours,
            )
            reach(f"{name}.noted")

        list(side_by_side(_NOTES_AT_ONCE, note, targets.items(), name))

    def _place(self, topic_id: str) -> dict[str, object]:
        return {"format": FACT_FORMAT, "target_cluster_id": self._cluster_id, "target_topic_id": topic_id}

    def _is_of(self, fact: Fact, topic_id: str) -> bool:
        return is_of(fact, self._cluster_id, topic_id)

    def _latest_of(self, targets: Mapping[str, str], is_wanted: Callable[[str], bool]) -> Iterator[_Noted]:
        """Yield the newest facts that are of exactly these topics."""
        found = self._latest(targets, is_wanted)
        return ((note, fact) for note, fact in found if self._is_of(fact, targets[note.target]))

    def _latest(self, topics: Collection[str], is_wanted: Callable[[str], bool]) -> Iterator[_Noted]:
        """Yield the newest fact of each stream of these topics that has a wanted name; no other fact is read."""
        listed = list_restore_notes(self.archive, self._parent) if topics else ()
        newest = {one.stream: one for one in listed if one.target in topics and is_wanted(one.name)}
        unread = [one for one in newest.values() if one not in self._read]
        for note, fact in read_each(self.archive, unread, lambda _, fact: fact):
            self._read[note] = required(fact)
        yield from ((note, self._read[note]) for note in newest.values())


def _ends_of(fact: Fact, stream: str) -> Mapping[int, int]:
    try:
        return {spelled_number(name): as_number(end) for name, end in as_object(fact[_ENDS]).items()}
    except (KeyError, ValueError) as error:
        raise NotWholeError(
            f"control/{stream}: does not tell where the target ended ({error!r:.300}); bring its older version back, or take"
            " another --id and an empty target"
        ) from error


def _replicas(fact: Fact, stream: str) -> int:
    try:
        return as_number(fact[_REPLICATION_FACTOR], 1, _MOST_REPLICAS)
    except ValueError as error:
        raise NotWholeError(f"control/{stream}: does not tell how many replicas ({error}); use another --id") from error
