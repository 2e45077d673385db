"""The program for spark-submit, with the whole command line: `spark-submit ... submit.py restore ...` (docs/clusters.md)."""

import sys
from pathlib import Path


def main() -> None:
    """Run the command line."""
    # Python has put this file's folder first in the path, where the names of our modules would hide others'.
    here = str(Path(__file__).resolve().parent)
    sys.path[:] = [place for place in sys.path if str(Path(place).resolve()) != here or not place]
    try:
        from archiver.import_path import leave_out_current_folder  # noqa: PLC0415 - now found where it is installed

        leave_out_current_folder()
        from archiver.cli.main import run  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise SystemExit(
            f"archiver: {sys.executable} has no {error.name}: run the driver by a Python that has the archiver, such as"
            " the packed environment's (--conf spark.pyspark.python=./env/bin/python, docs/clusters.md)"
        ) from None
    run()


if __name__ == "__main__":
    main()
