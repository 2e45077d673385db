"""Adds a page to the site: each folder of `archiver/` and its modules, by the first sentence of their docstrings (mkdocs.yml)."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

_CODE: Final = Path(__file__).parents[1] / "archiver"
_HEAD: Final = """# Modules

Each folder of `archiver/` and its modules. [Architecture](architecture.md) draws the rooms. This page is made from the docstrings.
"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page. mkdocs calls this."""
    files.append(File.generated(config, "modules.md", content="\n".join([_HEAD, *_folders()])))
    return files


def _folders() -> Iterator[str]:
    for init in sorted(_CODE.rglob("__init__.py")):
        yield f"## {init.parent.relative_to(_CODE.parent)}/\n"
        yield f"{_purpose(init)}\n"
        yield "| module | owns |\n| --- | --- |"
        for module in sorted(init.parent.glob("[!_]*.py")):
            yield f"| `{module.stem}` | {_purpose(module).replace('|', '&#124;')} |"
        yield ""


def _purpose(module: Path) -> str:
    """Return the first sentence of a module's docstring, as one line."""
    text = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
    sentence, _, _ = " ".join(text.partition("\n\n")[0].split()).partition(". ")
    return sentence.removesuffix(".")
