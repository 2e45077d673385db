"""The instructions of a Dockerfile, stage by stage. No engine builds it where the tests run."""

import re
import shlex
from pathlib import Path
from typing import NamedTuple


class Instruction(NamedTuple):
    name: str
    text: str


def stages_of(dockerfile: Path) -> dict[str, list[Instruction]]:
    """Return each stage by its name; what stands before the first one is left out."""
    lines = [line for line in dockerfile.read_text(encoding="utf-8").splitlines() if line and line[0] != "#"]
    stages: dict[str, list[Instruction]] = {}
    for line in re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines():
        instruction = Instruction(*line.split(maxsplit=1))
        if instruction.name == "FROM":
            stages[instruction.text.rpartition(" AS ")[2]] = []
        if stages:
            stages[list(stages)[-1]].append(instruction)
    return stages


def variables_of(stage: list[Instruction]) -> dict[str, str]:
    words = [word for instruction in stage if instruction.name == "ENV" for word in shlex.split(instruction.text)]
    return dict(word.split("=", 1) for word in words)
