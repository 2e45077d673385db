"""What `__consumer_offsets` is swept by: the configuration's own limit, noted and lengthened as those of topics are."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import ValidationError

from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.archive.notes.applied_limits import AppliedLimits, LimitSource, change_applied
from archiver.archive.notes.topic_changes import record_topic
from archiver.config.model import ArchiverConfig
from archiver.config.retention import RetentionConfig
from archiver.kafka.groups.group_positions import OFFSETS_TOPIC
from archiver.upkeep.retention.planning.cluster import LiveCluster, LiveTopic
from archiver.upkeep.retention.planning.limits import FOR_EVER, Limits
from archiver.upkeep.retention.planning.sweep_survey import SurveyedTopics, SweepSurvey
from tests.support.memory_store import MemoryStore

DAY_MS = 24 * 3600 * 1000
COMPACTED = {"cleanup.policy": "compact", "retention.ms": "604800000", "retention.bytes": "-1"}
TO_NOTE = "what it keeps was never noted before; a sweep that is no dry run notes it, and the next one goes by it"


@dataclass
class Site:
    """An archived offsets topic, and the cluster that has it."""

    effective: dict[str, str] = field(default_factory=lambda: dict(COMPACTED))
    archive: Archive = field(default_factory=lambda: Archive(MemoryStore(), Layout()))

    def __post_init__(self) -> None:
        record_topic(self.archive, topic=OFFSETS_TOPIC, topic_id="O", cluster_id="c", partitions=1, configs={})

    def survey(self, **retention: Any) -> SurveyedTopics:  # noqa: ANN401
        tree = {"storage": {"url": "s3://bucket"}, "retention": {"grace": 0, **retention}}
        live = LiveTopic(topic_id="O", effective=self.effective, log_starts={0: 0})
        told = LiveCluster(cluster_id="c", topics={OFFSETS_TOPIC: live}, untold={})
        survey = SweepSurvey(self.archive, ArchiverConfig.model_validate(tree), lambda _: told)
        seen = survey.survey()
        survey.note(seen.news)
        return seen

    def why(self, **retention: Any) -> str:  # noqa: ANN401
        (kept,) = self.survey(**retention).kept
        return kept.why


def test_without_a_limit_it_stays_for_ever_whatever_the_topic_says() -> None:
    for policy in ("compact", "compact,delete", "delete"):
        site = Site(effective={**COMPACTED, "cleanup.policy": policy, "retention.ms": "1000"})
        for _ in range(2):
            assert site.why() == "it is kept for ever: it tells where groups stood as of any time (retention.groups)"


def test_a_limit_is_noted_first_and_then_goes_by_itself_alone() -> None:
    site = Site(effective={**COMPACTED, "cleanup.policy": "compact,delete", "retention.ms": "1000"})
    assert site.why(groups="30d") == TO_NOTE
    (terms,) = site.survey(groups="30d").terms
    assert terms.limits == Limits(ms=30 * DAY_MS)
    assert terms.swept_by == FOR_EVER  # so that somebody has to agree to the first sweep
    applied = AppliedLimits(
        topic=OFFSETS_TOPIC, life=0, whose=LimitSource.TOPIC, ms=30 * DAY_MS, bytes=None, floor_ms=0
    )
    change_applied(site.archive, applied.stream, lambda _: applied)
    (terms,) = site.survey(groups="20d").terms
    assert (terms.limits, terms.swept_by) == (Limits(ms=20 * DAY_MS), Limits(ms=30 * DAY_MS))


def test_a_limit_is_a_duration_that_lasts() -> None:
    assert RetentionConfig().groups_ms is None
    with pytest.raises(ValidationError):
        RetentionConfig.model_validate({"groups": 0})
