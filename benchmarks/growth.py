"""The page docs/growth.md and its picture, from what benchmarks.scale measured (docs/growth.json)."""

import json
import math
from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

DOCS = Path(__file__).resolve().parents[1] / "docs"
REPORT, PAGE, PICTURE = DOCS / "growth.json", DOCS / "growth.md", DOCS / "growth.svg"
MEMORY = DOCS / "planning.json"  # what benchmarks.planning measured
SWEEP, SWEEP_PICTURE = DOCS / "sweep.json", DOCS / "sweep.svg"  # what benchmarks.sweep measured

Figures = Mapping[str, Mapping[str, Mapping[str, float]]]  # what -> objects -> seconds and more

_WIDTH, _HEIGHT = 900, 470
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 640, 20, 420
_LEAST_S, _MOST_S = 0.1, 100.0
_COLOURS = ("#1b6ca8", "#d1495b", "#3a7d44", "#8f5db7", "#c77d0a", "#5b6770", "#0f8b8d", "#a23e48")
_LABEL_HEIGHT = 17

_TEXT = """# What a larger archive costs

Archives: {shapes}. Seconds are the median of {repeat}, with the command's start (CPU). The index of facts exists. MinIO, and in a restore the broker, use the same cores. The last column is the growth of time in the last step.

`python -m benchmarks.scale`, {date}, {cores} cores ({processor}), load {load:.1f}; `docs/growth.json`:

{table}

![seconds over objects, both logarithmic](growth.svg)
{sweep}
## Memory

Made-up archives in memory, with an index of four files; one process a command. A cell has seconds (CPU), bytes an object that planning added, and the whole process. A query plans one topic of ten; a sweep runs without Spark. A test limits Python's allocations to 200 bytes an object (`--traced`).

`python -m benchmarks.planning --write`, {machines}; `docs/planning.json`:

{memory}
"""


_SWEEP_TEXT = """
## A sweep

`archiver retention --without-kafka` of 5 topics of 100 partitions: all but the newest object of each goes. CPU and memory are of all processes, with the starts of command and JVM.

`python -m benchmarks.sweep --write`, {date}, {cores} cores ({processor}), load {load:.1f}; `docs/sweep.json`:

{table}

![seconds over objects, both logarithmic](sweep.svg)
"""


def write_page(report: Mapping[str, Any]) -> None:
    """Write figures, page and picture."""
    REPORT.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    machine, figures = report["machine"], report["figures"]
    planned = json.loads(MEMORY.read_text(encoding="utf-8")) if MEMORY.exists() else []
    text = _TEXT.format(
        shapes=report["shapes"],
        repeat=report["repeat"],
        date=machine["date"],
        cores=machine["cores"],
        processor=machine["processor"],
        load=machine["load_after"],
        table=table(figures),
        sweep=_write_sweep(json.loads(SWEEP.read_text(encoding="utf-8"))) if SWEEP.exists() else "",
        machines=_planned_on(planned),
        memory=memory_table(planned),
    )
    PAGE.write_text(text, encoding="utf-8")
    PICTURE.write_text(picture(figures), encoding="utf-8")


def _write_sweep(report: Mapping[str, Any]) -> str:
    """Draw the picture of sweeps; return their part of the page."""
    machine, figures = report["machine"], report["figures"]
    SWEEP_PICTURE.write_text(picture(figures), encoding="utf-8")
    return _SWEEP_TEXT.format(
        date=machine["date"],
        cores=machine["cores"],
        processor=machine["processor"],
        load=machine["load_after"],
        table=table(figures),
    )


