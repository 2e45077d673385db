"""What `pip install .` brings is enough for every command that the README says it is for."""

import subprocess
import sys

EXTRAS = ("pandas", "pyarrow", "pyspark", "py4j", "moto")
MODULES = (
    "archiver.cli.main",
    "archiver.backup.service.run_backup",
    "archiver.backup.service.run_service",
    "archiver.spark.query",
    "archiver.spark.restore",
    "archiver.spark.verify",
    "archiver.upkeep.inspection",
    "archiver.backup.service.backup_service",
    "archiver.backup.service.vitals",
    "archiver.archive.reading.holdings",
    "archiver.archive.reading.catalog",
)


def test_backup_ls_and_cat_need_no_extra() -> None:
    forbid = f"import sys; sys.modules.update(dict.fromkeys({EXTRAS}))"
    subprocess.run([sys.executable, "-c", f"{forbid}; import {', '.join(MODULES)}"], check=True, timeout=300)


def test_a_scan_is_planned_without_kernels() -> None:
    """Spark plans each table of a query in processes of their own: numba would be most of what they take."""
    forbid = "import sys; sys.modules['numba'] = None"
    subprocess.run([sys.executable, "-c", f"{forbid}; import archiver.spark.table.source"], check=True, timeout=300)
