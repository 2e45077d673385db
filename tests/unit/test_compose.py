"""`infra/compose/`: its schema takes it, what it starts is a command, and its files fit each other. No engine runs it here."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from moto.server import ThreadedMotoServer

from archiver.cli.commands import build_parser
from archiver.config.load import load_config
from tests.support.brokers import REPOSITORY

COMPOSE = REPOSITORY / "infra" / "compose"
TEXT = (COMPOSE / "compose.yaml").read_text(encoding="utf-8")
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(TEXT)["services"]
OURS = {name: service for name, service in SERVICES.items() if service["image"].startswith("kafka-archiver:")}
CONFIG = load_config(COMPOSE / "archive.yaml")
PORT = "9404"


def schema_takes(file: Path) -> bool:
    tool = Path(sys.executable).with_name("check-jsonschema")
    done = subprocess.run([tool, "--builtin-schema", "vendor.compose-spec", file], capture_output=True, check=False)
    return done.returncode == 0


def test_the_schema_of_compose_takes_the_file_and_refuses_a_wrong_key(tmp_path: Path) -> None:
    assert schema_takes(COMPOSE / "compose.yaml")
    wrong = tmp_path / "compose.yaml"
    wrong.write_text(TEXT.replace("stop_grace_period", "stop_period"), encoding="utf-8")
    assert not schema_takes(wrong)


def test_each_service_of_ours_starts_a_command_in_a_closed_container() -> None:
    assert OURS.keys() == {"bucket", "backup", "compacted-a", "compacted-b"}
    for name, service in OURS.items():
        if name != "bucket":
            build_parser(service["command"][0]).parse_args(service["command"])
        assert (service["read_only"], service["user"], service["cap_drop"]) == (True, "10001:10001", ["ALL"])
        (seconds,) = re.findall(r"^(\d+)s$", service["stop_grace_period"])
        assert int(seconds) >= 20


def test_each_instance_of_the_configuration_runs_once() -> None:
    commands = [service["command"] for name, service in OURS.items() if name.startswith("compacted")]
    started = [build_parser("compacted").parse_args(command).instance for command in commands]
    assert sorted(started) == sorted(CONFIG.compacted.instances)


def test_prometheus_asks_each_service_that_has_metrics() -> None:
    assert CONFIG.metrics.listen == f"0.0.0.0:{PORT}"
    (job,) = yaml.safe_load((COMPOSE / "prometheus.yaml").read_text(encoding="utf-8"))["scrape_configs"]
    assert set(job["static_configs"][0]["targets"]) == {f"{name}:{PORT}" for name in OURS if name != "bucket"}
    image = (REPOSITORY / "infra" / "image" / "Dockerfile").read_text(encoding="utf-8")
    assert f"http://127.0.0.1:{PORT}/healthz" in image


def test_each_mounted_file_is_there() -> None:
    mounts = {volume.partition(":")[0] for service in SERVICES.values() for volume in service.get("volumes", ())}
    files = {COMPOSE / mount for mount in mounts if mount.startswith(".")}
    assert len(files) == 7
    assert [file for file in files if not file.exists()] == []


def test_prometheus_finds_the_rules() -> None:
    mounted = dict(volume.split(":")[:2][::-1] for volume in SERVICES["prometheus"]["volumes"])
    (rules,) = yaml.safe_load((COMPOSE / "prometheus.yaml").read_text(encoding="utf-8"))["rule_files"]
    assert (COMPOSE / mounted[rules]).resolve() == REPOSITORY / "infra" / "monitoring" / "archiver.rules.yml"


def test_only_this_machine_reaches_the_ports() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert ports
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []


def test_the_bucket_of_the_configuration_is_made_once() -> None:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    try:
        host, port = server.get_host_and_port()
        made = {"AWS_ENDPOINT_URL": f"http://{host}:{port}"}
        given = {name: text for name, text in OURS["bucket"]["environment"].items() if name.startswith("AWS_")}
        for _ in range(2):
            subprocess.run([sys.executable, COMPOSE / "bucket.py"], env=os.environ | given | made, check=True)
        store = boto3.client(
            "s3", endpoint_url=made["AWS_ENDPOINT_URL"], region_name="us-east-1", aws_access_key_id="a",
            aws_secret_access_key="b",
        )  # fmt: skip
        assert [bucket["Name"] for bucket in store.list_buckets()["Buckets"]].count("archive") == 1  # of all servers
        assert CONFIG.storage.url.startswith("s3://archive/")
    finally:
        server.stop()


@pytest.mark.parametrize("name", ["prometheus", "grafana-source", "grafana-dashboards"])
def test_each_other_file_is_yaml(name: str) -> None:
    assert yaml.safe_load((COMPOSE / f"{name}.yaml").read_text(encoding="utf-8"))
