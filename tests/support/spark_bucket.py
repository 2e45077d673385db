"""A Spark session of the tests, and the credentials of a bucket."""

import sys

import pytest
from pyspark import SparkContext

from tests.support.brokers import Bucket
from tests.support.round_trip import environment_of


def lend_bucket(bucket: Bucket, context: SparkContext, patch: pytest.MonkeyPatch) -> None:
    """Give this process and the workers of a session the bucket's credentials; the workers are of this Python."""
    credentials = {name: text for name, text in environment_of(bucket).items() if name.startswith("AWS_")}
    for name, text in credentials.items():
        patch.setenv(name, text)
    patch.setattr(context, "pythonExec", sys.executable)
    patch.setattr(context, "environment", {**context.environment, **credentials})
