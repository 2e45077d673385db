"""The bucket while it is being written, past the proxy: what grew, what a sweep takes, and whether anything was changed."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from tests.support.brokers import Bucket
from tests.support.chaos.group import Partition
from tests.support.foreign_reader import keys_in, s3_client

# A put whose answer was lost may be done that late (faulty_s3.Fault.LATE). Retention takes nothing that is so young.
_YOUNG = timedelta(seconds=5)


def partition_prefix(partition: Partition) -> str:
    return f"topics/{partition[0]}/partition={partition[1]}/"


def segment_key(partition: Partition, base: int) -> str:
    topic, number = partition
    return f"{partition_prefix(partition)}{topic}+{number}-{base:020}.data"


@dataclass(slots=True)
class WatchedBucket:
    """A bucket that keeps every version of every object: nothing that was written twice can hide.

    `swept` holds the coverages, per partition, of the objects that `sweep` deleted.
    """

    bucket: Bucket
    swept: dict[Partition, list[range]] = field(default_factory=dict)

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
        return _coverage_of(found["Metadata"]).stop

    def sweep(self, partition: Partition) -> set[str]:
        """Delete every segment that a newer one follows and that is not young, as retention would. Their keys."""
        client = s3_client(self.bucket)
        swept = set()
        for key in self.keys(partition)[:-1]:
            found = client.head_object(Bucket=self.bucket.name, Key=key)
            if datetime.now(UTC) - found["LastModified"] > _YOUNG:
                self.swept.setdefault(partition, []).append(_coverage_of(found["Metadata"]))
                client.delete_object(Bucket=self.bucket.name, Key=key)
                swept.add(key)
        return swept

    def put_back(self) -> None:
        """Undo the sweeps: every swept object is there again. Not while one of them was written again: that would hide it."""
        assert self.rewritten_keys() == []
        client = s3_client(self.bucket)
        for page in client.get_paginator("list_object_versions").paginate(Bucket=self.bucket.name, Prefix="topics/"):
            for marker in page.get("DeleteMarkers", []):
                client.delete_object(Bucket=self.bucket.name, Key=marker["Key"], VersionId=marker["VersionId"])
        self.swept.clear()

    def rewritten_keys(self) -> list[str]:
        """Keys under topics/ that were written more than once: while they were there already, or after they were swept."""
        versions: Counter[str] = Counter()
        pages = s3_client(self.bucket).get_paginator("list_object_versions")
        for page in pages.paginate(Bucket=self.bucket.name, Prefix="topics/"):
            versions.update(item["Key"] for item in page.get("Versions", []))
        return sorted(key for key, count in versions.items() if count > 1)


def _coverage_of(metadata: Mapping[str, str]) -> range:
    return range(int(metadata["archiver-base"]), int(metadata["archiver-next"]))
