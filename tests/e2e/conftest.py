from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.brokers import Bucket
from tests.support.round_trip import ArchiveSite, archive_site


@pytest.fixture
def site(bucket: Bucket, tmp_path: Path) -> Iterator[ArchiveSite]:
    """An empty archive."""
    with archive_site(bucket, tmp_path) as site:
        yield site
