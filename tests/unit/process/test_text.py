"""What was read elsewhere acts on no terminal, and makes no line of its own."""

import io
import json
import logging
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from unicodedata import category

import pytest

import archiver.archive.format.handle
import archiver.archive.reading.catalog
import archiver.archive.reading.plain_records
from archiver.archive.copies.archived_topic import ArchivedTopic
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.cli.main import main
from archiver.codec.avro import encode_header
from archiver.codec.compression import BlockCodec
from archiver.errors import NotWholeError, UsageError
from archiver.process.output.logs import LogField, set_up_logs
from archiver.process.output.progress import Progress
from archiver.process.output.text import printable, printable_json, spell_name
from tests.support.memory_store import MemoryStore

# By Unicode's own classes: commands, halves of pairs, ends of lines and paragraphs, and format characters.
# Default_Ignorable_Code_Point of Unicode's DerivedCoreProperties.txt, and the blank of Braille.
UNSEEN = {
    chr(code)
    for first, last in (
        (0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x200B, 0x200F),
        (0x202A, 0x202E), (0x2060, 0x206F), (0x2800, 0x2800), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF),
        (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF),
    )
    for code in range(first, last + 1)
}  # fmt: skip
ACTING = UNSEEN | {
    chr(code) for code in range(sys.maxunicode + 1) if category(chr(code)) in {"Cc", "Cf", "Cs", "Zl", "Zp"}
}
HOSTILE = "\x1b[31mRED\x1b]0;title\x07\x9b2J\r\nok: all is well\u2028\u202etxt\u2066a\u061cb\u200bc\U000e0041\u3164\x7f\ufe0f\u2800"
SHOWN = r"\x1b[31mRED\x1b]0;title\x07\x9b2J\r\nok: all is well\u2028\u202etxt\u2066a\u061cb\u200bc\U000e0041\u3164\x7f\ufe0f\u2800"


def assert_tame(text: str) -> None:
    assert not [character for character in text if character in ACTING and character != "\n"]
    assert not [line for line in text.split("\n") if line.startswith("ok: all is well")]


def test_what_acts_is_spelled_and_all_else_stays() -> None:
    assert printable(HOSTILE) == SHOWN
    assert {"\x1b", "\x9b", "\u061c", "\u200e", "\u2028", "\u202e", "\u2069", "\ufeff", "\U000e0041"} < ACTING
    assert not [character for character in ACTING if not printable(f"a{character}b").isascii()]
    for character in ACTING - {chr(code) for code in range(0xD801, 0xE000)}:  # of halves one will do
        line = printable_json(json.dumps({character: f"ä{character}"}, ensure_ascii=False))
        assert line.isprintable()
        assert character not in line
        assert json.loads(line) == {character: f"ä{character}"}
    for plain in ("grüße, 日本\u3000🎉 ❤ \\n", "plain"):
        assert printable(plain) == printable_json(plain) == plain


def test_a_hostile_object_is_shown_and_does_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "\x1b[2J\nok: all is well"
    folder.mkdir()
    place = folder / f"orders+0-{0:020d}.data"
    place.write_bytes(encode_header(BlockCodec.NULL, bytes(16), {"archiver.writer": HOSTILE}) + b"cut")
    assert main(["inspect", str(place)]) == 3
    out, err = capsys.readouterr()
    assert SHOWN in out
    assert r"\x1b[2J\nok: all is well" in err
    assert_tame(out)
    assert_tame(err)
    assert main(["inspect", "--format", "json", str(place)]) == 3
    out, _ = capsys.readouterr()
    assert json.loads(out)["header"]["archiver.writer"] == HOSTILE
    assert_tame(out)


def test_records_and_complaints_of_cat_do_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = ArchivedTopic(topic="orders", life=0, fact=None, partitions={}, damaged={}, other_lives=())

    def read_records(
        *_: object, report_problem: "archiver.archive.reading.catalog.ReportProblem", **__: object
    ) -> list[dict[str, str]]:
        report_problem(f"{HOSTILE}: damaged")
        return [{"value": HOSTILE}]

    monkeypatch.setattr(archiver.archive.format.handle, "open_archive", lambda _: Archive(MemoryStore(), Layout()))
    monkeypatch.setattr(archiver.archive.reading.catalog, "find_topic", lambda *_, **__: topic)
    monkeypatch.setattr(archiver.archive.reading.plain_records, "read_records", read_records)
    assert main(["cat", "orders", "--url", "s3://bucket"]) == 3
    out, err = capsys.readouterr()
    assert json.loads(out) == {"value": HOSTILE}
    assert err == f"archiver: {SHOWN}: damaged\n"
    assert_tame(out)


def test_rows_of_a_query_do_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    answer = SimpleNamespace(skipped=[], columns=["value"], rows=[[HOSTILE]])
    monkeypatch.setattr("archiver.spark.query.run_query", lambda *_, **__: nullcontext(answer))
    for log_format in ("json", "text"):
        assert main(["query", "--url", "s3://bucket", "--format", log_format, "SELECT 1"]) == 0
        out, _ = capsys.readouterr()
        assert_tame(out)
        assert log_format == "text" or json.loads(out) == {"value": HOSTILE}


@pytest.mark.parametrize(("error", "lines"), [(NotWholeError, 1), (UsageError, 2)])
def test_only_lines_of_ours_are_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: type[Exception], lines: int
) -> None:
    def fail(*_: object) -> None:
        raise error("first\nsecond\x1b[2J")

    monkeypatch.setattr("archiver.archive.reading.holdings.summarize", fail)
    assert main(["ls", "--url", "s3://bucket"]) > 1
    said = capsys.readouterr().err
    assert len(said.splitlines()) == lines
    assert_tame(said)


def test_logs_and_progress_do_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.getLogger("archiver.test")
    for log_format in ("text", "json"):
        set_up_logs("json" if log_format == "json" else "text")
        log.warning("found %s", HOSTILE, extra={LogField.OBJECT_KEY: HOSTILE})
        said = capsys.readouterr().err
        assert len(said.splitlines()) == 1
        assert_tame(said)
    set_up_logs()
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    progress = Progress("verify")
    progress.report(HOSTILE)
    progress.close()
    assert SHOWN in terminal.getvalue()
    assert "\x1b]0" not in terminal.getvalue()


def test_a_name_that_is_empty_or_looks_quoted_is_quoted() -> None:
    assert [*map(spell_name, ("good", "", '"good "'))] == ["good", '""', '""good ""']
