"""All worlds."""

from typing import Final

from tests.worlds import clusters, stores
from tests.worlds.world import World

WORLDS: Final = (World(name="4.1", kafka=clusters.vanilla("4.1.1"), store=stores.minio),)
