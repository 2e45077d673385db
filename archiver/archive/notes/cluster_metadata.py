"""Notes the ACLs, quotas, SCRAM users and broker configs of the archive's cluster (docs/format.md §8). Backups write them; `archiver cluster` reads them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Final, NamedTuple

from pydantic import Field

from archiver.archive.format.control import CLUSTER_METADATA, TOPICS, decode_facts, newest_listed
from archiver.archive.format.fact_model import BoundedText, Item, KafkaText
from archiver.archive.format.handle import Archive
from archiver.archive.format.note_stream import NoteKind
from archiver.archive.notes.topics import TOPIC_NOTES
from archiver.errors import KafkaError
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.cluster import INTERNAL_TOPICS
from archiver.kafka.brokers.codes import Code
from archiver.kafka.topics.cluster_parts import Part, check_row, read_part
from archiver.process.values.json_values import LARGEST, MOST_TEXT

_NEVER_NOTED: Final = "no backup has noted this part"
_Cells = Annotated[tuple[KafkaText | None, ...], Field(max_length=10)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPart:
    """One part of a cluster's metadata. `unread`: why its rows are unknown; None: they were read, and these are all."""

    part: Part
    rows: tuple[Item[_Cells], ...] = ()
    unread: BoundedText | None = None

    def __post_init__(self) -> None:
        for row in self.rows:
            check_row(self.part, row)


class NotedPart(NamedTuple):
    """A part as the archive has it, and when its note was put; 0: never, or many notes."""

    found: ClusterPart
    put_ms: int


_KIND: Final = NoteKind(
    ClusterPart,
    "a cluster's metadata",
    "bring its older version back, or delete it: the next backup notes this part again",
    lambda noted: f"{CLUSTER_METADATA}/{noted.part}",
)


async def survey_part(client: KafkaClient, part: Part) -> ClusterPart:
    """Ask a cluster for one of NOTED; brokers without an authorizer have no ACLs. Raises KafkaTemporaryError."""
    try:
        return ClusterPart(part=part, rows=tuple(await read_part(client, part)))
    except KafkaError as error:
        return ClusterPart(part=part, unread=None if error.code == Code.SECURITY_DISABLED else str(error)[:MOST_TEXT])


def note_part(archive: Archive, found: ClusterPart) -> bool:
    """Put a note of a part. Returns False, and puts none, if the newest note says the same."""
    stream = _KIND.at(archive, f"{CLUSTER_METADATA}/{found.part}")
    if stream.read() == found:
        return False
    stream.update(lambda _: found)
    return True


def read_noted_parts(archive: Archive, parts: Collection[Part], until_ms: int = LARGEST) -> Mapping[Part, NotedPart]:
    """Read the newest note of each part, or the newest that was put by a time. Raises NotWholeError."""
    listed = newest_listed(archive, CLUSTER_METADATA, until_ms)
    found = decode_facts(archive, listed, lambda stream, fact: _KIND.at(archive, stream).decode(fact))
    noted = {one.part: NotedPart(one, listed[stream].put_ms) for stream, one in found.items()}
    if Part.TOPICS in parts:
        topics = [
            one for one in TOPIC_NOTES.read_all(archive, TOPICS, until_ms).values() if one.topic not in INTERNAL_TOPICS
        ]
        rows = sorted((one.topic, name, value) for one in topics for name, value in one.configs.items())
        noted[Part.TOPICS] = NotedPart(ClusterPart(part=Part.TOPICS, rows=tuple(rows)), 0)
    return {part: noted.get(part) or NotedPart(ClusterPart(part=part, unread=_NEVER_NOTED), 0) for part in parts}
