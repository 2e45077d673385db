"""The time that a store tells with its answers: by it a sweep counts ages, and what tells no time is an error."""

from datetime import UTC, datetime

import pytest

from archiver.config.model import StorageConfig
from archiver.errors import StoreError
from archiver.store.s3 import S3Store

DATE = "Thu, 26 Nov 2026 04:52:55 GMT"


def told(date: str, monkeypatch: pytest.MonkeyPatch) -> datetime:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setattr(S3Store, "_ask", lambda *_: {"ResponseMetadata": {"HTTPHeaders": {"date": date}}})
    return S3Store(StorageConfig(url="s3://bucket", endpoint="http://127.0.0.1:9")).now()


def test_the_time_of_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(DATE, monkeypatch) == datetime(2026, 11, 26, 4, 52, 55, tzinfo=UTC)


@pytest.mark.parametrize(
    "date",
    ["", "yesterday", DATE.replace("GMT", "-0000"), DATE.replace(" GMT", ""), f"{DATE}, {DATE}"],
    ids=["none", "no date", "unknown zone", "no zone", "of two machines"],
)
def test_what_is_no_time_is_refused(date: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy that adds a Date of its own makes two of it."""
    with pytest.raises(StoreError, match="the store does not tell the time in its answers"):
        told(date, monkeypatch)
