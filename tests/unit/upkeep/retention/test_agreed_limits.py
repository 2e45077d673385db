"""What a sweep compares with: the longest limits since somebody agreed, against a reading of the whole story."""

import random
from collections.abc import Sequence
from typing import Any

import pytest

from archiver.archive.format.handle import Archive
from archiver.archive.notes.policies import NotedPolicy, note_policy
from archiver.config.model import ArchiverConfig
from archiver.upkeep.retention.planning.agreed_limits import (
    applied_of_terms,
    cancel_shorter,
    note_agreed,
)
from archiver.upkeep.retention.planning.limits import FOR_EVER, Limits
from archiver.upkeep.retention.planning.sweep_survey import SurveyedTopics
from archiver.upkeep.retention.planning.topic_terms import TopicTerms
from tests.support.memory_store import MemoryStore
from tests.unit.upkeep.retention.test_sweep import KilledError, MortalStore
from tests.unit.upkeep.retention.test_sweep_survey import HOUR, STORAGE, WEEK, Site, become

NO_GRACE = ArchiverConfig.model_validate({**STORAGE, "retention": {"grace": 0}})
FOR_EVER_MS = {**HOUR, "retention.ms": "-1"}
HOUR_MS, WEEK_MS = 3_600_000, 604_800_000


def see(site: Site) -> SurveyedTopics:
    """Do what a sweep does that is no dry run, as far as it notes what it sees."""
    seen = site.survey.survey()
    assert site.survey.note(seen.news, seen.longer) == []
    return seen


def see_twice(site: Site, *, is_held: bool) -> None:
    """See the topic as it is, on hold or not, and again when it is kept for an hour."""
    if is_held:
        site.hold_all()
    see(site)
    become(effective=HOUR)(site)
    if is_held:
        site.release()
    see(site)


def terms_now(site: Site) -> TopicTerms:
    (terms,) = site.survey.survey().terms
    return terms


@pytest.fixture
def agreed() -> Site:
    """Somebody has agreed to an hour."""
    site = Site(NO_GRACE)
    see(site)
    assert note_agreed(site.archive, terms_now(site)) == ""
    assert terms_now(site).swept_by == Limits(ms=HOUR_MS)
    return site


@pytest.mark.parametrize("is_held", [False, True])
def test_a_longer_policy_cancels_also_if_somebody_else_has_noted_it(agreed: Site, is_held: bool) -> None:
    become(effective=FOR_EVER_MS)(agreed)
    note_policy(agreed.archive, NotedPolicy(topic="t", topic_id="T", effective=FOR_EVER_MS, since_ms=1))
    see_twice(agreed, is_held=is_held)
    assert terms_now(agreed).swept_by == FOR_EVER


GONE_HOUR = {"gone": [{"topics": "t", "ms": "1h"}]}


@pytest.mark.parametrize(
    ("keeping", "is_there", "kept"),
    [
        ({**GONE_HOUR, "keep": ["t"]}, True, FOR_EVER),
        ({**GONE_HOUR, "keep": ["t"]}, False, FOR_EVER),
        ({"gone": []}, False, FOR_EVER),
        ({"gone": []}, True, Limits(ms=HOUR_MS)),
    ],
    ids=["keep", "keep-gone", "gone-without-entry", "not-gone"],
)
def test_a_configuration_that_keeps_everything_for_a_while_cancels_an_agreement(
    keeping: dict[str, Any], is_there: bool, kept: Limits
) -> None:
    """Limits of topics that are gone say nothing about one that the cluster has."""
    agreeing, other = (
        ArchiverConfig.model_validate({**STORAGE, "retention": {"grace": 0, **section}})
        for section in (GONE_HOUR, keeping)
    )
    site = Site(agreeing)
    see(site)
    site.is_there = is_there
    assert note_agreed(site.archive, terms_now(site)) == ""
    assert terms_now(site).swept_by == Limits(ms=HOUR_MS)
    site.configure(other)
    see(site)
    site.configure(agreeing)
    assert terms_now(site).swept_by == kept


def test_an_agreement_to_a_plan_of_before_does_not_undo_that(agreed: Site) -> None:
    """Between plan and agreement another sweep has seen a longer policy, which is over again."""
    planned = terms_now(agreed)
    become(effective=WEEK)(agreed)
    see(agreed)
    assert note_agreed(agreed.archive, planned) == (
        "another sweep has seen since that it keeps more; the next sweep plans it again"
    )
    become(effective=HOUR)(agreed)
    assert terms_now(agreed).swept_by == Limits(ms=WEEK_MS)


