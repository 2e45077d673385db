"""What `archiver retention` agrees to."""

import argparse

import pytest

from archiver.cli.retention import add_options, agreement
from archiver.errors import UsageError

DIGEST = "0123456789abcdef" * 2


def parse(*words: str) -> tuple[bool, str]:
    parser = argparse.ArgumentParser()
    add_options(parser)
    return agreement(parser.parse_args(words).yes)


def test_what_is_agreed_to() -> None:
    assert parse() == (False, "")
    assert parse("--yes") == (True, "")
    assert parse("--yes", "--topics", "t") == (True, "")
    assert parse("--yes", DIGEST) == (False, DIGEST)


@pytest.mark.parametrize("words", [("--yes", ""), ("--yes=",)])
def test_an_empty_digest_agrees_to_nothing(words: tuple[str, ...]) -> None:
    """As a script gives it whose dry run failed, or found nothing that goes."""
    with pytest.raises(UsageError, match=r"^--yes: the digest is empty"):
        parse(*words)
