"""Runs `query`: from the configuration to the rows of the answer."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from archiver.archive.format.handle import open_archive
from archiver.archive.reading.catalog import topic_names
from archiver.config.model import StorageConfig
from archiver.spark.session.background_start import spark_in_background

if TYPE_CHECKING:
    from archiver.spark.table.query import QueryAnswer


@contextmanager
def run_query(
    storage: StorageConfig,
    sql: str,
    options: Mapping[str, str],
    notice: Callable[[str], None],
    *,
    skips_damage: bool = False,
) -> "Iterator[QueryAnswer]":
    """Run one SQL query over topics; its rows can be read within the block. `options` are those of the data source."""
    with spark_in_background("query", notice, with_sql=True) as start_spark:
        from archiver.spark.table.query import ask  # noqa: PLC0415 - an extra that a backup does not need

        archive = open_archive(storage)
        topics = topic_names(archive)
        spark = start_spark()
        notice("looking for damage" if skips_damage else "planning")
        yield ask(spark, storage, topics, sql, options, skips_damage=skips_damage)
