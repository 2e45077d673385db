"""Reads an archive by boto3, fastavro and docs/format.md alone, without our own code, as anybody could."""

import io
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any, cast

import boto3
import fastavro

from tests.support.brokers import S3, Bucket
from tests.support.records import Headers, Rec

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_KEY = re.compile(
    r"(?:topics|compacted/[^/]+/topics)/(?P<topic>[^/@]+)(@\d+)?/partition=(?P<partition>\d+)/(?:generation=\d+/)?(?P=topic)\+(?P=partition)-(?P<base>\d{20})\.data"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One object: its coverage as its metadata tells, and every record in it."""

    key: str
    partition: int
    base: int
    next: int
    holes: str
    metadata: Mapping[str, str]
    records: tuple[Rec, ...]


def s3_client(bucket: Bucket) -> "S3Client":
    return open_client(bucket.s3)


def open_client(s3: S3) -> "S3Client":
    """One for each store, for as long as the process lives: to make one costs more than most of what is asked of it."""
    return _opened(s3.endpoint, s3.access_key, s3.secret_key)


@cache
def _opened(endpoint: str, access_key: str, secret_key: str) -> "S3Client":
    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id=access_key,
        aws_secret_access_key=secret_key,
        region_name="us-east-1",
    )


def keys_in(bucket: Bucket, prefix: str = "") -> list[str]:
    return [key for key, _ in _listed(bucket, prefix)]


def keys_as_they_came(bucket: Bucket, prefix: str) -> list[str]:
    """In the order in which they were put, by the store's clock."""
    return [key for key, _ in sorted(_listed(bucket, prefix), key=itemgetter(1))]


def _listed(bucket: Bucket, prefix: str) -> Iterator[tuple[str, datetime]]:
    pages = s3_client(bucket).get_paginator("list_objects_v2").paginate(Bucket=bucket.name, Prefix=prefix)
    return ((item["Key"], item["LastModified"]) for page in pages for item in page.get("Contents", []))


def read_segments(bucket: Bucket, topic_directory: str) -> list[Segment]:
    """Every object under `topics/<topic_directory>/`, in the order of the keys; the bucket's archive has no prefix."""
    return read_objects(bucket, keys_in(bucket, f"topics/{topic_directory}/"))


def read_objects(bucket: Bucket, keys: Iterable[str]) -> list[Segment]:
    """Objects by their keys, in this order; also those of copies."""
    client = s3_client(bucket)
    return [_read_segment(client, bucket, key) for key in keys]


def _read_segment(client: "S3Client", bucket: Bucket, key: str) -> Segment:
    match = _KEY.fullmatch(key)
    assert match is not None, f"{key}: not a key of ours"
    answer = client.get_object(Bucket=bucket.name, Key=key)
    metadata = answer["Metadata"]
    partition = int(match["partition"])
    records = tuple(_read_records(answer["Body"].read(), match["topic"], partition))
    assert int(metadata["archiver-base"]) == int(match["base"])
    assert int(metadata["archiver-records"]) == len(records)
    return Segment(
        key=key,
        partition=partition,
        base=int(match["base"]),
        next=int(metadata["archiver-next"]),
        holes=metadata["archiver-holes"],
        metadata=metadata,
        records=records,
    )


def _read_records(content: bytes, topic: str, partition: int) -> Iterator[Rec]:
    for row in fastavro.reader(io.BytesIO(content)):
        record = cast("dict[str, Any]", row)
        assert (record["topic"], record["partition"]) == (topic, partition)
        yield Rec(
            offset=record["offset"],
            timestamp=record["timestamp"],
            timestamp_type=record["timestampType"],
            key=record["key"],
            value=record["value"],
            headers=_headers(record),
        )


def _headers(record: Mapping[str, Any]) -> Headers:
    """The order of truth of docs/format.md §3.1."""
    if record["orderedHeaders"] is not None:
        return tuple((_key(header), header["value"]) for header in record["orderedHeaders"])
    plain = tuple((key.encode(), value) for key, value in (record["headers"] or {}).items())
    assert len(plain) <= 1, "more than one header, and their order is not told"
    return plain


def _key(header: Mapping[str, Any]) -> bytes:
    return header["key"].encode() if header["rawKey"] is None else cast("bytes", header["rawKey"])


def read_partitions(bucket: Bucket, topic_directory: str) -> dict[int, list[Rec]]:
    """Records per partition by the read rule (docs/format.md §7). Coverage must have no gap."""
    found: dict[int, list[Rec]] = {}
    positions: dict[int, int] = {}
    order = sorted(read_segments(bucket, topic_directory), key=lambda one: (one.partition, one.base, -one.next))
    for segment in order:
        position = positions.setdefault(segment.partition, segment.base)
        if segment.next <= position:
            continue
        assert segment.base <= position, f"{segment.key}: offsets {position}..{segment.base} are missing"
        found.setdefault(segment.partition, []).extend(row for row in segment.records if row.offset >= position)
        positions[segment.partition] = segment.next
    return found
