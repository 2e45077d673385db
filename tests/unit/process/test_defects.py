"""A defect of ours is one line for the user, and a file for who mends it."""

import re
import stat
from pathlib import Path

import pytest

import archiver.archive.reading.holdings
from archiver.cli.main import main
from archiver.errors import UsageError
from archiver.process.output.defects import as_ours, write_down


@pytest.fixture(autouse=True)
def _temporary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def broken(*_: object) -> None:
    raise ZeroDivisionError("a thing that cannot be")


def test_no_traceback_reaches_the_user(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(archiver.archive.reading.holdings, "summarize", broken)
    assert main(["ls", "--url", "s3://bucket"]) == 1
    out, err = capsys.readouterr()
    (line,) = err.splitlines()
    assert out == ""
    assert line.startswith(
        "archiver: unexpected ZeroDivisionError: a thing that cannot be; this is a defect of the archiver"
    )
    (path,) = re.findall(r"with (\S+) \(look through it first: parts of records may be in it\)$", line)
    written = Path(path).read_text()
    assert written.startswith("Look through this file before you send it to anybody")
    assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600
    assert Path(path).parent == tmp_path
    assert "Traceback (most recent call last)" in written
    assert "in broken" in written


def test_a_place_that_fails_again_and_again_makes_one_file() -> None:
    def fail(number: int) -> Exception:
        try:
            [][number]
        except IndexError as error:
            return error
        raise AssertionError

    first, second = (write_down(fail(number)) for number in (1, 2))
    assert first == second
    assert Path(first).exists()


def test_what_was_raised_on_purpose_stays_as_it_is() -> None:
    error = UsageError("no")
    assert as_ours(error, "orders-0") is error
    assert str(as_ours(ValueError("x"), "orders-0")).startswith("orders-0: unexpected ValueError: x")


def test_what_a_record_holds_acts_on_no_terminal_that_shows_the_file() -> None:
    written = Path(write_down(LookupError("\x1b[2J\u202evalue\nsecond line"))).read_text()
    assert r"\x1b[2J\u202evalue" in written
    assert "second line\n" in written
    assert not [character for character in written if not character.isprintable() and character != "\n"]
