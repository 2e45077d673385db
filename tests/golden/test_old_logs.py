"""Message sets of old Kafka libraries, and logs of old brokers: what we read is what the library and the consumer of that version read.

Written by tests/golden/make_old.py.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from archiver.codec.batch import decode_batches
from tests.support.frames import records_of
from tests.support.imported_logs import import_logs, imported_records
from tests.support.records import Rec

HERE = Path(__file__).parent
SETS = {path.stem: path for path in sorted((HERE / "old-sets-1").iterdir())}
LOGS = {path.stem: path for path in sorted((HERE / "old-logs-1").glob("*.jsonl"))}
BOTH_TIMES = {"0.10.2.2", "0.11.0.3"}  # earlier libraries write no LogAppendTime
MAGICS = {"0.8.2.2": {0}, "0.9.0.1": {0}, "0.10.0.1": {1}, "0.10.2.2": {0, 1}, "0.11.0.3": {0, 1, 2}}
CODECS = {"NONE", "GZIP", "SNAPPY", "LZ4"}


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def listed(line: dict[str, Any]) -> list[Rec]:
    return [Rec(offset, time, kind, spelled(key), spelled(value)) for offset, time, kind, key, value in line["records"]]


def spelled(text: str | None) -> bytes | None:
    if text is None:
        return None
    return bytes(int(text.split()[0])) if text.endswith("zeros") else bytes.fromhex(text)


def read(content: bytes) -> list[Rec]:
    found, position = [], 0
    while content:
        decoded = decode_batches(content, position)
        found += records_of(decoded.frame)
        assert (decoded.wrong_inside, decoded.cut_sets) == (0, 0)
        position, content = decoded.next_offset, content[decoded.source_bytes :]
    return found


def test_each_library_wrote_each_format() -> None:
    for version, path in SETS.items():
        made = {(line["magic"], line["codec"], line["append_time"]) for line in lines_of(path)}
        assert made == {
            (magic, codec, is_append_time)
            for magic in MAGICS[version]
            for codec in CODECS
            for is_append_time in ([False, True] if magic and version in BOTH_TIMES else [False])
        }
        assert all(len(line["records"]) >= 6 for line in lines_of(path))
    assert SETS.keys() == MAGICS.keys()


@pytest.mark.parametrize("version", SETS)
def test_a_set_is_read_as_its_library_reads_it(version: str) -> None:
    for line in lines_of(SETS[version]):
        assert read(bytes.fromhex(line["set"])) == listed(line), {**line, "set": "", "records": ""}


@pytest.mark.parametrize("version", sorted(BOTH_TIMES))
def test_sets_of_all_formats_follow_each_other(version: str) -> None:
    lines = lines_of(SETS[version])
    expected = [record for line in lines for record in listed(line)]
    assert read(b"".join(bytes.fromhex(line["set"]) for line in lines)) == expected


@pytest.mark.parametrize("name", LOGS)
def test_a_log_is_imported_as_the_broker_s_consumer_read_it(name: str, tmp_path: Path) -> None:
    (tmp_path / "spool").mkdir()
    result, store = import_logs([HERE / "old-logs-1" / name], tmp_path / "spool", cluster_id="old")
    expected = {line["partition"]: listed(line) for line in lines_of(LOGS[name])}
    assert imported_records(store) == expected
    assert all(one.holes == [] and one.error == "" for one in result.partitions)
    assert [one.next for one in result.partitions] == [len(expected[partition]) for partition in sorted(expected)]
