"""The broken copies of `make test-broken` can be made, and the tests that they name are there."""

from pathlib import Path

import pytest

from tests.broken.builds import BUILDS
from tests.support.brokers import REPOSITORY
from tests.support.chaos.broken import make_overlay


@pytest.mark.parametrize("name", BUILDS)
def test_a_copy_can_be_made_and_its_tests_are_there(name: str, tmp_path: Path) -> None:
    make_overlay(tmp_path, BUILDS[name].changes)
    for place in BUILDS[name].tests:
        file, _, test = place.partition("::")
        assert f"\ndef {test}(" in (REPOSITORY / file).read_text(), place
