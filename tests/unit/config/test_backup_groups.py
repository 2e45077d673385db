"""What the configuration says of the positions of consumer groups."""

import pytest

from archiver.backup.service.run_backup import _positions
from archiver.config.model import ArchiverConfig
from archiver.errors import UsageError


def config_of(groups: str, *exclude: str) -> ArchiverConfig:
    return ArchiverConfig.model_validate({
        "storage": {"url": "s3://bucket"},
        "topics": {"include": ["orders"], "exclude": list(exclude)},
        "backup": {"groups": groups, "groups-interval": "5s"},
    })  # fmt: skip


@pytest.mark.parametrize(
    ("exclude", "is_excluded"),
    [([], False), (["orders"], False), (["__consumer_offsets"], True), (["__.*"], True)],
)
def test_exclude_wins_over_auto(exclude: list[str], is_excluded: bool) -> None:
    policy = _positions(config_of("auto", *exclude))
    assert (policy.interval_ms, policy.is_topic_excluded) == (5000, is_excluded)


def test_topic_contradicts_its_exclusion() -> None:
    with pytest.raises(UsageError, match=r"topics\.exclude leaves it out"):
        _positions(config_of("topic", "__.*"))
