"""A defect of ours is one line for the user, and a file for who mends it."""

import asyncio
import os
import re
import stat
import time
from pathlib import Path

import pytest

import archiver.archive.reading.holdings
from archiver.backup.service.run_service import _sweep_daily
from archiver.cli.main import main
from archiver.errors import UsageError
from archiver.process.output.defects import LIFETIME_S, as_ours, sweep_defects, write_down
from archiver.process.running.workers import workers


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


def old_file(folder: Path, name: str, age_s: float = LIFETIME_S + 60) -> Path:
    made = folder / name
    made.write_text("old")
    os.utime(made, (time.time() - age_s, time.time() - age_s))
    return made


def test_the_lifetime_is_what_the_docs_say() -> None:
    assert LIFETIME_S == 30 * 86_400


def test_old_ones_of_ours_go_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = old_file(tmp_path, "archiver-defect-a1b2c3d_.txt")
    kept = [
        old_file(tmp_path, "archiver-defect-younger1.txt", LIFETIME_S - 60),
        old_file(tmp_path, "archiver-defect-notes.txt"),
        old_file(tmp_path, "archiver-defect-a1b2c3d4.txt.bak"),
        old_file(tmp_path, "report.txt"),
    ]
    link = tmp_path / "archiver-defect-linked12.txt"
    link.symlink_to(kept[-1])
    os.utime(link, (0, 0), follow_symlinks=False)
    folder = tmp_path / "archiver-defect-folder12.txt"
    folder.mkdir()
    os.utime(folder, (0, 0))
    with monkeypatch.context() as patch:
        patch.setattr("os.geteuid", lambda: os.getuid() + 1)
        sweep_defects()
    assert old.exists()
    sweep_defects()
    assert not old.exists()
    assert all(path.exists() for path in [*kept, folder])
    assert link.is_symlink()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    sweep_defects()


def test_the_next_defect_deletes_old_ones_and_one_that_was_deleted_is_written_again(tmp_path: Path) -> None:
    error = ZeroDivisionError("again")
    first = Path(write_down(error))
    os.utime(first, (0, 0))
    sweep_defects()
    old = old_file(tmp_path, "archiver-defect-a1b2c3d4.txt")
    second = Path(write_down(error))
    assert second.exists()
    assert [first.exists(), old.exists()] == [False, False]


def test_a_backup_that_runs_for_ever_deletes_old_ones_every_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("archiver.backup.service.run_service._DAY_S", 0.01)

    async def run() -> None:
        with workers(1, "test") as pool:
            sweeping = asyncio.get_running_loop().create_task(_sweep_daily(pool))
            for name in ("archiver-defect-a1b2c3d4.txt", "archiver-defect-e5f6g7h8.txt"):
                old = old_file(tmp_path, name)
                async with asyncio.timeout(10):
                    while old.exists():  # noqa: ASYNC110 - nobody tells
                        await asyncio.sleep(0.01)
            sweeping.cancel()

    asyncio.run(run())
