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

Archives of 1,000, 10,000 and 100,000 objects: {shapes}. Each command runs in a process of its own: seconds include its start, and are the median of {repeat}; CPU is that process's. MinIO, and in a restore the broker, work beside it on the same cores. The index of facts exists: an `ls` before has written it.
Written by `python -m benchmarks.scale`; the figures are in `docs/growth.json`.

{date}, {cores} cores ({processor}), one-minute load after the run {load:.1f}.

{table}

![seconds over objects, both logarithmic](growth.svg)

A line that rises less than the dashed line grows less than the archive does.

{slopes}
{sweep}
## Memory

A store in memory makes up archives of up to ten million objects, with an index of four files; each command's planning runs in a process of its own. Bytes an object are the most that the process had in memory, less what it had before planning began (for small archives, much of that is code that is loaded then). A query plans one topic of ten; the index of all topics is read.
Written by `python -m benchmarks.planning --write`; the figures are in `docs/planning.json`. A test holds Python's own allocations below 200 bytes an object (`--traced`); the process takes more, and with few objects code and buffers weigh.

{memory}
"""


_SWEEP_TEXT = """
## A sweep

Archives of 5 topics of 100 partitions, of which all but the newest object of each partition goes: `archiver retention --without-kafka`, a process of its own, with its start and that of Spark; CPU and memory are those of all its processes, of which the JVM is the largest. MinIO works beside it on the same cores. In the archive of a million, which a store in memory makes up, partitions are surveyed one after the other, without Spark (below, under Memory).
Written by `python -m benchmarks.sweep --write`; the figures are in `docs/sweep.json`.

{date}, {cores} cores ({processor}), one-minute load after the run {load:.1f}.

{table}

![seconds over objects, both logarithmic](sweep.svg)

{slopes}
"""


def write_page(report: Mapping[str, Any]) -> None:
    """Write figures, page and picture."""
    REPORT.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    machine, figures = report["machine"], report["figures"]
    text = _TEXT.format(
        shapes=report["shapes"],
        repeat=report["repeat"],
        date=machine["date"],
        cores=machine["cores"],
        processor=machine["processor"],
        load=machine["load_after"],
        table=table(figures),
        slopes="\n".join(slopes(figures)),
        sweep=_write_sweep(json.loads(SWEEP.read_text(encoding="utf-8"))) if SWEEP.exists() else "",
        memory=memory_table(json.loads(MEMORY.read_text(encoding="utf-8"))) if MEMORY.exists() else "",
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
        slopes="\n".join(slopes(figures)),
    )


def table(figures: Figures) -> str:
    """Seconds, and CPU seconds where they are known."""
    sizes = _sizes(figures)
    lines = ["| | " + " | ".join(f"{size:,} objects" for size in sizes) + " |", "| --- |" + " --- |" * len(sizes)]
    for title, row in figures.items():
        lines.append(f"| {title} | " + " | ".join(_cell(row[str(size)]) for size in sizes) + " |")
    return "\n".join(lines)


def memory_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """A line for each run."""
    lines = ["| | objects | seconds (CPU) | bytes an object | the whole process | machine |", "| --- " * 6 + "|"]
    for row in sorted(rows, key=lambda one: (one["title"], one["objects"])):
        machine = f"{row['date']}, {row['cores']} cores ({row['processor']}), load {row['load']:.1f}"
        lines.append(
            f"| {row['title']} | {row['objects']:,} | {row['seconds']:.1f} ({row['cpu_seconds']:.1f}) |"
            f" {row['most_bytes'] / row['objects']:.0f} | {row['whole_bytes'] / 1e6:,.0f} MB | {machine} |"
        )
    return "\n".join(lines)


def _cell(figures: Mapping[str, float]) -> str:
    cpu = f" ({figures['cpu_seconds']:.2f} CPU)" if "cpu_seconds" in figures else ""
    memory = f", {figures['megabytes']:,.0f} MB" if "megabytes" in figures else ""
    return f"{figures['seconds']:.2f} s{cpu}{memory}"


def slopes(figures: Figures) -> list[str]:
    """How much longer ten times the objects take, in the last step."""
    *_, before, last = _sizes(figures)
    return [
        f"- {title}: {row[str(last)]['seconds'] / row[str(before)]['seconds']:.1f} times the time for"
        f" {last / before:g} times the objects ({before:,} to {last:,})"
        for title, row in figures.items()
    ]


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
