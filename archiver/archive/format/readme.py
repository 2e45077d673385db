"""The readme object: tells a person who finds the bucket what wrote it, and how to read it. Writers put it at their start, if it is absent."""

import logging
from typing import Final

from archiver.archive.format.handle import Archive
from archiver.errors import ArchiverError
from archiver.store.port import ObjectKind

log = logging.getLogger(__name__)
# Kept short, and true of every version: it is never written again.
_TEXT: Final = """\
This is an archive of Apache Kafka topics. The program kafka-archiver (command: archiver) wrote it, in archive format 1.

  topics/<topic>/partition=<number>/   the records: Avro object container files, in the order of their offsets.
                                       <topic>@1, @2, ... are later topics of the same name, or logs that were truncated
  compacted/<instance>/topics/...      copies of compacted topics, in the same kind of files
  control/                             small JSON notes: topics, configs, consumer groups, restores; and an index, a cache

Please change, move or delete nothing here by hand. `archiver retention` deletes what is too old.

To read it, with the program (pip install kafka-archiver):

  archiver ls --url s3://BUCKET/{prefix}
  archiver cat TOPIC --url s3://BUCKET/{prefix}
  archiver restore --url s3://BUCKET/{prefix} --target cluster.yaml      back into a cluster

Without it any Avro reader opens the files. Copy some to a disk, then (pip install fastavro):

  python3 -c 'import fastavro, sys; [print(record) for record in fastavro.reader(open(sys.argv[1], "rb"))]' FILE.data

key and value are the bytes that Kafka had; offset, timestamp and headers are beside them. docs/format.md of the program
describes every object.
"""


def readme_text(prefix: str) -> str:
    return _TEXT.replace("{prefix}", prefix)


def put_readme(archive: Archive) -> None:
    """Put the readme unless an object has its key. No archive depends on it: a failure is only logged."""
    key = archive.layout.readme_key
    try:
        if archive.store.head(key) is None:
            content = readme_text(archive.layout.prefix).encode()
            archive.store.put_if_absent(key, content, {}, kind=ObjectKind.FACT)
    except ArchiverError as error:
        log.warning("the archive has no readme for people yet, and needs none: %s", error)
