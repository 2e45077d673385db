"""`archiver drill`: its options, its run, its check of a report, and their printers."""

import argparse
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from archiver.cli.jobs import add_job
from archiver.cli.options import add_archive, add_format, archive_config, duration
from archiver.cli.output import complain, print_json, print_lines
from archiver.cli.spelling import moment, table_lines
from archiver.errors import ArchiverError, NotWholeError, UsageError
from archiver.process.output.text import spell_count


def add_options(parser: argparse.ArgumentParser) -> None:
    add_job(parser, run, "drill")
    add_archive(parser)
    add_format(parser)
    parser.add_argument("--target", type=Path, metavar="FILE", help="YAML file with the target's kafka: section")
    parser.add_argument(
        "--topics", metavar="REGEX", help="topics whose whole name matches (default: all but those that begin with __)"
    )
    parser.add_argument(
        "--last", metavar="TIME", type=duration, help="only records of so long before now, such as 2h (default: all)"
    )
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the report there, as JSON")
    parser.add_argument("--sign-key", type=Path, metavar="FILE", help="sign the report by this Ed25519 key (PEM)")
    checked = parser.add_argument_group("check a report, in place of a drill")
    checked.add_argument("--check", type=Path, metavar="REPORT", help="a signed report")
    checked.add_argument("--key", type=Path, metavar="FILE", help="the public key that must have signed it (PEM)")


def run(options: argparse.Namespace) -> int:
    if options.check is not None or options.key is not None:
        return _check(options)
    if options.target is None:
        raise UsageError("--target: give the YAML file of the cluster to restore into, or --check REPORT --key FILE")
    from archiver.config.environment import failpoint
    from archiver.config.load import load_target
    from archiver.process.output.progress import Progress
    from archiver.process.running.failpoints import arm
    from archiver.process.values.signed_json import SIGN_KEY, load_key, sign
    from archiver.spark.drill import run_drill

    key = None if options.sign_key is None else load_key(SIGN_KEY, options.sign_key)
    if options.report is not None and not options.report.parent.is_dir():
        raise UsageError(f"--report {options.report}: there is no folder {options.report.parent}")
    config = archive_config(options)
    options.job.storage = config.storage
    arm(failpoint())
    with closing(Progress("drill", quiet=options.quiet)) as progress:
        drill = run_drill(
            config,
            load_target(options.target),
            topics=options.topics,
            last_ms=options.last,
            notice=progress.report,
        )
    signed = sign(drill.report, key)
    if options.report is not None:
        _write(options.report, signed)
    if options.format == "json":
        print_json(signed)
    else:
        print_lines(report_lines(drill.report))
    for problem in drill.problems:
        complain(problem)
    return drill.exit_code


def _write(path: Path, signed: Mapping[str, Any]) -> None:
    from archiver.process.values.signed_json import canonical

    try:
        path.write_bytes(canonical(signed) + b"\n")
    except OSError as error:
        raise ArchiverError(f"--report {path}: could not be written: {error.strerror}") from error


def _check(options: argparse.Namespace) -> int:
    """Check a report's signature. A drill that has not passed is exit code 3, too."""
    from archiver.process.values.signed_json import load_key, read_signed

    if options.check is None or options.key is None:
        raise UsageError("--check REPORT goes with --key FILE")
    report = read_signed(options.check, load_key("--key", options.key))
    if report.get("format") != 1 or "drill" not in report:
        raise UsageError(f"{options.check}: is no report of a drill, or one of a newer version")
    if options.format == "json":
        print_json(report)
    else:
        print_lines([*report_lines(report), "the signature is of this report, and by this key"])
    if report.get("passed") is True:
        return 0
    complain(f"{options.check}: the drill has not passed")
    return NotWholeError.exit_code


def report_lines(report: Mapping[str, Any]) -> Iterator[str]:
    topics = report["topics"]
    rows = [
        (name, f"{one['records']:,}", "" if one["newest_ms"] is None else moment(one["newest_ms"]))
        for name, one in topics.items()
    ]
    yield from table_lines(("topic", "records", "newest"), rows)
    groups = report["groups"]
    if groups is not None:
        yield f"{spell_count(groups['positions'], 'position')} of groups translated, {groups['compared']:,} compared by their records"
    yield (
        f"{report['drill']} of {moment(report['begun_ms'])}: {sum(one['records'] for one in topics.values()):,} records restored in"
        f" {report['rto_ms'] / 1000:.1f} s (RTO), {spell_count(report['objects'], 'object')} compared with their facts"
    )
    if report["rpo_ms"] is not None:
        yield f"the newest record of the topic that is furthest behind was {report['rpo_ms'] / 1000:.0f} s old (RPO, at most)"
    yield "passed" if report["passed"] else f"NOT PASSED: {spell_count(len(report['problems']), 'finding')}"
