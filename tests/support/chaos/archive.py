"""The bucket while it is being written, past the proxy: what grew, and whether anything was changed."""

from collections import Counter
from dataclasses import dataclass

from tests.support.brokers import Bucket
from tests.support.chaos.group import Partition
from tests.support.foreign_reader import keys_in, s3_client


def partition_prefix(partition: Partition) -> str:
    return f"topics/{partition[0]}/partition={partition[1]}/"


@dataclass(slots=True)
class WatchedBucket:
    """A bucket that keeps every version of every object: nothing that was written twice can hide."""

    bucket: Bucket

    def __post_init__(self) -> None:
        s3_client(self.bucket).put_bucket_versioning(
            Bucket=self.bucket.name, VersioningConfiguration={"Status": "Enabled"}
        )

    def keys(self, partition: Partition) -> list[str]:
        """Of the segments, oldest first."""
        return keys_in(self.bucket, partition_prefix(partition))

    def count(self) -> int:
        return len(keys_in(self.bucket, "topics/"))

    def end(self, partition: Partition) -> int:
        """Where the newest segment ends; 0 when there is none."""
        keys = self.keys(partition)
        if not keys:
            return 0
        found = s3_client(self.bucket).head_object(Bucket=self.bucket.name, Key=keys[-1])
        return int(found["Metadata"]["archiver-next"])

    def rewritten_keys(self) -> list[str]:
        """Keys under topics/ that were written more than once: while they were there already."""
        versions: Counter[str] = Counter()
        pages = s3_client(self.bucket).get_paginator("list_object_versions")
        for page in pages.paginate(Bucket=self.bucket.name, Prefix="topics/"):
            versions.update(item["Key"] for item in page.get("Versions", []))
        return sorted(key for key, count in versions.items() if count > 1)
