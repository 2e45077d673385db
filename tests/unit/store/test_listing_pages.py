"""A page of a listing, whose rows we read ourselves: as botocore reads them, and left to it where they cannot be read."""

from typing import Any

import boto3
import pytest
from botocore.parsers import create_parser

from archiver.store.client import read_rows

NAMESPACE = ' xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
ROW = (
    "<Contents><Key>a%2Fb%3D1</Key><LastModified>2026-01-02T03:04:05.678Z</LastModified><ETag>&quot;abc&quot;</ETag>"
    "<Size>12</Size><StorageClass>STANDARD</StorageClass></Contents>"
)
REST = (
    "<Name>bucket</Name><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>"
    "<NextContinuationToken>more</NextContinuationToken><CommonPrefixes><Prefix>a/</Prefix></CommonPrefixes>"
)


def read(body: str, status: int = 200) -> tuple[dict[str, Any], dict[str, Any]]:
    """What botocore makes of a page alone, and what comes out with our help."""
    client = boto3.client("s3", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
    shape = client.meta.service_model.operation_model("ListObjectsV2").output_shape
    assert shape is not None
    answer: dict[str, Any] = {"status_code": status, "headers": {}, "body": body.encode()}
    alone = create_parser("rest-xml").parse(dict(answer), shape)
    ours: dict[str, Any] = {}
    read_rows(answer, ours)
    return alone, create_parser("rest-xml").parse(answer, shape) | ours


@pytest.mark.parametrize("namespace", [NAMESPACE, ""])
@pytest.mark.parametrize("rows", [0, 1, 3])
def test_a_page_is_read_as_botocore_reads_it(namespace: str, rows: int) -> None:
    alone, found = read(f"<ListBucketResult{namespace}>{REST}{ROW * rows}</ListBucketResult>")
    used = ("Key", "Size", "ETag", "LastModified")
    assert found.pop("Contents") == [{name: row[name] for name in used} for row in alone.pop("Contents", [])]
    assert found == alone


@pytest.mark.parametrize("size", ["", "many"])
def test_what_cannot_be_read_is_left_to_botocore(size: str) -> None:
    ours: dict[str, Any] = {}
    body = f"<ListBucketResult>{ROW.replace('12', size)}</ListBucketResult>".encode()
    for answer in ({"status_code": 200, "body": body}, {"status_code": 200, "body": body[:50]}, {"status_code": 500}):
        before = dict(answer)
        read_rows(answer, ours)
        assert (answer, ours) == (before, {})
