"""Readers of the output that go away."""

import os
import sys

import pytest

from archiver.cli.output import write


def test_a_reader_that_goes_away_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", encoding="utf-8") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        assert not write("nobody reads this", flush=True)
        assert write("and this is dropped", flush=True)
