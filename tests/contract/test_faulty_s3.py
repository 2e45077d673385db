"""The faulty S3 of the tests: what a client that is not ours meets when the store has a quirk."""

import base64
import hashlib
import http.client
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pytest

from tests.support.brokers import Bucket
from tests.support.faulty_s3 import FaultyS3, Quirk

if TYPE_CHECKING:
    pass

pytestmark = pytest.mark.s3

SHA256 = base64.b64encode(hashlib.sha256(b"body").digest()).decode()


def put(proxy: FaultyS3, bucket: Bucket, headers: Mapping[str, str], key: str = "k") -> tuple[int, str]:
    """Put without a signature, as moto takes it; the status, and what was answered."""
    connection = http.client.HTTPConnection(proxy.endpoint.removeprefix("http://"), timeout=10)
    try:
        connection.request("PUT", f"/{bucket.name}/{key}", body=b"body", headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({}, 400, "InvalidRequest"),
        ({"x-amz-checksum-sha256": SHA256}, 200, ""),
        ({"x-amz-checksum-sha256": SHA256.swapcase()}, 400, "BadDigest"),
        ({"x-amz-checksum-crc32c": "AAAAAA=="}, 200, ""),  # the upstream's to check, and moto does not
    ],
)
def test_it_wants_a_checksum(moto_bucket: Bucket, headers: Mapping[str, str], status: int, code: str) -> None:
    with FaultyS3(moto_bucket.s3.endpoint, Quirk.WANTS_CHECKSUM) as proxy:
        answered, said = put(proxy, moto_bucket, headers)
    assert answered == status
    assert code in said


def test_it_wants_a_condition(moto_bucket: Bucket) -> None:
    with FaultyS3(moto_bucket.s3.endpoint, Quirk.WANTS_CONDITION) as proxy:
        status, said = put(proxy, moto_bucket, {})
        assert put(proxy, moto_bucket, {"If-None-Match": "*"})[0] == 200
    assert (status, "AccessDenied" in said) == (403, True)
