"""The program: `archiver`, or `python -m archiver`."""

from archiver.import_path import leave_out_current_folder


def run() -> None:
    """Be quiet about Ctrl-C before the rest is imported, which takes longer than it takes to press it."""
    leave_out_current_folder()
    from archiver.interrupt import leave_when_interrupted  # noqa: PLC0415

    leave_when_interrupted()
    from archiver.cli import main  # noqa: PLC0415

    main.run()


if __name__ == "__main__":
    run()
