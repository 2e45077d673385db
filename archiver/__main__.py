"""The program: `archiver`, or `python -m archiver`."""

from archiver.import_path import leave_out_current_folder


def run() -> None:
    """Handle Ctrl-C before the rest is imported, which takes a while."""
    leave_out_current_folder()
    from archiver.interrupt import leave_when_interrupted  # noqa: PLC0415

    leave_when_interrupted()
    from archiver.cli import main  # noqa: PLC0415

    main.run()


if __name__ == "__main__":
    run()
