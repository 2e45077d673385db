"""Who may run as an instance."""

import pytest

from archiver.backup.compacted.work.run_instance import refuse_stranger_instance
from archiver.config.model import ArchiverConfig
from archiver.errors import UsageError


def config_of(*, enabled: bool) -> ArchiverConfig:
    return ArchiverConfig.model_validate(
        {
            "kafka": {"bootstrap.servers": "127.0.0.1:9092"},
            "storage": {"url": "s3://bucket/prefix"},
            "compacted": {"enabled": enabled, "instances": ["a", "b"]},
        }
    )


def test_only_the_two_that_are_named_run() -> None:
    refuse_stranger_instance(config_of(enabled=True), "b")
    with pytest.raises(UsageError, match=r"--instance c: is none of compacted\.instances, a and b"):
        refuse_stranger_instance(config_of(enabled=True), "c")


def test_none_runs_where_copies_are_not_wanted() -> None:
    with pytest.raises(UsageError, match=r"compacted\.enabled: is false"):
        refuse_stranger_instance(config_of(enabled=False), "a")
