"""Commands in tests of this folder have no store: notes of their runs are kept in a list."""

import pytest

import archiver.archive.notes.run_notes
from archiver.archive.notes.run_notes import RunNote


@pytest.fixture(autouse=True)
def run_notes(monkeypatch: pytest.MonkeyPatch) -> list[RunNote]:
    noted: list[RunNote] = []
    monkeypatch.setattr(archiver.archive.notes.run_notes, "put_run_note", lambda _, note: noted.append(note))
    return noted
