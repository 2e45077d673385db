"""What `archiver ls` prints beside its rows: sums, an order, and the partitions of an empty topic."""

import json
from pathlib import Path

import pytest

from archiver.cli.main import main
from tests.golden.test_commands import Shop


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    shop = Shop(tmp_path)
    monkeypatch.setattr("archiver.archive.format.handle.open_archive", lambda _: shop.archive)
    return "s3://bucket/p"


def test_sums_are_those_of_the_rows(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ls", "--url", url, "--format", "json"]) == 3
    told = json.loads(capsys.readouterr().out)
    assert told["totals"]["records"] == sum(row["records"] for row in told["holdings"]) == 10
    assert told["totals"]["topics"] == 2
    (idle,) = [row for row in told["holdings"] if row["topic"] == "idle"]
    assert idle["partitions"] == 2
    assert main(["ls", "--url", url]) == 3
    lines = capsys.readouterr().out.splitlines()
    assert "offsets, at most" in lines[0]
    assert any(line.startswith("2 topics, 5 partitions: 10 records of ") for line in lines)
    assert "1970-01-01T00:00:35.000Z" in "".join(lines)


@pytest.mark.parametrize(
    ("order", "first"), [("name", "idle"), ("records", "orders"), ("time", "orders"), ("put", "orders")]
)
def test_rows_are_sorted(url: str, order: str, first: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["ls", "--url", url, "--sort", order, "--format", "json"])
    assert json.loads(capsys.readouterr().out)["holdings"][0]["topic"] == first


def test_records_with_a_key(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["cat", "orders", "--url", url, "--key", "k0", "--partition", "1", "--life", "0"])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["key"]["utf8"] for row in rows} == {"k0"}
    assert [row["offset"] for row in rows] == [0, 10, 30]
    assert rows[1]["time"] == "1970-01-01T00:00:10.000Z"
