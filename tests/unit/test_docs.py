"""What the pages tell a user to type exists, and parses."""

import re
import shlex
import tomllib
from functools import cache
from pathlib import Path

import pytest

from archiver import errors
from archiver.backup.compacted.work.instance_metrics import INSTANCE_METRICS
from archiver.backup.reports.metrics import METRICS
from archiver.cli.commands import build_parser
from archiver.config.load import load_config, load_target
from archiver.errors import ArchiverError
from archiver.kafka.login.settings import KafkaSettings
from archiver.process.output.job_metrics import JOB_METRICS
from archiver.upkeep.retention.sweeping.sweep_metrics import SWEEP_METRICS
from tests.support.brokers import REPOSITORY
from tests.support.metrics_tables import metrics_page
from tests.support.secure_broker import Certificates

OF_SPARK_SUBMIT = {"--archives", "--deploy-mode", "--files", "--master", "--py-files"}
PAGES = ("README.md", "docs/runbooks.md", "docs/reference.md", "docs/troubleshooting.md", "docs/clusters.md")


def text_of(page: str) -> str:
    return (REPOSITORY / page).read_text(encoding="utf-8")


def blocks(page: str, language: str) -> list[str]:
    found: list[str] = re.findall(rf"^ *```{language}\n(.*?)^ *```$", text_of(page), re.DOTALL | re.MULTILINE)
    return found


def typed_commands() -> list[str]:
    """Lines after a prompt in console blocks, and whole commands between backquotes."""
    lines = [line.strip() for page in PAGES for block in blocks(page, "console") for line in block.splitlines()]
    return sorted({line.removeprefix("$ ") for line in lines if line.startswith(("$ archiver ", "$ make"))})


def test_there_are_commands_to_check() -> None:
    assert {"make demo", "make test", "archiver backup --until-end"} <= set(typed_commands())


@pytest.mark.parametrize("command", typed_commands())
def test_command_exists(command: str) -> None:
    program, *arguments = shlex.split(command)
    if program == "make":
        targets = re.findall(r"^([a-z-]+):", text_of("Makefile"), re.MULTILINE)
        assert set(arguments) <= set(targets)
    else:
        build_parser().parse_args(arguments)  # ends the process with 2 when there is no such command or option


@pytest.mark.parametrize("page", PAGES)
def test_options_exist(page: str) -> None:
    prose = re.sub(
        r"kafka-[a-z-]+\.sh[^`\n]*|`pip [^`]*`", "", re.sub(r"```.*?```", "", text_of(page), flags=re.DOTALL)
    )
    commands = (
        "backup", "ls", "cat", "compacted run", "compacted status", "compacted clear", "groups show", "groups translate", "groups apply", "groups rollback", "groups fold", "inspect", "verify", "copy", "drill", "restore", "query", "spark-env pack", "demo",
        "retention", "hold add", "hold list", "hold release", "topics", "report", "status",
        "import kafka-log", "import kafka-backup", "import kafka-0.7", "import osodevops", "import avro", "export kafka-backup",
    )  # fmt: skip
    help_texts = "".join(map(_help_of, commands))
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", prose)) - {"--help", "--recursive", *OF_SPARK_SUBMIT}
    assert named
    assert sorted(option for option in named if option not in help_texts) == []


@cache
def _help_of(command: str) -> str:
    parser = build_parser()
    for word in command.split():
        (subparsers,) = (action for action in parser._actions if isinstance(action.choices, dict))
        assert isinstance(subparsers.choices, dict)
        parser = subparsers.choices[word]
    return parser.format_help()


def configurations() -> list[str]:
    return [block for page in PAGES for block in blocks(page, "yaml")]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("certificates"))


