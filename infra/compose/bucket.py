"""Makes the bucket of compose.yaml, when the store answers."""

import boto3
from botocore.config import Config

store = boto3.client("s3", config=Config(retries={"mode": "standard", "max_attempts": 12}, connect_timeout=5))
if "archive" not in {bucket["Name"] for bucket in store.list_buckets()["Buckets"]}:
    store.create_bucket(Bucket="archive")
