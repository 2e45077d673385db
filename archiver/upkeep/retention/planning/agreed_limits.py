"""The limits that a sweep compares with: those of the last agreement, and longer ones that sweeps have seen since."""

from archiver.archive.format.handle import Archive
from archiver.archive.notes.applied_limits import AppliedLimits, LimitSource, change_applied
from archiver.errors import NotWholeError
from archiver.upkeep.retention.planning.limits import FOR_EVER, Limits, longest
from archiver.upkeep.retention.planning.topic_terms import TopicTerms


def limits_of_applied(applied: AppliedLimits | None) -> Limits:
    """Return the noted limits; without a note nothing was agreed to."""
    return FOR_EVER if applied is None else Limits(ms=applied.ms, bytes=applied.bytes, floor_ms=applied.floor_ms)


def cancel_shorter(archive: Archive, seen: AppliedLimits) -> None:
    """Note longer limits that a sweep has seen: they cancel an earlier agreement."""

    def decide(latest: AppliedLimits | None) -> AppliedLimits | None:
        limits = longest([limits_of_applied(latest), limits_of_applied(seen)])
        return None if latest is None else applied_of(seen.topic, seen.life, seen.whose, limits)

    change_applied(archive, seen.stream, decide)


def note_agreed(archive: Archive, terms: TopicTerms) -> str:
    """Note agreed limits. Returns why that failed; empty: they are noted."""
    agreed, refusal = applied_of_terms(terms), ""

    def decide(latest: AppliedLimits | None) -> AppliedLimits | None:
        nonlocal refusal
        now = limits_of_applied(latest)
        is_longer = latest != agreed and longest([terms.swept_by, now]) != terms.swept_by
        refusal = "another sweep has seen since that it keeps more; the next sweep plans it again" if is_longer else ""
        return None if is_longer else agreed

    try:
        change_applied(archive, agreed.stream, decide)
    except NotWholeError as error:  # of this topic: the others continue
        return str(error)
    return refusal


def applied_of_terms(terms: TopicTerms) -> AppliedLimits:
    return applied_of(terms.topic, terms.root, terms.whose, terms.limits)


def applied_of(topic: str, life: int, whose: LimitSource, limits: Limits) -> AppliedLimits:
    return AppliedLimits(
        topic=topic, life=life, whose=whose, ms=limits.ms, bytes=limits.bytes, floor_ms=limits.floor_ms
    )
