"""A service that waits for its store at its start is healthy: a probe that ends it would not help."""

import os
import signal
import threading
from pathlib import Path
from urllib.request import urlopen

import pytest

from archiver.backup.service import vitals
from archiver.backup.service.run_service import run_service
from archiver.config.model import ArchiverConfig
from tests.support.kafka_broker import free_ports

STUCK_S = 1.0


def test_a_service_that_waits_for_its_store_is_healthy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    monkeypatch.setattr(vitals, "_STUCK_S", STUCK_S)
    monkeypatch.setattr(vitals, "_BEAT_EVERY_S", STUCK_S / 10)
    nothing, port = free_ports(2)
    config = ArchiverConfig.model_validate(
        {
            "kafka": {"bootstrap.servers": f"127.0.0.1:{nothing}"},
            "storage": {"url": "s3://bucket/kafka", "endpoint": f"http://127.0.0.1:{nothing}"},
            "topics": {"include": ["orders"]},
            "backup": {"spool": {"dir": str(tmp_path)}},
            "metrics": {"listen": f"127.0.0.1:{port}"},
        }
    )
    told: list[int | str] = []
    ended = threading.Event()

    def ask() -> None:
        if ended.wait(3 * STUCK_S):
            return
        try:
            with urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5) as answer:
                told.append(answer.status)
        except OSError as error:
            told.append(str(error))
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        run_service(config, lambda *_: None)
    finally:
        ended.set()
        asking.join()
    assert told == [200]
