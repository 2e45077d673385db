"""The program: parses the command line, runs the command, and returns its exit code."""

import argparse
import io
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

from archiver.cli.commands import build_parser
from archiver.cli.output import cannot_be_written, complain, complain_of
from archiver.cli.relative_times import resolve_times
from archiver.errors import ArchiverError, StoppedError
from archiver.interrupt import ENDING, leave, overlook_repeats
from archiver.process.running.memory import tune_memory


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    tune_memory()
    # numpy starts a thread for each core for linear algebra, which we never do: 0.15 s of CPU at each start.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # noqa: TID251 - set, not read
    given = sys.argv[1:] if arguments is None else list(arguments)
    typed = resolve_times(given)
    options = build_parser(typed[0] if typed else "").parse_args(typed)
    options.typed, options.is_resolved = typed, typed != given
    from archiver.process.output.logs import set_up_logs

    if options.no_color:
        os.environ["NO_COLOR"] = "1"  # noqa: TID251 - set, not read
    set_up_logs(options.log_format, verbose=options.verbose, quiet=options.quiet)
    command: Callable[[argparse.Namespace], int] = options.command
    try:
        with _interruptible():
            return command(options)
    except ArchiverError as error:
        complain_of(error)
        return error.exit_code
    except KeyboardInterrupt as error:
        complain_of(error)
        return StoppedError.exit_code
    except Exception as error:  # noqa: BLE001 - a defect of ours: one line, and a file
        from archiver.process.output.defects import as_ours

        complain(as_ours(error))
        return ArchiverError.exit_code


@contextmanager
def _interruptible() -> Iterator[None]:
    """Make Ctrl-C and SIGTERM raise KeyboardInterrupt while a command runs, so that it cleans up."""
    ours = [number for number in ENDING if signal.getsignal(number) is leave]
    for number in ours:
        signal.signal(number, ENDING[number])
    try:
        yield
    finally:
        for number in ours:
            if signal.getsignal(number) is not overlook_repeats:
                signal.signal(number, leave)


def run() -> NoReturn:
    """Run the program, and end the process at once: an orderly end of the interpreter takes half a second, and is of no use."""
    _open_streams()
    try:
        exit_code = main()
    except SystemExit as done:  # raised by argparse, after --help or a mistake
        exit_code = int(done.code or 0)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        pass
    except OSError as error:
        complain(cannot_be_written(error))
        exit_code = exit_code or ArchiverError.exit_code
    logging.shutdown()
    if "archiver.spark.session.isolation" in sys.modules:
        from archiver.spark.session.isolation import remove_unowned

        remove_unowned()
    if "archiver.spark.session.spark_submit" in sys.modules:
        from archiver.spark.session.spark_submit import end_output

        end_output()
    os._exit(exit_code)


def _open_streams() -> None:
    """Open closed streams (`>&-`) to /dev/null, and set stdout to UTF-8: a record may have any character, and JSON is UTF-8."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(opened, True)
            setattr(sys, name, os.fdopen(opened, "w" if number else "r", encoding="utf-8"))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")


if __name__ == "__main__":
    run()
