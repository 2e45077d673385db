"""`query`, from a configuration to its rows."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from archiver.archive.catalog import topic_names
from archiver.archive.layout import Layout
from archiver.config.model import StorageConfig
from archiver.spark.optional import spark_beside
from archiver.store.s3 import open_store

if TYPE_CHECKING:
    from archiver.spark.table.query import Answer


@contextmanager
def run_query(
    storage: StorageConfig,
    sql: str,
    options: Mapping[str, str],
    notice: Callable[[str], None],
    *,
    skips_damage: bool = False,
) -> "Iterator[Answer]":
    """Run one SQL query over topics; its rows come for as long as the block lasts. `options` are those of the data source."""
    with spark_beside("query", notice, with_sql=True) as start_spark:
        from archiver.spark.table.query import ask  # noqa: PLC0415 - an extra that a backup does not need

        store, prefix = open_store(storage)
        topics = topic_names(store, Layout(prefix))
        spark = start_spark()
        notice("looking for damage" if skips_damage else "planning")
        yield ask(spark, storage, topics, sql, options, skips_damage=skips_damage)
