from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.brokers import Bucket
from tests.support.chaos.broken import SOON_LASTING, make_overlay
from tests.support.round_trip import ArchiveSite, archive_site


@pytest.fixture
def site(bucket: Bucket, tmp_path: Path) -> Iterator[ArchiveSite]:
    """An empty archive."""
    with archive_site(bucket, tmp_path) as site:
        yield site


@pytest.fixture(scope="session")
def soon_lasting(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The PYTHONPATH of a service that calls trouble lasting after four seconds."""
    return str(make_overlay(tmp_path_factory.mktemp("overlay"), [SOON_LASTING]))
