"""`infra/helm/`: rendered by Helm itself; Kubernetes' schemas take each object, and the program takes configuration and commands."""

import json
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from archiver.cli.commands import COMMANDS, build_parser
from archiver.config.load import load_config, load_target
from tests.support.brokers import CACHE, REPOSITORY

pytestmark = pytest.mark.timeout(900)  # building helm, where it is not built yet

CHART = REPOSITORY / "infra" / "helm"
Object = Mapping[str, Any]
CONFIG = {
    "kafka": {"bootstrap.servers": "broker:9092"},
    "storage": {"url": "s3://bucket/kafka"},
    "topics": {"include": ["orders", "cust.*"]},
    "backup": {"segment": {"records": 12345678}},
}
EVERYTHING = {
    "config": CONFIG | {"compacted": {"keep.generations": 1}},
    "target": {"kafka": {"bootstrap.servers": "other:9092"}},
    "compacted": {"enabled": True},
    "retention": {"enabled": True},
    "verify": {"enabled": True},
    "drill": {"enabled": True},
    "restore": {"id": "march-1", "args": ["--topics", "orders|cust.*"]},
    "monitoring": {"serviceMonitor": True, "rules": "groups: [{name: a, rules: []}]", "dashboard": '{"panels": []}'},
    "nodeSelector": {"disk": "fast"},
}
OPERATOR = {"ServiceMonitor", "PrometheusRule"}  # whose schemas are not Kubernetes' own


@pytest.fixture(scope="module")
def helm() -> Path:
    done = subprocess.run([REPOSITORY / "infra" / "helm.sh"], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"helm cannot be built: {done.stderr}")
    return CACHE / "bin" / "helm"