@pytest.mark.parametrize("dies_at", [(effect, is_done) for effect in range(2) for is_done in (False, True)])
def test_killed_at_any_effect_the_next_sweep_cancels_it(dies_at: tuple[int, bool]) -> None:
    """A policy that is noted is no news to the next sweep: what it cancels comes before it."""
    site = Site(NO_GRACE, store=MortalStore())
    see(site)
    assert note_agreed(site.archive, terms_now(site)) == ""
    become(effective=FOR_EVER_MS)(site)
    store = site.archive.store
    assert isinstance(store, MortalStore)
    store.effects, store.dies_at = 0, dies_at
    with pytest.raises(KilledError):
        see(site)
    store.dies_at = None
    see(site)
    become(effective=HOUR)(site)
    see(site)
    assert terms_now(site).swept_by == FOR_EVER


def test_limits_that_nobody_agreed_to_cancel_nothing() -> None:
    archive = Archive(MemoryStore(), Site().archive.layout)
    terms = TopicTerms(
        topic="t", name="t", topic_id="T", root=0, newest=0, whose=terms_now(Site()).whose, limits=FOR_EVER
    )
    cancel_shorter(archive, applied_of_terms(terms))
    assert list(archive.store.list("")) == []


# --- random stories


def longest_of(several: Sequence[tuple[int | None, int | None, int]]) -> Limits:
    """Written again: each of the two limits is the largest, and none where one of them was none."""
    ms, size = (
        None if any(one[at] is None for one in several) else max(one[at] or 0 for one in several) for at in (0, 1)
    )
    return Limits(ms=ms, bytes=size, floor_ms=max(one[2] for one in several))


def tell_story(rng: random.Random, steps: int) -> None:
    """A topic whose policy, hold and floor change; sweeps, dry runs, and agreements, in any order."""
    site, floor_ms, factor = Site(NO_GRACE), 0, 1
    is_held = False
    since: list[tuple[int | None, int | None, int]] | None = None  # None: nobody has agreed yet
    policy: tuple[int | None, int | None] = (HOUR_MS, None)
    noted_policy = policy
    for _ in range(steps):
        match rng.randrange(7):
            case 0 | 1:
                policy = rng.choice((5, 70, 900, None)), rng.choice((None, None, 5, 70))
                spelled = ["-1" if one is None else str(one) for one in policy]
                become(effective={**HOUR, "retention.ms": spelled[0], "retention.bytes": spelled[1]})(site)
            case 2:
                floor_ms, factor = rng.choice((0, 0, 30)), rng.choice((1, 1, 3))
                section = {"grace": 0, "floor": f"{floor_ms}ms" if floor_ms else 0, "factor": factor}
                site.configure(ArchiverConfig.model_validate({**STORAGE, "retention": section}))
            case 3:
                site.release() if is_held else site.hold_all()
                is_held = not is_held
            case _:
                is_dry = rng.randrange(3) == 0
                seen = site.survey.survey()
                factored = [None if one is None else factor * one for one in policy]
                now = (factored[0], factored[1], floor_ms)
                is_swept = not is_held and policy != (None, None)
                assert len(seen.terms) == is_swept, (seen.kept, policy)
                for terms in seen.terms:
                    assert terms.limits == longest_of([now])
                    wanted = longest_of([*([(None, None, 0)] if since is None else since), now])
                    assert terms.swept_by == wanted or (terms.swept_by.keeps_all and wanted.keeps_all)
                if is_dry:
                    continue
                assert site.survey.note(seen.news, seen.longer) == []
                if since is not None and (is_swept or policy != noted_policy):
                    since.append(now if is_swept else (factored[0], factored[1], 0))
                noted_policy = policy
                if seen.terms and rng.randrange(3) == 0:
                    assert note_agreed(site.archive, seen.terms[0]) == ""
                    since = [now]


def test_the_longest_limits_since_the_last_agreement_count(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(60):
        tell_story(rng, 25)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_longest_limits_since_the_last_agreement_count_in_very_many_stories(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(2_000):
        tell_story(rng, 25)
