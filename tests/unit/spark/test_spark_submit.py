"""What a submitted job makes of the settings that spark-submit was given."""

import pytest
from pyspark import SparkConf

from archiver.spark.session.spark_submit import _is_encrypted, is_local

_AUTHENTICATED = {"spark.authenticate": "true"}


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        ("local", True),
        ("local[*]", True),
        ("local[2,3]", True),
        ("local-cluster[2,1,1024]", False),
        ("spark://localhost:7077", False),
        ("yarn", False),
        ("k8s://https://local:6443", False),
        (None, False),
    ],
)
def test_what_is_local(master: str | None, *, expected: bool) -> None:
    assert is_local(master) is expected


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, False),
        (_AUTHENTICATED, False),
        ({"spark.network.crypto.enabled": "true"}, False),  # without authentication Spark does nothing for it
        ({**_AUTHENTICATED, "spark.network.crypto.enabled": "TRUE"}, True),
        ({**_AUTHENTICATED, "spark.authenticate.enableSaslEncryption": "true"}, True),
        ({"spark.ssl.rpc.enabled": "true"}, True),
        ({"spark.ssl.enabled": "true"}, False),
    ],
)
def test_what_is_encrypted_on_its_way(settings: dict[str, str], *, expected: bool) -> None:
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    assert _is_encrypted(conf) is expected