def run(helm: Path, folder: Path, *words: str, **values: object) -> subprocess.CompletedProcess[str]:
    given = folder / "values.json"
    given.write_text(json.dumps(values), encoding="utf-8")
    command = [str(helm), *words, str(CHART), "--values", str(given), "--kube-version", "1.37"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def rendered(helm: Path, folder: Path, **values: object) -> list[Object]:
    done = run(helm, folder, "template", "prod", **values)
    assert done.returncode == 0, done.stderr
    return [one for one in yaml.safe_load_all(done.stdout) if one]


@pytest.fixture(scope="module")
def objects(helm: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Object]:
    return rendered(helm, tmp_path_factory.mktemp("chart"), **EVERYTHING)


def pods(objects: list[Object]) -> Iterator[tuple[str, Any]]:
    """Each object with pods, by its kind and the command that it starts."""
    for one in objects:
        spec = one.get("spec", {})
        template = spec.get("jobTemplate", {}).get("spec", spec).get("template")
        if template:
            yield f"{one['kind']} {template['spec']['containers'][0]['args'][0]}", template


def of_kind(objects: list[Object], kind: str) -> Object:
    (found,) = (one for one in objects if one["kind"] == kind)
    return found


def test_helm_finds_nothing_to_say(helm: Path, tmp_path: Path) -> None:
    done = run(helm, tmp_path, "lint", "--strict", **EVERYTHING)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("version", ["1.28", "1.37"])
def test_kubernetes_takes_each_object(version: str, objects: list[Object]) -> None:
    """By its own schemas, strictly: a key that it does not know is an error."""
    kinds = [one["kind"] for one in objects if one["kind"] not in OPERATOR]
    assert sorted(kinds) == sorted(
        ["ConfigMap", "ConfigMap", "CronJob", "CronJob", "CronJob", "Deployment", "Job", "Service", "StatefulSet"]
    )
    for one in objects:
        if one["kind"] not in OPERATOR:
            kubernetes_validate.validate(one, version, strict=True)
    wrong = json.loads(json.dumps(of_kind(objects, "StatefulSet")))
    wrong["spec"]["template"]["spec"]["containers"][0]["readyProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError, match="'readyProbe' was unexpected"):
        kubernetes_validate.validate(wrong, version, strict=True)


def test_the_operator_gets_its_objects(objects: list[Object]) -> None:
    assert of_kind(objects, "PrometheusRule")["spec"] == {"groups": [{"name": "a", "rules": []}]}
    service = next(one for one in objects if one["kind"] == "Service")
    monitor = of_kind(objects, "ServiceMonitor")["spec"]
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["endpoints"][0]["port"] == service["spec"]["ports"][0]["name"]
    with_metrics = [
        kind for kind, pod in pods(objects) if service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    ]
    assert sorted(with_metrics) == ["Deployment backup", "StatefulSet compacted"]


def test_the_program_takes_each_command(objects: list[Object]) -> None:
    found = dict(pods(objects))
    assert found.keys() == {
        "Deployment backup", "StatefulSet compacted", "CronJob retention", "CronJob verify", "CronJob drill",
        "Job restore",
    }  # fmt: skip
    for name, pod in found.items():
        command, *words = pod["spec"]["containers"][0]["args"]
        if command in COMMANDS:
            parsed = build_parser(command).parse_args([command, *words])
            assert parsed.log_format == "json", (name, shlex.join(words))


def test_the_name_of_an_instance_is_the_ordinal_of_its_pod(objects: list[Object], tmp_path: Path) -> None:
    instances = of_kind(objects, "StatefulSet")["spec"]
    (container,) = instances["template"]["spec"]["containers"]
    (given,) = (one for one in container["env"] if one["name"] == "INSTANCE")
    assert given["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.labels['apps.kubernetes.io/pod-index']"
    assert container["args"][:4] == ["compacted", "run", "--instance", "$(INSTANCE)"]
    config = tmp_path / "archive.yaml"
    config.write_text(objects_config(objects)["archive.yaml"], encoding="utf-8")
    assert load_config(config).compacted.instances == tuple(map(str, range(instances["replicas"])))


def objects_config(objects: list[Object]) -> Mapping[str, str]:
    (data,) = (one["data"] for one in objects if "archive.yaml" in one.get("data", {}))
    return data  # type: ignore[no-any-return]


def test_the_configuration_is_that_of_the_values(objects: list[Object], tmp_path: Path) -> None:
    for name, text in objects_config(objects).items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    config = load_config(tmp_path / "archive.yaml")
    assert (config.storage.url, config.topics.include) == ("s3://bucket/kafka", ("orders", "cust.*"))
    assert (config.backup.segment.records, config.compacted.keep_generations) == (12345678, 1)
    assert config.metrics.listen == "0.0.0.0:9404"
    assert load_target(tmp_path / "target.yaml").kafka == {"bootstrap.servers": "other:9092"}


def test_each_pod_is_closed_and_has_time_to_stop(objects: list[Object]) -> None:
    for name, pod in pods(objects):
        spec = pod["spec"]
        (container,) = spec["containers"]
        assert spec["terminationGracePeriodSeconds"] >= 20, name
        assert (spec["securityContext"]["runAsNonRoot"], spec["securityContext"]["runAsUser"]) == (True, 10001)
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        mounted = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
        assert mounted == {"config": "/etc/archiver", "scratch": "/tmp"}
        assert container["image"].endswith("-spark") == (name.partition(" ")[0] not in {"Deployment", "StatefulSet"})
        assert spec["nodeSelector"] == {"disk": "fast"}


def test_names_are_short_enough(helm: Path, tmp_path: Path) -> None:
    """A job's name is a label of its pods, which has 63 characters; one of a schedule gets 11 more."""
    done = run(helm, tmp_path, "template", "r" * 53, **EVERYTHING | {"restore": {"id": "i" * 32}})
    names = [(one["kind"], one["metadata"]["name"]) for one in yaml.safe_load_all(done.stdout) if one]
    assert len(names) > 8
    assert [name for kind, name in names if len(name) > (52 if kind in {"CronJob", "StatefulSet"} else 63)] == []


def test_a_restore_and_a_drill_are_never_repeated_by_themselves(objects: list[Object]) -> None:
    restore = of_kind(objects, "Job")["spec"]
    assert (restore["backoffLimit"], restore["template"]["spec"]["restartPolicy"]) == (0, "Never")
    jobs = {one["metadata"]["name"]: one["spec"] for one in objects if one["kind"] == "CronJob"}
    assert {one["concurrencyPolicy"] for one in jobs.values()} == {"Forbid"}
    assert jobs["prod-drill"]["jobTemplate"]["spec"]["backoffLimit"] == 0


def test_without_values_but_a_configuration_there_is_a_backup_alone(helm: Path, tmp_path: Path) -> None:
    found = rendered(helm, tmp_path, config=CONFIG)
    assert sorted(one["kind"] for one in found) == ["ConfigMap", "Deployment", "Service"]
    assert "compacted" not in yaml.safe_load(objects_config(found)["archive.yaml"])


def test_each_value_is_used() -> None:
    """All parts share their templates: a name that these use is used for each part."""
    templates = "".join(one.read_text(encoding="utf-8") for one in (CHART / "templates").iterdir())
    given = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    names = {*given} | {name for found in given.values() if isinstance(found, dict) for name in found}
    assert len(names) > 30
    assert [name for name in names if not re.search(rf"\.{name}\b|\"component\" \"{name}\"", templates)] == []


def test_the_files_of_rules_and_dashboard_are_where_the_values_say(helm: Path, tmp_path: Path) -> None:
    text = (CHART / "values.yaml").read_text(encoding="utf-8").replace("\n#", "")
    named = [word.strip("`") for word in text.split() if word.startswith("monitoring.") and "=" in word]
    words = [part for one in named for part in ("--set-file", one.replace("=", f"={REPOSITORY}/"))]
    done = run(helm, tmp_path, "template", "prod", *words, config=CONFIG)
    assert done.returncode == 0, done.stderr
    found = [one for one in yaml.safe_load_all(done.stdout) if one]
    rules = yaml.safe_load((REPOSITORY / "infra" / "monitoring" / "archiver.rules.yml").read_text(encoding="utf-8"))
    assert of_kind(found, "PrometheusRule")["spec"] == rules
    assert any("kafka-archiver.json" in one.get("data", {}) for one in found)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "/config"),
        ({"config": CONFIG, "backup": {"terminationGracePeriodSeconds": 15}}, "minimum: got 15, want 20"),
        ({"config": CONFIG, "compacted": {"enabled": True, "replicas": 3}}, "/compacted"),
        ({"config": CONFIG | {"metrics": {"listen": "127.0.0.1:1"}}}, "metrics"),
        ({"config": CONFIG | {"compacted": {"instances": ["a", "b"]}}}, "instances"),
        ({"config": CONFIG, "retnetion": {"enabled": True}}, "retnetion"),
        ({"config": CONFIG, "retention": {"schedule": "nightly"}}, "/retention/schedule"),
        ({"config": CONFIG, "restore": {"id": "March 1"}}, "/restore/id"),
        ({"config": CONFIG, "restore": {"id": "march-1"}}, "target: is empty"),
        ({"config": CONFIG, "drill": {"enabled": True}}, "target: is empty"),
        ({"config": CONFIG | {"kafka": {"sasl.password": "hunter2"}}}, "kafka.sasl.password: is in plain text"),
        (
            {"config": CONFIG, "target": {"kafka": {"ssl.key.password": "x"}}},
            "kafka.ssl.key.password: is in plain text",
        ),
        (
            {"config": CONFIG, "monitoring": {"rules": "infra/archiver.rules.yml"}},
            "monitoring.rules: is no file of rules",
        ),
        ({"config": CONFIG, "monitoring": {"dashboard": "dashboard.json"}}, "monitoring.dashboard: is no dashboard"),
    ],
)
def test_wrong_values_are_refused(values: dict[str, object], said: str, helm: Path, tmp_path: Path) -> None:
    done = run(helm, tmp_path, "template", "prod", **values)
    assert done.returncode != 0
    assert said in done.stderr
