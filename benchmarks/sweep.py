"""How a retention sweep grows with the archive: 10,000, 50,000 and 100,000 objects over 500 partitions, nearly all of which go.

`python -m benchmarks.sweep` starts a MinIO of its own, fills it (100,000 objects take some minutes), and runs
`archiver retention --without-kafka` on it twice: to show what goes, and to delete it. Each is a process of its own, its start
and that of Spark included; CPU and memory are those of all its processes, Spark's workers and JVM among them. Figures are
printed and, with `--write`, put into docs/sweep.json and docs/growth.md. `--objects 10000` measures the smallest alone.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.growth import REPORT, SWEEP, write_page
from benchmarks.measure import Usage, run_measured
from benchmarks.report import machine_facts
from benchmarks.scale import Shape, make_bucket
from benchmarks.servers import environment_for, own_minio
from tests.support.brokers import KAFKA_41, S3
from tests.support.foreign_reader import open_client

SIZES = 10_000, 50_000, 100_000
TOPICS, PARTITIONS = 5, 100
_CONFIG = """\
storage: {{url: "s3://{bucket}", endpoint: "{endpoint}"}}
retention: {{min-object-age: 0, fixed: {{ms: 1d}}}}
"""
_RUNS = {
    "a sweep, shown": ["--dry-run"],
    "a sweep that deletes": ["--yes"],
}


def measure(minio: S3, shape: Shape, folder: Path) -> dict[str, Usage]:
    """Show what goes, then delete it; and look that nothing else went."""
    config = folder / "sweep.yaml"
    config.write_text(_CONFIG.format(bucket=shape.bucket, endpoint=minio.endpoint), encoding="utf-8")
    found = {}
    for title, options in _RUNS.items():
        command = [sys.executable, "-m", "archiver", "retention", "-c", str(config), "--without-kafka", *options]
        found[title], _ = run_measured(command, folder / "usage.json", environment_for(minio))
        print(f"{shape.objects:,} objects, {title}: {spell(found[title])}", flush=True)
    left = sum(
        len(page.get("Contents", ()))
        for page in open_client(minio).get_paginator("list_objects_v2").paginate(Bucket=shape.bucket, Prefix="topics/")
    )
    if left != TOPICS * PARTITIONS:
        raise RuntimeError(f"{left} objects are left, and not the newest of each of {TOPICS * PARTITIONS} partitions")
    return found


def spell(usage: Usage) -> str:
    return f"{usage.seconds:.1f} s ({usage.cpu_seconds:.1f} CPU), {usage.peak_memory_bytes / 1e6:,.0f} MB"


def figures_of(found: dict[int, dict[str, Usage]]) -> dict[str, dict[str, dict[str, float]]]:
    """By what was run, then by the number of objects."""
    return {
        title: {
            str(objects): {
                "seconds": round(runs[title].seconds, 2),
                "cpu_seconds": round(runs[title].cpu_seconds, 2),
                "megabytes": round(runs[title].peak_memory_bytes / 1e6),
            }
            for objects, runs in found.items()
        }
        for title in _RUNS
    }


def measure_all(sizes: Sequence[int]) -> dict[int, dict[str, Usage]]:
    found = {}
    with own_minio() as minio, tempfile.TemporaryDirectory() as folder:
        for objects in sizes:
            shape = Shape(TOPICS, objects, PARTITIONS)
            make_bucket(minio, shape)
            found[objects] = measure(minio, shape, Path(folder))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", type=int, choices=SIZES, action="append", help="default: all of them")
    parser.add_argument("--write", action="store_true", help="the figures into docs/sweep.json and docs/growth.md")
    options = parser.parse_args()
    found = measure_all(options.objects or SIZES)
    if options.write:
        machine = machine_facts(KAFKA_41)
        SWEEP.write_text(
            json.dumps({"machine": machine, "figures": figures_of(found)}, indent=1) + "\n", encoding="utf-8"
        )
        write_page(json.loads(REPORT.read_text(encoding="utf-8")))


if __name__ == "__main__":
    main()