def table(figures: Figures) -> str:
    """Seconds, CPU seconds where they are known, and how much longer the last step took."""
    sizes = _sizes(figures)
    *_, before, last = sizes
    heads = [*(f"{size:,} objects" for size in sizes), f"{last / before:g} times as many"]
    lines = ["| | " + " | ".join(heads) + " |", "| --- |" + " --- |" * len(heads)]
    for title, row in figures.items():
        cells = [
            *(_cell(row[str(size)]) for size in sizes),
            f"{row[str(last)]['seconds'] / row[str(before)]['seconds']:.1f}x",
        ]
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def memory_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """A line for each command: seconds, CPU seconds, bytes an object, and the whole process."""
    sizes = sorted({row["objects"] for row in rows})
    lines = ["| | " + " | ".join(f"{size:,} objects" for size in sizes) + " |", "| --- |" + " --- |" * len(sizes)]
    cells = {
        (row["title"], row["objects"]): f"{row['seconds']:.1f} s ({row['cpu_seconds']:.1f}),"
        f" {row['most_bytes'] / row['objects']:.0f} B, {row['whole_bytes'] / 1e6:,.0f} MB"
        for row in rows
    }
    lines += [
        f"| {title} | " + " | ".join(cells.get((title, size), "-") for size in sizes) + " |"
        for title in sorted({row["title"] for row in rows})
    ]
    return "\n".join(lines)


def _planned_on(rows: Sequence[Mapping[str, Any]]) -> str:
    """Dates, machines and the highest load of these runs."""
    runs = sorted({f"{row['date'].split()[0]}, {row['cores']} cores ({row['processor']})" for row in rows})
    return f"{'; '.join(runs)}, load up to {max((row['load'] for row in rows), default=0):.1f}"


def _cell(figures: Mapping[str, float]) -> str:
    cpu = f" ({figures['cpu_seconds']:.2f})" if "cpu_seconds" in figures else ""
    memory = f", {figures['megabytes']:,.0f} MB" if "megabytes" in figures else ""
    return f"{figures['seconds']:.2f} s{cpu}{memory}"


def picture(figures: Figures) -> str:
    """Draw seconds over objects, both axes logarithmic."""
    sizes = _sizes(figures)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" font-size="13">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
    ]
    for seconds in (0.1, 1, 10, 100):
        y = _y(seconds)
        parts.append(f'<line x1="{_LEFT}" x2="{_RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end" fill="#444">{seconds:g} s</text>')
    for size in sizes:
        x = _x(size, sizes)
        parts.append(f'<text x="{x:.1f}" y="{_BOTTOM + 22}" text-anchor="middle" fill="#444">{size:,} objects</text>')
    guide = [(size, 0.15 * size / sizes[0]) for size in sizes]
    parts.append(_line(guide, sizes, "#999", ' stroke-dasharray="6 5"'))
    labels = [(_y(guide[-1][1]), "#777", "linear")]
    for (title, row), colour in zip(figures.items(), cycle(_COLOURS), strict=False):
        points = [(size, row[str(size)]["seconds"]) for size in sizes]
        parts.append(_line(points, sizes, colour))
        parts += [
            f'<circle cx="{_x(size, sizes):.1f}" cy="{_y(seconds):.1f}" r="3.5" fill="{colour}"/>'
            for size, seconds in points
        ]
        labels.append((_y(points[-1][1]), colour, f"{points[-1][1]:.1f} s  {title.replace('`', '')}"))
    least = 0.0
    for y, colour, text in sorted(labels):
        least = max(y + 4, least + _LABEL_HEIGHT)
        parts.append(f'<text x="{_RIGHT + 10}" y="{least:.1f}" fill="{colour}">{escape(text)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _line(points: Sequence[tuple[int, float]], sizes: Sequence[int], colour: str, more: str = "") -> str:
    path = " ".join(f"{_x(size, sizes):.1f},{_y(seconds):.1f}" for size, seconds in points)
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{more}/>'


def _x(size: int, sizes: Sequence[int]) -> float:
    share = math.log(size / sizes[0]) / math.log(sizes[-1] / sizes[0])
    return _LEFT + 20 + share * (_RIGHT - _LEFT - 40)


def _y(seconds: float) -> float:
    share = math.log(max(seconds, _LEAST_S) / _LEAST_S) / math.log(_MOST_S / _LEAST_S)
    return _BOTTOM - share * (_BOTTOM - _TOP)


def _sizes(figures: Figures) -> list[int]:
    return sorted(map(int, next(iter(figures.values()))))


if __name__ == "__main__":
    write_page(json.loads(REPORT.read_text(encoding="utf-8")))
