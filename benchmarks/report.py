"""Makes medians, ratios and the page docs/benchmarks.md of the rows of a run."""

import os
import platform
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"
BEGIN, END = "<!-- results: written by make bench -->", "<!-- end of results -->"
_PACKAGES = (
    "numpy",
    "numba",
    "zstandard",
    "cramjam",
    "aiokafka",
    "boto3",
    "confluent-kafka",
    "fastavro",
    "pyspark",
)
Row = dict[str, Any]


def machine_facts(kafka: str) -> Row:
    """What the figures depend on."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cores": os.cpu_count(),
        "processor": _processor(),
        "memory_gib": round(memory / 2**30, 1),
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "kafka": kafka,
        "packages": {name: version(name) for name in _PACKAGES},
        "load_after": os.getloadavg()[0],
    }


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def summarise(runs: Sequence[Row]) -> list[Row]:
    """Medians of each size, operation and tool; with the start of the program, and without."""
    starts = {
        (row["operation"], row["tool"]): _least([other for other in _of(runs, "start") if _same(row, other)])
        for row in _of(runs, "start")
    }
    summary: list[Row] = []
    for size in sorted({row["size"] for row in _of(runs, "run")}):
        for operation in ("backup", "restore"):
            pair = [
                _summary([row for row in _of(runs, "run") if _is(row, size, operation, tool)], starts[operation, tool])
                for tool in ("baseline", "ours")
            ]
            summary.append({"size": size, "operation": operation, "baseline": pair[0], "ours": pair[1]})
    return summary


def _of(runs: Iterable[Row], kind: str) -> list[Row]:
    return [row for row in runs if row["kind"] == kind]


def _same(one: Row, other: Row) -> bool:
    return (one["operation"], one["tool"]) == (other["operation"], other["tool"])


def _is(row: Row, size: int, operation: str, tool: str) -> bool:
    return (row["size"], row["operation"], row["tool"]) == (size, operation, tool)


def _medians(rows: Sequence[Row]) -> Row:
    names = [name for name, value in rows[0].items() if isinstance(value, int | float)]
    return {name: median(row[name] for row in rows) for name in names}


def _least(rows: Sequence[Row]) -> Row:
    """Return the least of several times of a start: only other work on the machine makes a start longer."""
    return min(rows, key=lambda row: float(row["cpu_seconds"]))


def _summary(rows: Sequence[Row], start: Row) -> Row:
    found = _medians(rows)
    records = found["records"]
    # A restore's start is seen in each run: until its first record reached the target.
    starts = [row["first_landed_seconds"] if "first_landed_seconds" in row else start["seconds"] for row in rows]
    start_seconds = median(starts)
    rest_seconds = median(row["seconds"] - one for row, one in zip(rows, starts, strict=True))
    rates = [row["records"] / row["seconds"] for row in rows]
    return found | {
        "rate": records / found["seconds"],
        "slowest_rate": min(rates),
        "fastest_rate": max(rates),
        "start_seconds": start_seconds,
        "rate_without_start": _rate(records, found["seconds"], rest_seconds),
        "cpu_us": 1e6 * found["cpu_seconds"] / records,
        "start_cpu_seconds": start["cpu_seconds"],
        "cpu_us_without_start": _cpu_us(records, found["cpu_seconds"], start["cpu_seconds"]),
        **({"stored_a_record": found["stored_bytes"] / records} if "stored_bytes" in found else {}),
    }


def _rate(records: int, seconds: float, rest_seconds: float) -> float | None:
    """Return a rate without the start; None where nearly all of the time was start: the difference then says nothing."""
    return records / rest_seconds if rest_seconds > seconds / 10 else None


def _cpu_us(records: int, seconds: float, start_seconds: float) -> float | None:
    """None for the same reason."""
    rest = seconds - start_seconds
    return 1e6 * rest / records if rest > seconds / 10 else None


def ratios(summary: Sequence[Row]) -> dict[str, float | None]:
    """Ours against the baseline; more is better, but for the bytes and the memory."""
    found: dict[str, float | None] = {}
    for pair in summary:
        what, ours, baseline = f"{pair['operation']}, {pair['size']} B", pair["ours"], pair["baseline"]
        found[f"{what}: records/s"] = ours["rate"] / baseline["rate"]
        found[f"{what}: records/s, start apart"] = _divide(ours["rate_without_start"], baseline["rate_without_start"])
        found[f"{what}: CPU a record, times less"] = baseline["cpu_us"] / ours["cpu_us"]
        found[f"{what}: the same, start apart"] = _divide(
            baseline["cpu_us_without_start"], ours["cpu_us_without_start"]
        )
        if "stored_a_record" in ours:
            found[f"{what}: stored bytes"] = ours["stored_a_record"] / baseline["stored_a_record"]
            found[f"{what}: peak memory, MB"] = ours["peak_memory_bytes"] / 1e6
        else:
            found[f"{what}: seconds to the first record"] = ours["first_landed_seconds"]
            found[f"{what}: largest task process, MB"] = ours["peak_task_bytes"] / 1e6
    return found


def compare_with_recorded(now: Row, recorded: Row) -> str:
    """Return the ratios of this run, the recorded ones, and their difference. A run of few records is exact to about a quarter."""
    lines = [f"{'':48}{'now':>10}{recorded['date']:>22}{'change':>9}"]
    for name, value in now["ratios"].items():
        before = recorded["ratios"].get(name)
        change = f"{value / before - 1:+9.0%}" if value and before else f"{'-':>9}"
        lines.append(f"{name:48}{_figure(value):>10}{_figure(before):>22}{change}")
    return "\n".join(lines)


def _figure(value: float | None) -> str:
    return f"{value:.2f}" if value else "-"


def _divide(one: float | None, other: float | None) -> float | None:
    return one / other if one and other else None


def _ratio(one: float | None, other: float | None) -> str:
    ratio = _divide(one, other)
    return f"{ratio:.1f}x" if ratio else "not known, too few records,"


# --- the page


def write_page(found: Row) -> None:
    """Put the results between the markers of docs/benchmarks.md."""
    page = PAGE.read_text(encoding="utf-8")
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise RuntimeError(f"{PAGE} has lost its markers {BEGIN} and {END}")
    PAGE.write_text(f"{before}{BEGIN}\n{results(found)}\n{END}{after}", encoding="utf-8")


def results(found: Row) -> str:
    """Tables and ratios, as Markdown."""
    parts = [_machine(found)]
    for operation in ("backup", "restore"):
        pairs = [pair for pair in found["summary"] if pair["operation"] == operation]
        parts += [f"### {operation.capitalize()}", _figures(pairs), _ratios(pairs)]
    parts += [_restore_parts(found["summary"]), "### Where the CPU of a backup goes", _stages(found["stages"])]
    return "\n\n".join(parts)


def _machine(found: Row) -> str:
    machine, settings = found["machine"], found["settings"]
    packages = ", ".join(f"{name} {number}" for name, number in machine["packages"].items())
    topics = "; ".join(
        f"{topic['records']:,} records of {topic['bytes_a_record']:.1f} B" for topic in found["topics"].values()
    )
    return (
        f"{machine['date']}, {machine['cores']} cores ({machine['processor']}), {machine['memory_gib']} GiB, {machine['system']},"
        f" Python {machine['python']}, Kafka {machine['kafka']}, {packages}. One-minute load after the run: {machine['load_after']:.1f}.\n\n"
        f"Data: {topics}; 4 partitions, lz4 in Kafka, zstandard {settings['level']} in the archive, seed {settings['seed']}."
        f" Median of {settings['repetitions']}.{_part(settings['baseline_part'])}"
    )


def _part(part: int) -> str:
    return f" The baseline has a topic of its own with a {part}th of the records." if part > 1 else ""


def _figures(pairs: Sequence[Row]) -> str:
    head = "| record | tool | records/s (without start) | slowest…fastest | CPU µs/record (without start) | peak memory | stored B/record |"
    lines = [head, "|" + " --- |" * 7]
    lines += [_figure_line(pair["size"], tool, pair[tool]) for pair in pairs for tool in ("baseline", "ours")]
    return "\n".join(lines)


def _figure_line(size: int, tool: str, found: Row) -> str:
    stored = f"{found['stored_a_record']:.2f}" if "stored_a_record" in found else "-"
    without = f"{found['rate_without_start']:,.0f}" if found["rate_without_start"] else "-"
    cpu_without = f"{found['cpu_us_without_start']:.2f}" if found["cpu_us_without_start"] else "-"
    return (
        f"| {size} B | {tool} | {found['rate']:,.0f} ({without}) | {found['slowest_rate']:,.0f}…{found['fastest_rate']:,.0f} |"
        f" {found['cpu_us']:.2f} ({cpu_without}) | {found['peak_memory_bytes'] / 1e6:,.0f} MB | {stored} |"
    )


def _ratios(pairs: Sequence[Row]) -> str:
    lines = []
    for pair in pairs:
        ours, baseline = pair["ours"], pair["baseline"]
        text = (
            f"{pair['size']} B: **{ours['rate'] / baseline['rate']:.1f}x** the records/s"
            f" ({_ratio(ours['rate_without_start'], baseline['rate_without_start'])}),"
            f" **{baseline['cpu_us'] / ours['cpu_us']:.1f}x less CPU** a record"
            f" ({_ratio(baseline['cpu_us_without_start'], ours['cpu_us_without_start'])})"
        )
        if "stored_a_record" in ours:
            text += f", {ours['stored_a_record'] / baseline['stored_a_record']:.3f}x the stored bytes"
        lines.append(f"- {text}.")
    return "\n".join(lines)


def _restore_parts(summary: Sequence[Row]) -> str:
    """Spark's start apart: until the first record reached the target, then until the last, then until the command ended."""
    lines = [
        "| record | tool | seconds to the first record, to the last, to the end | in tasks: fill, verify | largest task process |",
        "|" + " --- |" * 5,
    ]
    for pair in summary:
        for tool in ("baseline", "ours"):
            found = pair[tool]
            if "last_landed_seconds" not in found:
                continue
            tasks = "- | -"
            if "task_seconds" in found:
                tasks = f"{found['task_seconds']:.2f}, {found['verify_seconds']:.2f} | {found['peak_task_bytes'] / 1e6:,.0f} MB"
            first, last = found["first_landed_seconds"], found["last_landed_seconds"]
            lines.append(
                f"| {pair['size']} B | {tool} | {first:.2f}, {last - first:.2f}, {found['seconds'] - last:.2f} | {tasks} |"
            )
    return "\n".join(lines)


def _stages(stages: Row) -> str:
    sizes = list(stages)
    names = list(stages[sizes[0]]["microseconds"])
    lines = [
        "| stage | " + " | ".join(f"{size} B: CPU µs/record" for size in sizes) + " |",
        "|" + " --- |" * (1 + len(sizes)),
    ]
    for name in names:
        cells = [f"{stages[size]['microseconds'][name]:.3f} ({stages[size]['share'][name]:.0%})" for size in sizes]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    sums = [f"{sum(stages[size]['microseconds'].values()):.3f}" for size in sizes]
    lines.append("| all | " + " | ".join(sums) + " |")
    return "\n".join(lines)
