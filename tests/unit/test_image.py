"""`infra/image/Dockerfile`: hadolint takes it, and both images run as nobody in particular, with compiled kernels.

tests/integration/test_bare_environments.py runs its lines.
"""

import json
import shlex
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.support.brokers import REPOSITORY
from tests.support.dockerfile import stages_of, variables_of

DOCKERFILE = REPOSITORY / "infra" / "image" / "Dockerfile"
STAGES = stages_of(DOCKERFILE)
TARGETS = ("backup", "spark")


def lint(text: str) -> str:
    hadolint = Path(sys.executable).with_name("hadolint")
    return subprocess.run([hadolint, "-"], input=text, capture_output=True, text=True, check=False).stdout


def test_hadolint_finds_nothing_and_would() -> None:
    text = DOCKERFILE.read_text(encoding="utf-8")
    assert lint(text) == ""
    assert "DL3006" in lint(text.replace("python:${PYTHON} AS base", "python AS base"))
    assert "DL3002" in lint(text.replace("USER 10001:10001", "USER root"))


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_has_kernels_for_any_processor_and_a_user_without_rights(target: str) -> None:
    stage = STAGES[target]
    assert stage[0].text.split() == ["base", "AS", target]
    names = [name for name, _ in stage]
    warm = [text for name, text in stage if name == "RUN"][-1]
    assert warm == "/opt/archiver/bin/python -m archiver.codec.warm"
    assert names.index("USER") > max(place for place, name in enumerate(names) if name == "RUN")
    assert ("USER", "10001:10001") in stage
    assert variables_of(STAGES["base"])["NUMBA_CPU_NAME"] == "generic"
    assert ("ENTRYPOINT", '["archiver"]') in STAGES["base"]


def test_each_image_has_labels() -> None:
    (labels,) = (text for name, text in STAGES["base"] if name == "LABEL")
    names = {word.partition("=")[0].removeprefix("org.opencontainers.image.") for word in shlex.split(labels)}
    assert names == {"title", "description", "licenses", "version", "revision"}


def test_each_copied_file_is_sent_to_the_engine_and_nothing_else() -> None:
    ignored = DOCKERFILE.with_name("Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    copied = {
        source
        for stage in STAGES.values()
        for name, text in stage
        if name == "COPY" and not text.startswith("--from")
        for source in text.split()[:-1]
    }
    assert "*" in ignored
    assert {line[1:] for line in ignored if line.startswith("!")} == copied
    assert [source for source in copied if not (REPOSITORY / source).exists()] == []


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1)])
def test_the_health_check_tells_what_the_service_tells(status: int, code: int) -> None:
    class Service(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/healthz" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    (check,) = (text for name, text in STAGES["backup"] if name == "HEALTHCHECK")
    python, *words = json.loads(check.partition("CMD ")[2])
    assert python == "python"
    with HTTPServer(("127.0.0.1", 0), Service) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        command = [sys.executable, *(word.replace("9404", str(server.server_port)) for word in words)]
        done = subprocess.run(command, capture_output=True, check=False)
        server.shutdown()
    assert done.returncode == code
