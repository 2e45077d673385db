"""`archiver compacted run`: its options."""

import argparse
from contextlib import closing

from archiver.cli.options import add_config, add_run


def add_options(parser: argparse.ArgumentParser) -> None:
    add_run(parser, run)
    add_config(parser)
    parser.add_argument("--instance", required=True, metavar="NAME", help="which of compacted.instances this is")
    parser.add_argument(
        "--initial-role",
        choices=("active", "passive"),
        default="passive",
        help="active: begin at once where no copy holds yet; passive: leave that to the other instance, for ten minutes"
        " (default: passive)",
    )


def run(options: argparse.Namespace) -> int:
    from archiver.config.environment import failpoint
    from archiver.config.load import load_config

    config = load_config(options.config)  # before the kernels are imported, which may compile them

    from archiver.backup.compacted.work.run_instance import run_instance
    from archiver.process.output.progress import Progress
    from archiver.process.running.failpoints import arm

    arm(failpoint())
    progress = Progress("compacted", quiet=options.quiet, every_s=60.0)
    with closing(progress):
        run_instance(
            config,
            options.instance,
            begins_first=options.initial_role == "active",
            notice=progress.report,
            say=progress.announce,
        )
    return 0