@pytest.mark.parametrize("text", configurations())
def test_configuration_is_valid(
    text: str, tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With files, variables and functions of ours in the place of those that it speaks of."""
    monkeypatch.setenv("KEY_PASSWORD", "secret")
    monkeypatch.setenv("OIDC_SECRET", "secret")
    (tmp_path / "password").write_text("secret")
    ours = {
        "/run/secrets/kafka-password": tmp_path / "password",
        "/etc/kafka/ca.pem": certificates.ca,
        "/etc/kafka/archiver.pem": certificates.chain("client"),
        "/etc/kafka/archiver.key": certificates.key("client"),
        "msk:token": "tests.support.token_server:give",
    }
    for theirs, our in ours.items():
        text = text.replace(theirs, str(our))
    path = tmp_path / "given.yaml"
    path.write_text(text, encoding="utf-8")
    kafka = load_config(path).kafka if "storage:" in text else load_target(path).kafka
    KafkaSettings.parse(kafka)


def test_full_configuration_names_every_key(tmp_path: Path) -> None:
    path = tmp_path / "archive.yaml"
    (text,) = (block for block in blocks("docs/reference.md", "yaml") if "spool:" in block)
    path.write_text(
        text.replace("# kms-key-id: ...", "kms-key-id: key").replace("sse: none", "sse: kms"), encoding="utf-8"
    )
    config = load_config(path)
    unset = {
        f"{section}.{name}"
        for section, model in (
            ("archive", config),
            ("storage", config.storage),
            ("topics", config.topics),
            ("backup", config.backup),
            ("compacted", config.compacted),
            ("restores", config.restores),
            ("retention", config.retention),
            ("retention.fixed", config.retention.fixed),
            *(("retention.overrides", one) for one in config.retention.overrides),
            *(("retention.gone", one) for one in config.retention.gone),
            ("metrics", config.metrics),
            ("segment", config.backup.segment),
            ("spool", config.backup.spool),
        )
        for name in type(model).model_fields.keys() - model.model_fields_set
    }
    assert unset == set()


def test_exit_codes_are_those_of_the_errors() -> None:
    classes = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, ArchiverError)]
    table = re.findall(r"^\| (\d) \|", text_of("docs/reference.md"), re.MULTILINE)
    assert {int(code) for code in table} == {0} | {one.exit_code for one in classes}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text_of(page))
    missing = [target for target in targets if not ((REPOSITORY / page).parent / target).exists()]
    assert missing == []


def test_metrics_page_is_made_of_the_declarations() -> None:
    assert text_of("docs/metrics.md") == metrics_page(), "make docs"


def test_alarms_name_metrics_that_exist() -> None:
    named = set(re.findall(r"archiver_[a-z_]+", text_of("docs/metrics.md")))
    assert named == {metric.name for metric in (*METRICS, *INSTANCE_METRICS, *SWEEP_METRICS, *JOB_METRICS)}


def test_the_drawing_of_the_rooms_is_the_contract() -> None:
    drawing = text_of("docs/architecture.md").partition("## The rooms")[2].split("```")[1]
    drawn = [set(line.split()) for line in drawing.splitlines() if line]
    contract = tomllib.loads(text_of("pyproject.toml"))["tool"]["importlinter"]["contracts"][0]["layers"]
    layers = [{name.removeprefix("archiver.") for name in row.split(" | ")} for row in contract]
    rooms = {path.parent.name for path in (REPOSITORY / "archiver").glob("*/__init__.py")}
    assert drawn == [row for row in layers if row <= rooms]
    assert set().union(*drawn) == rooms


@pytest.mark.parametrize("kind", ["unit", "integration"])
def test_tests_of_one_room_lie_in_a_folder_of_its_name(kind: str) -> None:
    rooms = {path.parent.name for path in (REPOSITORY / "archiver").glob("*/__init__.py")}
    assert {path.parent.name for path in (REPOSITORY / "tests" / kind).glob("*/test_*.py")} <= rooms


def _anchor(heading: str) -> str:
    """As GitHub makes it."""
    shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", shown.lower()).strip().replace(" ", "-")


ROOMS = sorted(path.parent.name for path in (REPOSITORY / "archiver").glob("*/__init__.py"))
ALL_PAGES = sorted(
    str(page.relative_to(REPOSITORY)) for page in (*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md"))
)


@pytest.mark.parametrize("name", ALL_PAGES)
def test_each_link_of_a_page_leads_somewhere(name: str) -> None:
    page = REPOSITORY / name
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if link.startswith("http"):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        if anchor and target.suffix == ".md":
            headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in map(_anchor, headings), link


@pytest.mark.parametrize("name", ALL_PAGES)
def test_each_module_that_a_page_names_exists(name: str) -> None:
    """By its path from the root of the repository or from `archiver/`, by its dotted name, or, of a test, by its file's name."""
    text = (REPOSITORY / name).read_text(encoding="utf-8")
    paths = re.findall(r"`(?:env/lib/)?((?:[\w-]+/)+\w+\.py)\b", text)  # env/lib: of a packed environment
    dotted = re.findall(rf"`[^`\n]*\barchiver\.((?:{'|'.join(ROOMS)})(?:\.\w+)+)", text)
    tests = re.findall(r"`(test_\w+\.py)\b", text)
    places = [(path, [REPOSITORY / path, REPOSITORY / "archiver" / path]) for path in paths]
    places += [(path, [(REPOSITORY / "archiver" / path.replace(".", "/")).with_suffix(".py")]) for path in dotted]
    places += [(file, [*(REPOSITORY / "tests").rglob(file)]) for file in tests]
    assert [path for path, found in places if not any(one.exists() for one in found)] == []
