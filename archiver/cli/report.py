"""`archiver report`: its options and its run, which writes one HTML page."""

import argparse
from pathlib import Path

from archiver.cli.jobs import add_job
from archiver.cli.options import add_archive, archive_config, duration, pattern
from archiver.cli.output import complain, print_line, write_file
from archiver.errors import NotWholeError


def add_options(parser: argparse.ArgumentParser) -> None:
    add_job(parser, run)
    add_archive(parser)
    parser.add_argument("--html", required=True, type=Path, metavar="FILE", help="the page to write")
    parser.add_argument("--topics", metavar="REGEX", default=".*", help="full-match regular expression (default: all)")
    parser.add_argument("--last", type=duration, metavar="AGE", help="the length of the time lines (30d; default: all)")
    prices = parser.add_argument_group("prices", "the defaults are examples: give those of your store")
    prices.add_argument(
        "--price-gb", type=float, default=0.023, metavar="N", help="of 2^30 bytes a month (default: 0.023)"
    )
    prices.add_argument("--price-puts", type=float, default=0.005, metavar="N", help="of 1,000 puts (default: 0.005)")
    prices.add_argument("--currency", default="USD", metavar="NAME", help="shown with prices (default: USD)")


def run(options: argparse.Namespace) -> int:
    from archiver import __version__
    from archiver.archive.format.handle import open_archive
    from archiver.archive.format.store_clock import machine_now_ms
    from archiver.cli.status import status_row
    from archiver.process.output.text import spell_size
    from archiver.upkeep.report.contents import ReportRequest, collect_report
    from archiver.upkeep.report.page import page_of
    from archiver.upkeep.run_status import read_status

    topics, prices = pattern("--topics", options.topics), (options.price_gb, options.price_puts, options.currency)
    config = archive_config(options).storage
    asked = ReportRequest(topics, options.last, *prices)
    archive, now_ms = open_archive(config), machine_now_ms()
    found = collect_report(archive, asked, config.index, now_ms)
    status = status_row(read_status(archive, now_ms, {}), None)
    page = page_of({"url": config.url, "version": __version__, "status": status, **found})
    write_file(options.html, page)
    print_line(f"{options.html}: {spell_size(len(page))}")
    for problem in found["problems"]:
        complain(problem)
    return NotWholeError.exit_code if found["problem_count"] else 0
