"""What the newest run of each world told: docs/worlds.json, and the tables that are made of it."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from tests.support.brokers import REPOSITORY
from tests.support.pages import with_table
from tests.worlds.table import WORLDS

REPORT: Final = REPOSITORY / "docs" / "worlds.json"
WHOLE: Final = "whole"
MARK: Final = "worlds"

Figures = Mapping[str, Mapping[str, Any]]  # by world


def read() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(REPORT.read_text(encoding="utf-8")) if REPORT.exists() else {}
    return found


def record(world: str, figures: Mapping[str, object]) -> None:
    """In place of what was known of this world; in the order of the table."""
    known = {**read(), world: figures}
    ordered = {one.name: known[one.name] for one in WORLDS if one.name in known}
    REPORT.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")


def proofs_table(figures: Figures) -> str:
    """For docs/proofs.md: a row for each world."""
    lines = ["| world | Kafka, store | the cycle: records, compared | date |", "| --- | --- | --- | --- |"]
    for name, one in figures.items():
        seen = f" ({one['evidence']})" if one["evidence"] else ""
        counts = f"{one['records']:,}, {one['compared']:,}" if one["records"] else ""
        result = str(one["result"]).removeprefix(WHOLE).strip("; ")
        cycle = "; ".join(filter(None, (counts, result)))
        lines.append(f"| {name}{seen} | {one['kafka']}, {one['store']} | {cycle} | {one['date']} |")
    return "\n".join(lines)


def readme_table(figures: Figures) -> str:
    """For README.md: what may be relied on, and what is refused, with the date of the oldest run."""
    whole = {name: one for name, one in figures.items() if one["result"].startswith(WHOLE)}
    kafkas = {str(one["kafka"]) for one in whole.values()}
    stores = {str(one["store"]) for one in whole.values()}
    rows = {
        "equal on Kafka": ", ".join(sorted(kafkas, key=lambda text: [int(part) for part in text.split(".")])),
        "equal on stores": ", ".join(sorted(stores, key=str.lower)),
        "equal with": "; ".join(name for name, one in whole.items() if name not in f"{one['kafka']} {one['store']}"),
        "refused": "; ".join(name for name in figures if name not in whole),
    }
    since = min(str(one["date"]) for one in figures.values())
    lines = [f"| full cycle | the oldest run is of {since} |", "| --- | --- |"]
    return "\n".join([*lines, *(f"| {name} | {text} |" for name, text in rows.items() if text)])


PAGES: Final[Mapping[Path, Callable[[Figures], str]]] = {
    REPOSITORY / "README.md": readme_table,
    REPOSITORY / "docs" / "proofs.md": proofs_table,
}


def main() -> None:
    """Write the tables again."""
    for path, table in PAGES.items():
        path.write_text(with_table(path.read_text(encoding="utf-8"), MARK, table(read())), encoding="utf-8")


if __name__ == "__main__":
    main()
