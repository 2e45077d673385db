"""Wrote `old-sets-1` and `old-logs-1` with Kafka's own old libraries and brokers. Ran once, on Java 17; it never overwrites.

`python -m tests.golden.make_old JARS` in the root of the repository. JARS has a folder for each version, with the jars of
org.apache.kafka:kafka_2.11 and of javax.xml.bind:jaxb-api 2.3.0, which Java no longer has.
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from shutil import copy

HERE = Path(__file__).parent
JAVA = HERE / "old_java"
ERAS = {"0.8.2.2": "0.8", "0.9.0.1": "0.9", "0.10.0.1": "0.10.0", "0.10.2.2": "0.10.2", "0.11.0.3": "0.11"}
WIRES = {"0.8.2.2": "0.8", "0.10.2.2": "0.10.2", "0.11.0.3": "0.10.2"}
PORTS = ("23391", "23392")
FORMAT, APPEND_TIME = "log.message.format.version=", "log.message.timestamp.type=LogAppendTime"
# Each log is of the brokers that ran there one after the other, with their settings.
LOGS: dict[str, list[tuple[str, ...]]] = {
    "0.8.2.2": [("0.8.2.2",)],
    "0.10.2.2": [("0.10.2.2",)],
    "0.10.2.2-append-time": [("0.10.2.2", APPEND_TIME)],
    "0.10.2.2-v0": [("0.10.2.2", f"{FORMAT}0.9.0")],
    "0.11.0.3-append-time": [("0.11.0.3", APPEND_TIME)],
    "0.11.0.3-v1": [("0.11.0.3", f"{FORMAT}0.10.2")],
    "upgraded": [("0.8.2.2",), ("0.10.2.2", f"{FORMAT}0.10.2"), ("0.11.0.3",)],
}
KEPT = {"meta.properties", "replication-offset-checkpoint", "leader-epoch-checkpoint"}


def main(jars: Path) -> None:
    sets, logs = HERE / "old-sets-1", HERE / "old-logs-1"
    sets.mkdir()
    logs.mkdir()
    for version, era in ERAS.items():
        run(jars / version, [JAVA / era / "Era.java"], "OldSets", sets / f"{version}.jsonl")
    for name, brokers in LOGS.items():
        with tempfile.TemporaryDirectory(prefix="old-") as folder:
            for version, *settings in brokers:
                sources = [
                    JAVA / "OldBroker.java",
                    JAVA / ERAS[version] / "Era.java",
                    JAVA / WIRES[version] / "Wire.java",
                ]
                run(jars / version, sources, "OldBroker", folder, *PORTS, "old", *settings)
            keep(Path(folder), logs, name)


def keep(folder: Path, logs: Path, name: str) -> None:
    copy(folder / "listing.jsonl", logs / f"{name}.jsonl")
    for file in (folder / "log").rglob("*"):
        if file.name in KEPT or file.suffix == ".log":
            target = logs / name / file.relative_to(folder / "log")
            target.parent.mkdir(parents=True, exist_ok=True)
            copy(file, target)


def run(jars: Path, sources: list[Path], main_class: str, *arguments: str | Path) -> None:
    with tempfile.TemporaryDirectory(prefix="old-java-") as classes:
        path = f"{classes}:{jars}/*"
        subprocess.run(["javac", "-nowarn", "-d", classes, "-cp", path, JAVA / "OldSets.java", *sources], check=True)
        subprocess.run(["java", "-Xmx400m", "-cp", path, main_class, *arguments], check=True, timeout=120)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
