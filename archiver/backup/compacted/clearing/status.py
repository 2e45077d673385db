"""Reads the status of compacted topics from storage alone: active instances, copies, next turns, and blocks of clearing."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Final

from archiver.archive.copies.history_doubts import history_doubts, tombstones_kept_ms
from archiver.archive.copies.missing_copies import newest_life, places_without_role_log
from archiver.archive.copies.moments import HeardMoment, InstanceNotes, NotedLimits, heard_by_place, read_notes
from archiver.archive.copies.role_logs import list_copied_topics
from archiver.archive.copies.roles import (
    HISTORY,
    EntryType,
    Generation,
    Holder,
    RoleLog,
    RolePlace,
)
from archiver.archive.format.control import MOMENTS
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import is_instance
from archiver.archive.format.store_clock import epoch_ms
from archiver.archive.index.inventory import read_inventory
from archiver.archive.notes.topics import (
    POLICY,
    TopicFact,
    is_compacted,
    read_newest_topic_facts,
    read_topic_history,
    says_compact,
)
from archiver.backup.compacted.clearing.clearing_rules import (
    NO_LOG,
    ClearingRules,
    LogBounds,
    Situation,
    holder_problems,
    is_left,
    judge_clearing,
    log_problems,
)
from archiver.backup.compacted.clearing.clearing_survey import AskLogs, ClearingSurvey
from archiver.backup.compacted.turn.turn_schedule import StoredTimes, TurnTimes, turn_due_ms, turn_stagger_ms
from archiver.config.model import ArchiverConfig, CompactedConfig
from archiver.config.quantities import spell_time
from archiver.errors import NotWholeError

_DAY_MS: Final = 86_400_000
_NEVER_MS: Final = 100 * 365 * _DAY_MS  # with such a delay nothing is cleared, so nothing is read

Heard = Mapping[RolePlace, Mapping[Generation, HeardMoment]]


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationStatus:
    """An existing generation, or the next one."""

    generation: Generation
    role: str  # active, catch-up or left
    since_ms: int  # of that role
    objects: int
    bytes: int
    heard_ms: int | None
    moment_ms: int | None  # the whole log of that time has been read
    kept: tuple[str, ...]  # reasons to keep it, if it is left


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """A partition in one life. `problem`: the fault of an unreadable role log; then all else is empty."""

    place: RolePlace
    is_live: bool  # no later life of the topic has this partition
    number: int
    type: EntryType | None = None
    holder: Holder = None
    since_ms: int | None = None  # when the current copy became current
    begun_ms: int | None = None  # when its generation was begun
    unsure_ms: int | None = None
    replaced: Holder = None
    candidate: Generation | None = None
    candidate_ms: int | None = None
    due_ms: int | None = None  # when the next turn is due, or was
    generations: tuple[GenerationStatus, ...] = ()
    log: LogBounds | None = None
    reached: int | None = None  # end of the current copy, by its objects; None: these were not read
    damage: tuple[str, ...] = ()  # of the current copy, if its objects were read
    alarms: tuple[str, ...] = ()  # other reasons that block clearing
    doubt: str = ""  # reasons why the history under `topics/`, if current, may lack deletions
    kept_ms: int | None = None  # delete.retention.ms, as archived
    limit_ms: int | None = None  # longest reading time: that, less compacted.margin
    problem: str = ""

    @property
    def lag(self) -> int | None:
        """Offsets of the log that the current copy lacks; None if no cluster was asked."""
        if self.log is None or not self.log.is_known or self.reached is None or not self.is_live:
            return None
        return max(0, self.log.log_end - self.reached)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactedStatus:
    """The status of all compacted topics."""

    now_ms: int
    partitions: tuple[PartitionStatus, ...]
    heard_ms: Mapping[str, int | None]  # time of the last note of each instance
    missing: tuple[RolePlace, ...]  # partitions of compacted topics without any copy
    problems: tuple[str, ...]  # of unreadable facts
    takeover_ms: int
    limits: str  # the source of the limits


@dataclass(slots=True)
class StatusReader:
    """Reads the status. `ask_logs` None: from storage alone, and objects only if a deletion is possible and `asks_objects` is set.

    `takes_noted`: use the limits in the instances' notes, for lack of a configuration.
    """

    archive: Archive
    config: ArchiverConfig
    now_ms: int
    ask_logs: AskLogs | None = None
    asks_objects: bool = True
    takes_noted: bool = False

    def read(self, topics: re.Pattern[str]) -> CompactedStatus:
        """Read the status of topics with matching names."""
        problems: list[str] = []
        names = {name for name in list_copied_topics(self.archive) if topics.fullmatch(name)}
        facts, told = _facts_of(self.archive, topics)
        problems += told
        notes = {one: read_notes(self.archive, one, problems.append) for one in self._instances()}
        limits = self._take_limits(notes)
        heard = heard_by_place(notes)
        survey = self._survey(facts)
        surveyed = [one for name in sorted(names) for one in survey.survey(name, self.now_ms)]
        known = {one.place for one in surveyed}
        doubts = self._doubts(surveyed, facts)
        return CompactedStatus(
            now_ms=self.now_ms,
            partitions=tuple(
                replace(
                    self._partition(one, facts.get(one.place.topic), heard, survey.rules),
                    doubt=doubts.get(one.place, ""),
                )
                for one in surveyed
            ),
            heard_ms={one: _ms_or_none(told.heard_at) for one, told in notes.items()},
            missing=tuple(places_without_role_log(self.config, facts, known)),
            problems=tuple(problems),
            takeover_ms=self.config.compacted.takeover_ms,
            limits=limits,
        )

    def _take_limits(self, notes: Mapping[str, InstanceNotes]) -> str:
        """Use the last limits in an instance's note, if requested. Returns the source of the limits."""
        if not self.takes_noted:
            return "of the configuration"
        told = [(one.limits.heard_at, name, one.limits.limits) for name, one in notes.items() if one.limits]
        if not told:
            return "defaults: no instance has noted any"
        at, name, limits = max(told, key=lambda one: one[:2])
        self.config = self.config.model_copy(update={"compacted": _with_limits(self.config.compacted, limits)})
        return f"as instance {name} noted at {spell_time(epoch_ms(at))}"

    def _doubts(self, surveyed: Iterable[Situation], facts: Mapping[str, TopicFact]) -> dict[RolePlace, str]:
        """Return why the current history of partitions may lack deletions."""
        places = [one.place for one in surveyed if not one.problem and one.entry.holder == HISTORY]
        names = {place.topic for place in places} & facts.keys()
        if not names:
            return {}
        inventory = read_inventory(self.archive, names.__contains__, use=self.config.storage.index)
        found: dict[RolePlace, str] = {}
        for place in places:
            if place.topic in names and place.life < len(facts[place.topic].lives):
                lineage = facts[place.topic].lineage(place.life, place.partition)
                joined = {place.partition: inventory.join(place.topic, place.partition, lineage)[0]}
                history = read_topic_history(self.archive, place.topic)
                told = history_doubts(place.topic, place.life, joined, self.archive.layout, history)
                found[place] = told.get(place.partition, "")
        return found

    def _survey(self, facts: Mapping[str, TopicFact]) -> ClearingSurvey:
        """Return a survey that decides as a clearing does; without a cluster, by the archived policies."""
        compacted = self.config.compacted
        delay_ms = compacted.clear_delay_ms if self.asks_objects else _NEVER_MS
        rules = ClearingRules(delay_ms=delay_ms, keep_generations=compacted.keep_generations)
        pin_ms, asks_all = self.config.restores.pin_ms, self.ask_logs is not None
        ask = self.ask_logs or partial(archived_logs, facts)
        return ClearingSurvey(self.archive, rules, pin_ms, ask, asks_all=asks_all)

    def _instances(self) -> list[str]:
        there = self.archive.store.list_directories(self.archive.layout.control_prefix(MOMENTS))
        return sorted({*filter(is_instance, there), *self.config.compacted.instances})

    def _partition(self, one: Situation, fact: TopicFact | None, heard: Heard, rules: ClearingRules) -> PartitionStatus:
        place, log = one.place, one.role_log
        is_live = fact is None or newest_life(fact, place.partition) == place.life
        if one.problem:
            return PartitionStatus(place=place, is_live=is_live, number=log.number, problem=one.problem)
        entry, copy = one.entry, one.copy
        # No process works on an ended life, nor begins a copy once the topic is no longer compacted.
        candidate, kept_ms = (
            entry.open_candidate if is_live else None,
            tombstones_kept_ms((fact.effective or fact.configs) if fact else {}),
        )
        has_turns = is_live and (fact is None or is_compacted(fact) is not False)
        return PartitionStatus(
            place=place,
            is_live=is_live,
            number=log.number,
            type=entry.type,
            holder=entry.holder,
            since_ms=None if entry.switched is None else log.put_ms(entry.switched),
            begun_ms=None if copy is None else log.put_ms(copy.generation.number),
            unsure_ms=None if entry.broke is None else log.put_ms(entry.broke),
            replaced=entry.replaced,
            candidate=candidate,
            candidate_ms=None if candidate is None else log.put_ms(candidate.number),
            due_ms=self._due_ms(log, heard, is_damaged=bool(holder_problems(one))) if has_turns else None,
            generations=tuple(_generations(one, heard, rules)),
            log=one.log,
            reached=one.reached if one.holder is not None else None,
            damage=holder_problems(one),
            alarms=(*one.doubts, *log_problems(one)),
            kept_ms=kept_ms,
            limit_ms=None if kept_ms is None else kept_ms - self._margin_ms(kept_ms),
        )

    def _margin_ms(self, kept_ms: int) -> int:
        margin_ms = self.config.compacted.margin_ms
        return kept_ms // 10 if margin_ms is None else margin_ms

    def _due_ms(self, log: RoleLog, heard: Heard, *, is_damaged: bool) -> int | None:
        config: CompactedConfig = self.config.compacted
        place = log.place
        stagger_ms = turn_stagger_ms(place.topic, place.partition, config.length_ms)
        times = TurnTimes(length_ms=config.length_ms, takeover_ms=config.takeover_ms, stagger_ms=stagger_ms)
        put_ms = {number: epoch_ms(moment) for number, moment in log.put_at.items()}
        heard_ms = {one: epoch_ms(told.heard_at) for one, told in heard.get(place, {}).items()}
        told = StoredTimes(
            now_ms=self.now_ms,
            first_seen_ms=min(put_ms.values()),
            put_ms=put_ms,
            heard_ms=heard_ms,
            damaged_since_ms=self.now_ms if is_damaged else None,
        )
        named = (log.entry.current, log.entry.candidate)
        instances = tuple(one.instance for one in named if one is not None)
        return turn_due_ms(log.entry, told, times, config.instances or instances)


