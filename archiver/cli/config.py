"""`archiver config`: shows the configuration in force, and the reference of all keys."""

import argparse

from archiver.cli.options import (
    add_config,
    add_format,
    add_run,
    parser_of,
)
from archiver.cli.output import print_json, print_lines


def add_options(parser: argparse.ArgumentParser) -> None:
    ways = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    show = parser_of(ways, "show", "the configuration in effect, secrets masked")
    add_run(show, run_show)
    add_config(show)
    add_format(show)
    reference = parser_of(ways, "reference", "every key: what it takes, its default, its meaning")
    add_run(reference, run_reference)
    add_format(reference)


def run_show(options: argparse.Namespace) -> int:
    from archiver.config.load import load_config
    from archiver.config.reference import shown_config, yaml_lines
    from archiver.kafka.login.settings import KafkaSettings
    from archiver.store.address import group_of

    config = load_config(options.config)
    if config.kafka:
        KafkaSettings.of(config)
    found = shown_config(config, group_of(config))
    if options.format == "json":
        print_json(found)
    else:
        print_lines(yaml_lines(found))
    return 0


def run_reference(options: argparse.Namespace) -> int:
    from archiver.config.kafka_keys import KAFKA_KEYS
    from archiver.config.reference import keys, reference_page

    if options.format == "json":
        rows = [
            {"key": row.key, "takes": row.kind, "default": row.default, "meaning": row.meaning}
            for row in keys()
            if row.key != "kafka.*"
        ]
        kafka = [
            {"key": f"kafka.{key.name}", "takes": key.takes, "default": key.default, "meaning": key.describe()}
            for key in KAFKA_KEYS
        ]
        print_json([*rows, *kafka])
    else:
        print_lines(reference_page().rstrip().splitlines())
    return 0
