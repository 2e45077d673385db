"""The section `retention`: lists of entries for some topics, and what counts for a topic."""

import json
from pathlib import Path

import pytest

from archiver.cli.main import main
from archiver.config.load import load_config
from archiver.config.retention import RetentionConfig
from archiver.errors import UsageError

DAY_MS = 24 * 3600 * 1000
FULL = r"""
storage.url: s3://bucket
retention:
  floor: 1d
  overrides:
  - topics: audit\..*
    floor: 30d
    factor: 2.5
  - {topics: "audit.+", grace: 1h, ms: 3d, bytes: 1GiB}
  gone:
  - topics: scratch
    ms: 90d
  - {topics: .*, ms: 1w}
  fixed: {ms: 30d, segment-ms: 1h}
retention.fixed.segment-bytes: 5
"""


def load(folder: Path, text: str) -> RetentionConfig:
    path = folder / "archive.yaml"
    path.write_text(text)
    return load_config(path).retention


def test_every_key(tmp_path: Path) -> None:
    found = load(tmp_path, FULL)
    first, second = found.overrides
    assert (first.topics, first.floor_ms, first.factor, first.grace_ms) == (r"audit\..*", 30 * DAY_MS, 2.5, None)
    assert (second.grace_ms, second.ms, second.bytes, second.floor_ms) == (3_600_000, 3 * DAY_MS, 1024**3, None)
    assert [(one.topics, one.ms) for one in found.gone] == [("scratch", 90 * DAY_MS), (".*", 7 * DAY_MS)]
    assert (found.fixed.ms, found.fixed.bytes) == (30 * DAY_MS, None)
    assert (found.fixed.segment_ms, found.fixed.segment_bytes) == (3_600_000, 5)


def test_what_counts_for_a_topic_is_the_section_and_the_first_entry_that_matches(tmp_path: Path) -> None:
    found = load(tmp_path, FULL)
    dotted, other, none = (found.of_topic(name) for name in ("audit.x", "auditing", "orders"))
    assert (dotted.floor_ms, dotted.factor, dotted.grace_ms) == (30 * DAY_MS, 2.5, found.grace_ms)
    assert (dotted.fixed.ms, dotted.fixed.bytes) == (30 * DAY_MS, None)
    assert (other.floor_ms, other.factor, other.grace_ms) == (DAY_MS, 1.0, 3_600_000)
    assert (other.fixed.ms, other.fixed.bytes, other.fixed.segment_bytes) == (3 * DAY_MS, 1024**3, 5)
    assert none == found
    assert [found.gone_ms_of(name) for name in ("scratch", "scratch2")] == [90 * DAY_MS, 7 * DAY_MS]


def test_zero_is_a_value(tmp_path: Path) -> None:
    """It is not taken for one that was not given."""
    text = "storage.url: s3://bucket\nretention: {floor: 1d, overrides: [{topics: a, floor: 0}]}\n"
    assert load(tmp_path, text).of_topic("a").floor_ms == 0


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", False),
        ("floor: 1d", False),
        ("gone: [{topics: a, ms: 1d}]", False),
        ("fixed.segment-ms: 1d", False),
        ("overrides: [{topics: a, floor: 1d}]", False),
        ("fixed.ms: 1d", True),
        ("fixed.bytes: 1", True),
        ("overrides: [{topics: a, floor: 1d}, {topics: b, bytes: 1}]", True),
    ],
)
def test_whether_there_is_anything_to_go_by_without_a_cluster(tmp_path: Path, line: str, says: bool) -> None:
    assert load(tmp_path, f"storage.url: s3://bucket\nretention:\n  {line}\n").says_fixed is says


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            "overrides:\n  - topics: a(\n    floor: 1d",
            "archive.yaml:4: retention.overrides[0].topics: is not a regular",
        ),
        ("overrides:\n  - topics: a\n    floor: 5m", "archive.yaml:5: retention.overrides[0].floor: is not like 5min"),
        (
            "overrides:\n  - {topics: a, floor: 1d}\n  - floor: 1d",
            "archive.yaml:5: retention.overrides[1].topics: is req",
        ),
        (
            "overrides:\n  - topics: a\n    flor: 1d",
            "archive.yaml:5: unknown key in retention.overrides[0]; it takes topics,",
        ),
        (
            "overrides:\n  - topics: a\n    factor: 0.5",
            "archive.yaml:5: retention.overrides[0].factor: Input should be gr",
        ),
        (
            "overrides:\n  - topics: a\n    topics: b",
            "archive.yaml:5: retention.overrides[0].topics is given a second time",
        ),
        ("overrides:\n  - topics: a", "archive.yaml:4: retention.overrides: gives no value but topics"),
        ("overrides:\n  - a", "archive.yaml:4: retention.overrides: must be a mapping of keys to values"),
        (
            "overrides: a",
            "archive.yaml:3: retention.overrides is a list: each entry begins with '- ', and takes topics, fl",
        ),
        ("overrides:\n  - {topics: a, floor: {b: c}}", "archive.yaml:4: retention.overrides[0].floor is no mapping"),
        ("overrides:\n  - {topics: a, [b]: c}", "archive.yaml:4: unknown key in retention.overrides[0]"),
        (
            "overrides:\n  - {topics: '${NO_SUCH}', ms: 1d}",
            "archive.yaml:4: retention.overrides[0].topics: the environment",
        ),
        ("gone:\n  - topics: a", "archive.yaml:4: retention.gone[0].ms: is required"),
        ("gone:\n  - [{topics: a, ms: 1d}]", "archive.yaml:3: retention.gone is no mapping"),
        ("gone:\n  - {topics: a, ms: 0}", "archive.yaml:4: retention.gone[0].ms: Input should be greater than 0"),
        ("fixed: {ms: 0}", "archive.yaml:3: retention.fixed.ms: Input should be greater than 0"),
        ("fixed: {bytes: 0}", "archive.yaml:3: retention.fixed.bytes: Input should be greater than 0"),
        ("keep:\n  - a\n  - b(", "archive.yaml:5: retention.keep: is not a regular expression"),
    ],
)
def test_what_is_wrong_is_named_with_entry_key_and_line(tmp_path: Path, lines: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(tmp_path, f"storage.url: s3://bucket\nretention:\n  {lines}\n")
    assert message in str(caught.value).replace(str(tmp_path / "archive.yaml"), "archive.yaml")


def test_a_variable_in_an_entry_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEPT", "3d")
    text = "storage.url: s3://bucket\nretention: {gone: [{topics: a, ms: '${KEPT}'}]}\n"
    assert load(tmp_path, text).gone_ms_of("a") == 3 * DAY_MS


def test_what_is_shown_means_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "archive.yaml"
    first = load(tmp_path, FULL)
    assert main(["config", "show", "-c", str(path)]) == 0
    assert load(tmp_path, capsys.readouterr().out) == first
    assert main(["config", "show", "-c", str(path), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["retention.gone"] == [
        {"topics": "scratch", "ms": "90d"},
        {"topics": ".*", "ms": "1w"},
    ]
