"""The faulty S3 of the tests: what a client that is not ours meets when the store has a quirk."""

import base64
import hashlib
import http.client
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pytest
from botocore.exceptions import ClientError

from tests.support.brokers import Bucket, GivenS3
from tests.support.faulty_s3 import EXPIRED_TOKEN, UNKNOWN_KEY, FaultyS3, Quirk, Refusal
from tests.support.foreign_reader import open_client

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

pytestmark = pytest.mark.s3

SHA256 = base64.b64encode(hashlib.sha256(b"body").digest()).decode()


def client_of(proxy: FaultyS3, bucket: Bucket) -> "S3Client":
    return open_client(GivenS3(proxy.endpoint, bucket.s3.access_key, bucket.s3.secret_key))


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


def test_it_overwrites(moto_bucket: Bucket) -> None:
    with FaultyS3(moto_bucket.s3.endpoint, Quirk.OVERWRITES) as proxy:
        for body in (b"first", b"second"):
            client_of(proxy, moto_bucket).put_object(Bucket=moto_bucket.name, Key="k", Body=body, IfNoneMatch="*")
    found = open_client(moto_bucket.s3).get_object(Bucket=moto_bucket.name, Key="k")
    assert found["Body"].read() == b"second"


def test_it_knows_no_conditions(moto_bucket: Bucket) -> None:
    with FaultyS3(moto_bucket.s3.endpoint, Quirk.NO_CONDITIONS) as proxy:
        status, said = put(proxy, moto_bucket, {"If-None-Match": "*"})
        assert put(proxy, moto_bucket, {})[0] == 200
    assert (status, "NotImplemented" in said) == (501, True)


def test_it_wants_a_condition(moto_bucket: Bucket) -> None:
    with FaultyS3(moto_bucket.s3.endpoint, Quirk.WANTS_CONDITION) as proxy:
        status, said = put(proxy, moto_bucket, {})
        assert put(proxy, moto_bucket, {"If-None-Match": "*"})[0] == 200
    assert (status, "AccessDenied" in said) == (403, True)


def test_it_takes_short_names_alone(moto_bucket: Bucket) -> None:
    with FaultyS3(moto_bucket.s3.endpoint, Quirk.SHORT_NAMES) as proxy:
        assert put(proxy, moto_bucket, {}, f"a/{'b' * 255}")[0] == 200
        status, said = put(proxy, moto_bucket, {}, f"a/{'b' * 256}")
    assert (status, "XMinioInvalidObjectName" in said) == (400, True)


def test_it_drops_empty_metadata(bucket: Bucket) -> None:
    with FaultyS3(bucket.s3.endpoint, Quirk.DROPS_EMPTY_METADATA) as proxy:
        client = client_of(proxy, bucket)
        client.put_object(Bucket=bucket.name, Key="k", Body=b"", Metadata={"empty": "", "full": "1"})
        assert client.head_object(Bucket=bucket.name, Key="k")["Metadata"] == {"full": "1"}
    assert open_client(bucket.s3).head_object(Bucket=bucket.name, Key="k")["Metadata"] == {"empty": "", "full": "1"}


@pytest.mark.parametrize("refusal", [EXPIRED_TOKEN, UNKNOWN_KEY])
def test_it_refuses_a_key(bucket: Bucket, refusal: Refusal) -> None:
    with FaultyS3(bucket.s3.endpoint) as proxy:
        client = client_of(proxy, bucket)
        client.list_objects_v2(Bucket=bucket.name)
        proxy.refused_keys[bucket.s3.access_key] = refusal
        with pytest.raises(ClientError, match=refusal.code):
            client.list_objects_v2(Bucket=bucket.name)