def _with_limits(config: CompactedConfig, limits: NotedLimits) -> CompactedConfig:
    """Return a configuration with the limits of a note, each at most a hundred years: a note may have any number."""
    noted = {
        "log_backup_length_days": min(limits.length_ms, _NEVER_MS) / _DAY_MS,
        "takeover_ms": min(limits.takeover_ms, _NEVER_MS),
        "margin_ms": None if limits.margin_ms is None else min(limits.margin_ms, _NEVER_MS),
        "clear_delay_ms": min(limits.clear_delay_ms, _NEVER_MS),
        "keep_generations": limits.keep_generations,
    }
    return config.model_copy(update=noted)


def _ms_or_none(moment: datetime | None) -> int | None:
    return None if moment is None else epoch_ms(moment)


def _facts_of(archive: Archive, topics: re.Pattern[str]) -> tuple[dict[str, TopicFact], list[str]]:
    found = read_newest_topic_facts(archive, lambda name: topics.fullmatch(name) is not None)
    unreadable = [str(fact) for fact in found.values() if isinstance(fact, NotWholeError)]
    return {name: fact for name, fact in found.items() if isinstance(fact, TopicFact)}, unreadable


def _generations(one: Situation, heard: Heard, rules: ClearingRules) -> Iterator[GenerationStatus]:
    entry, log, kept = one.entry, one.role_log, judge_clearing(one, rules)
    left_ms = {copy.generation: copy.left_ms for copy in one.standing}
    named = {generation for generation in (entry.current, entry.open_candidate) if generation is not None}
    for generation in sorted({*one.objects, *named}, key=lambda one: (one.number, one.instance)):
        told = heard.get(one.place, {}).get(generation)
        is_gone_by = is_left(entry, generation)
        since = entry.switched or 0 if generation == entry.current else generation.number
        objects = one.objects.get(generation)
        yield GenerationStatus(
            generation=generation,
            role="active" if generation == entry.current else "left" if is_gone_by else "catch-up",
            since_ms=left_ms[generation] if is_gone_by else log.put_ms(since),
            objects=0 if objects is None else len(objects),
            bytes=0 if objects is None else int(objects.size.sum()),
            heard_ms=None if told is None else epoch_ms(told.heard_at),
            moment_ms=None if told is None or told.moment is None else told.moment.at_ms,
            kept=kept.get(generation, ()),
        )


def archived_logs(facts: Mapping[str, TopicFact], places: Iterable[RolePlace]) -> dict[RolePlace, LogBounds]:
    """Return each log with its archived policy, if that has `compact`: otherwise nothing contradicts a copy."""
    return {place: _archived_log(facts.get(place.topic), place) for place in places}


def _archived_log(fact: TopicFact | None, place: RolePlace) -> LogBounds:
    policy = ((fact.effective or fact.configs) if fact else {}).get(POLICY, "")
    is_live = fact is not None and newest_life(fact, place.partition) == place.life
    return replace(NO_LOG, policy=policy) if is_live and says_compact(policy) else NO_LOG
