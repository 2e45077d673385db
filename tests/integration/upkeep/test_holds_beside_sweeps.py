"""Holds that come while a sweep runs, with the shipped roles: nothing that is held goes unnoticed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from archiver.archive.format.handle import Archive, open_archive
from archiver.archive.notes.holds import HOLDS
from archiver.backup.service.run_backup import run_backup
from archiver.config.model import ArchiverConfig
from archiver.process.running.children import start_child
from archiver.spark.retention import run_retention
from archiver.upkeep.retention.sweeping.run_sweep import SweepRequest
from tests.support.brokers import REPOSITORY, Broker
from tests.support.chaos.broken import Change, make_overlay
from tests.support.kafka_topics import create_topic
from tests.support.processes import end_of, state_of
from tests.support.real_sweeps import DAY_MS, cut, produce_aged
from tests.support.rights_stage import acting
from tests.support.round_trip import KEEP_ALL, ArchiveSite, environment_of
from tests.support.service import eventually
from tests.support.target_topics import set_configs

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(240)]

PREFIX = "kafka"
SHORT_S = 6.0  # instead of 30: so long a look decides, and so long a delete takes


class Aged:
    """A topic with five objects, of which four go with the next sweep."""

    def __init__(self, site: ArchiveSite, broker: Broker, topic: str) -> None:
        self._site, self._bootstrap, self._topic = site, broker.bootstrap, topic
        create_topic(broker.bootstrap, topic, 1, KEEP_ALL)
        produce_aged(broker.bootstrap, topic, [5 * DAY_MS] * 5)
        config = self._configure()
        self.archive: Archive = open_archive(config.storage)
        run_backup(config, lambda _: None)
        cut(broker, topic, 4)
        set_configs(broker, topic, retention_ms=str(DAY_MS))
        time.sleep(1.1)  # the store's clock has whole seconds, and what was put in this one is too young
        assert not run_retention(config, SweepRequest()).swept  # it only notes what the topic keeps
        changes = [
            Change("store/port.py", "DELETE_LIMIT_S: Final = 30.0", f"DELETE_LIMIT_S: Final = {SHORT_S}"),
            Change("archive/notes/holds.py", "LOOK_S: Final = 30.0", f"LOOK_S: Final = {SHORT_S}"),
        ]
        self._overlay = str(make_overlay(site.folder / "overlay", changes))

    @property
    def keys(self) -> list[str]:
        return [item.key for item in self.archive.store.list(f"{PREFIX}/topics/")]

    @contextmanager
    def sweeping(self, failpoint: str) -> Iterator[subprocess.Popen[str]]:
        """A sweep that agrees to everything, with the rights of its role."""
        text = (REPOSITORY / "infra" / "policies" / "sweep.json").read_text(encoding="utf-8")
        policy = json.loads(text.replace("BUCKET", self._site.bucket.name).replace("PREFIX", PREFIX))
        with acting(self._site.bucket, policy["Statement"]) as role:
            sweep = [sys.executable, "-m", "tests.support.real_sweeps", "-c", str(self._site.folder / "archive.yaml")]
            path = os.pathsep.join([self._overlay, str(REPOSITORY)])
            ours = {"ARCHIVER_FAILPOINT": failpoint, "PYTHONSAFEPATH": "1", "PYTHONPATH": path}
            yield start_child(
                sweep,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={**environment_of(self._site.bucket), **ours, **role},
            )

    def hold(self) -> subprocess.Popen[str]:
        """Hold the topic; returns when the hold is put. The command waits."""
        typed = ("hold", "add", "audit", "--topics", self._topic, "--reason", "law")
        holding = self._site.command(*typed, PYTHONPATH=self._overlay)
        eventually(lambda: any(self.archive.store.list(self.archive.layout.control_prefix(HOLDS))))
        return holding

    def _configure(self) -> ArchiverConfig:
        tree = self._site.config(self._bootstrap, [self._topic], records=1)
        tree["storage"] = {"url": f"{self._site.bucket.url}/{PREFIX}", "endpoint": self._site.bucket.s3.endpoint}
        tree["retention"] = {"grace": 0, "min-object-age": 0}
        Path(self._site.folder / "archive.yaml").write_text(yaml.safe_dump(tree))
        return ArchiverConfig.model_validate(tree)


def test_a_sweep_that_stood_still_until_its_look_was_old_deletes_nothing_that_is_held(
    site: ArchiveSite, broker_41: Broker, topic: str
) -> None:
    aged = Aged(site, broker_41, topic)
    before = aged.keys
    with aged.sweeping("sweep.looked:1:stop") as sweep:
        eventually(lambda: state_of(sweep.pid) == "T")
        holding = aged.hold()
        time.sleep(SHORT_S + 1)
        os.kill(sweep.pid, signal.SIGCONT)
        swept = end_of(sweep, 120)
    held = end_of(holding, 120)
    assert (swept.returncode, "the sweep stopped before its end: it is on hold: audit" in swept.stderr) == (1, True), (
        swept
    )
    assert (held.returncode, held.stderr.count(PREFIX)) == (0, 0), held
    assert "hold audit is in force: no sweep deletes these records from now on" in held.stdout
    assert aged.keys == before
