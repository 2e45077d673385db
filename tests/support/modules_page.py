"""The page docs/modules.md: each room of `archiver/`, and each of its modules with the first line of its docstring."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.support.brokers import REPOSITORY

PAGE: Final = REPOSITORY / "docs" / "modules.md"
_CODE: Final = REPOSITORY / "archiver"
_HEAD: Final = """# Modules

Each room of `archiver/` and its modules. [Architecture](architecture.md) draws the rooms; `make docs` writes this page from the docstrings.
"""


def modules_page() -> str:
    """Return the page."""
    return "\n".join([_HEAD, *_rooms()])


def _rooms() -> Iterator[str]:
    for init in sorted(_CODE.rglob("__init__.py")):
        yield f"## {init.parent.relative_to(_CODE.parent)}/\n"
        yield f"{_purpose(init)}\n"
        yield "| module | owns |\n| --- | --- |"
        for module in sorted(init.parent.glob("[!_]*.py")):
            yield f"| `{module.stem}` | {_purpose(module).replace('|', '&#124;')} |"
        yield ""


def _purpose(module: Path) -> str:
    """Return the first sentence of a module's docstring, as one line."""
    told = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
    sentence, _, _ = " ".join(told.partition("\n\n")[0].split()).partition(". ")
    return sentence.removesuffix(".")


if __name__ == "__main__":
    PAGE.write_text(modules_page(), encoding="utf-8")
