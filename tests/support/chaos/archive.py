"""The bucket while it is being written, past the proxy: what grew, what a sweep takes, and whether anything was changed."""

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime

from tests.support.brokers import Bucket
from tests.support.chaos.group import Partition
from tests.support.foreign_reader import keys_in, s3_client


def partition_prefix(partition: Partition) -> str:
    return f"topics/{partition[0]}/partition={partition[1]}/"


@dataclass(slots=True)
class WatchedBucket:
    """A bucket that keeps every version of every object: an overwrite cannot hide.

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
        return self._coverage(keys[-1]).stop if keys else 0

    def sweep(self, partition: Partition) -> int:
        """Delete every segment that a newer one follows, as retention would. How many."""
        old = self.keys(partition)[:-1]
        client = s3_client(self.bucket)
        for key in old:
            self.swept.setdefault(partition, []).append(self._coverage(key))
            client.delete_object(Bucket=self.bucket.name, Key=key)
        return len(old)

    def put_back(self) -> None:
        """Undo the sweeps: every swept object is there again as it first was. What a zombie put in its place goes."""
        client = s3_client(self.bucket)
        versions: dict[str, list[tuple[datetime, str]]] = {}
        marked: set[str] = set()
        for page in client.get_paginator("list_object_versions").paginate(Bucket=self.bucket.name, Prefix="topics/"):
            marked.update(item["Key"] for item in page.get("DeleteMarkers", []))
            for item in [*page.get("Versions", []), *page.get("DeleteMarkers", [])]:
                versions.setdefault(item["Key"], []).append((item["LastModified"], item["VersionId"]))
        for key in marked:
            for _, version in sorted(versions[key])[1:]:
                client.delete_object(Bucket=self.bucket.name, Key=key, VersionId=version)
        self.swept.clear()

    def _coverage(self, key: str) -> range:
        metadata = s3_client(self.bucket).head_object(Bucket=self.bucket.name, Key=key)["Metadata"]
        return range(int(metadata["archiver-base"]), int(metadata["archiver-next"]))

    def changed_keys(self) -> list[str]:
        """Keys under topics/ that were written while they were there already."""
        versions: Counter[str] = Counter()
        pages = s3_client(self.bucket).get_paginator("list_object_versions")
        for page in pages.paginate(Bucket=self.bucket.name, Prefix="topics/"):
            versions.update(item["Key"] for item in page.get("Versions", []))
            versions.subtract(item["Key"] for item in page.get("DeleteMarkers", []))
        return sorted(key for key, count in versions.items() if count > 1)
