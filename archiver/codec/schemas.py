"""Loads the Avro schemas of the archive as text, from `schemas/` in a checkout or `archiver/schemas` inside a wheel."""

from functools import cache
from importlib.resources import files
from pathlib import Path

RECORD = "AvroKafkaRecord-v2.0"
RECORD_V1 = "AvroKafkaRecord-v1.0"
RECORD_V1_NULLABLE = "AvroKafkaRecord-v1.0-nullable"
COORDINATION = "AvroCompactedLogBackupCoordination-v1.0"
OFFSET_RUN = "OffsetRun-v1.0"
KEEP_RECORD = "KafkaRecord-kafka-data-keep"  # of another tool: `archiver import avro` reads it
SCHEMAS = (RECORD, RECORD_V1, RECORD_V1_NULLABLE, COORDINATION, OFFSET_RUN)


@cache
def load_schema(name: str) -> str:
    """Return the text of a schema; `name` is one of the constants above. An unknown name is a `FileNotFoundError`."""
    packaged = files("archiver").joinpath("schemas", f"{name}.avsc")
    if packaged.is_file():
        return packaged.read_text(encoding="utf-8")
    # An editable install points at the checkout, where the package has no such folder.
    return (Path(__file__).parents[2] / "schemas" / f"{name}.avsc").read_text(encoding="utf-8")
