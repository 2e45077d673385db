"""`archiver compacted clear`: what it takes; and the command that it replaces."""

from pathlib import Path

import pytest

from archiver.cli.main import main


@pytest.mark.parametrize("rest", [[], ["orders", "--yes"], ["--yes", "-c", "archive.yaml", "orders"]])
def test_accept_is_refused_with_the_command_that_replaces_it(
    rest: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compacted", "accept", *rest]) == 2
    told = capsys.readouterr().err
    assert "compacted accept is no command any more" in told
    assert "`archiver compacted clear --force TOPIC-PARTITION` deletes" in told


@pytest.mark.parametrize("place", ["orders", "orders-", "orders-x", "-3"])
def test_a_place_is_a_topic_and_a_partition(place: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = tmp_path / "archive.yaml"
    config.write_text("storage: {url: s3://bucket/prefix}\nkafka: {bootstrap.servers: 127.0.0.1:1}\n")
    assert main(["compacted", "clear", "--force", "-c", str(config), "--", place]) == 2
    assert "give TOPIC-PARTITION, as in orders-0" in capsys.readouterr().err
