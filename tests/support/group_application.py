"""Applies positions in a process of its own, which may be killed: `python -m tests.support.group_application CASE.json`."""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from archiver.archive.handle import open_archive
from archiver.config.model import StorageConfig
from archiver.groups.application import apply_positions
from archiver.groups.application_report import ApplicationReport
from archiver.groups.wanted_positions import WantedGroup, WantedPosition
from archiver.kafka.client import KafkaClient
from archiver.process.failpoints import arm
from tests.support.kafka_topics import settings_of


async def apply(case: Mapping[str, Any]) -> ApplicationReport:
    wanted = {
        group: WantedGroup(source_group=group, positions=[WantedPosition(*one) for one in positions])
        for group, positions in case["wanted"].items()
    }
    archive = open_archive(StorageConfig.model_validate(case["storage"]))
    async with KafkaClient(settings_of(case["bootstrap"])) as client:
        return await apply_positions(client, archive, case["restore"], wanted)


if __name__ == "__main__":
    arm(os.environ.get("ARCHIVER_FAILPOINT", ""))
    found = asyncio.run(apply(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))))
    print([str(position.outcome) for group in found.groups for position in group.positions])
    raise SystemExit(found.exit_code)
