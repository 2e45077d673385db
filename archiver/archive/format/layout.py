"""Spells and parses all object keys of the archive; no other module does (docs/format.md §2)."""

import re
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

OFFSET_DIGITS = 20
FACT_DIGITS = 6
LAST_FACT_NUMBER = 10**FACT_DIGITS - 1
MOST_OFFSET = 2**63 - 1
MOST_PARTITION = 2**31 - 1  # Kafka's limit of partition numbers; lives and rewrites have the same limit

_TOPIC = r"[a-zA-Z0-9._-]{1,249}"
_NUMBER = r"0|[1-9][0-9]{0,9}"
_TOPIC_DIRECTORY = re.compile(rf"(?P<topic>{_TOPIC})(?:@(?P<life>[1-9][0-9]{{0,9}}))?", re.ASCII)
_PARTITION_DIRECTORY = re.compile(rf"(?P<directory>[^/]+)/partition=(?P<partition>{_NUMBER})", re.ASCII)
_OFFSETS = re.compile(
    rf"(?P<base>[0-9]{{{OFFSET_DIGITS}}})(?:-(?P<next>[0-9]{{{OFFSET_DIGITS}}})(?:\.(?P<rewrite>[1-9][0-9]{{0,9}}))?)?\.data",
    re.ASCII,
)
_SEGMENT_NAME = re.compile(rf"(?P<topic>{_TOPIC})\+(?P<partition>{_NUMBER})-.*", re.ASCII)
_CHOSEN = re.compile(r"/\d+/chosen/[0-9a-f]{24}\.offsets\Z", re.ASCII)
_MOST_KEY = 1024  # bytes of a key in S3
_FACT = re.compile(rf"(?P<number>[0-9]{{{FACT_DIGITS}}})\.json", re.ASCII)
_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"  # names that users choose and keys contain
_TOPIC_ID = r"[A-Za-z0-9_-]{0,64}"  # Kafka's ids have 22 characters; empty where a broker has none
_OFFSET_MAP = re.compile(
    rf"(?P<restore_id>{_NAME})/(?P<topic>{_TOPIC})/(?P<partition>{_NUMBER})/offsets/(?P<topic_id>{_TOPIC_ID})\.avro",
    re.ASCII,
)
_FOLD = re.compile(
    rf"(?P<life>{_NUMBER})/(?P<partition>{_NUMBER})/folds/(?P<next>[0-9]{{{OFFSET_DIGITS}}})-(?P<digest>[0-9a-f]{{24}})\.avro",
    re.ASCII,
)
FOLDS = "group-folds"
_COPY_DIRECTORY = re.compile(
    rf"(?P<instance>{_NAME})/topics/(?P<directory>[^/]+)/partition=(?P<partition>{_NUMBER})/generation=(?P<generation>{_NUMBER})",
    re.ASCII,
)
_INDEX_GENERATION = re.compile(rf"[0-9]{{{FACT_DIGITS}}}", re.ASCII)
_INDEX_FILE = re.compile(rf"(?P<number>[0-9]{{{FACT_DIGITS}}})\.zst", re.ASCII)


@lru_cache(maxsize=4096)  # called for every key of a listing
def is_topic_name(text: str) -> bool:
    """Return whether Kafka accepts this as a topic name."""
    return re.fullmatch(_TOPIC, text, re.ASCII) is not None and text not in {".", ".."}


def is_partition_number(text: str) -> bool:
    """Return whether a text is a partition number in our spelling."""
    return re.fullmatch(_NUMBER, text, re.ASCII) is not None and int(text) <= MOST_PARTITION


def is_restore_id(text: str) -> bool:
    """Return whether a text can be the id of a restore, which is part of keys."""
    return re.fullmatch(_NAME, text, re.ASCII) is not None


def is_instance(text: str) -> bool:
    """Return whether a text can be the name of an instance that copies compacted topics."""
    return re.fullmatch(_NAME, text, re.ASCII) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentKey:
    """The parts of a segment's key. Only a merged segment has `next` in its key, and may have a `rewrite` number."""

    topic: str
    life: int = 0
    partition: int
    base: int
    next: int | None = None
    rewrite: int = 0

    def __post_init__(self) -> None:
        if not is_topic_name(self.topic):
            raise ValueError(f"not a topic name: {self.topic!r}")
        if min(self.life, self.partition) < 0:
            raise ValueError(f"negative life or partition: {self}")
        if not 0 <= self.base <= MOST_OFFSET or (self.next is not None and not self.base < self.next <= MOST_OFFSET):
            raise ValueError(f"not a range of offsets: {self.base}..{self.next}")
        if not 0 <= self.rewrite <= (0 if self.next is None else MOST_PARTITION):
            raise ValueError(f"not a rewrite of a merged segment: {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetMapKey:
    """The parts of an offset map's key: restore, target topic and partition."""

    restore_id: str
    topic: str
    partition: int
    topic_id: str

    def __post_init__(self) -> None:
        if not is_restore_id(self.restore_id) or re.fullmatch(_TOPIC_ID, self.topic_id, re.ASCII) is None:
            raise ValueError(f"not the id of a restore, or not that of a topic: {self}")
        if not is_topic_name(self.topic) or not 0 <= self.partition <= MOST_PARTITION:
            raise ValueError(f"not a partition: {self.topic!r}, {self.partition}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyKey:
    """One copy of a compacted partition: its instance and generation."""

    instance: str
    topic: str
    life: int
    partition: int
    generation: int

    def __post_init__(self) -> None:
        if not is_instance(self.instance) or not is_topic_name(self.topic):
            raise ValueError(f"not the name of an instance, or not that of a topic: {self}")
        if min(self.life, self.partition, self.generation) < 0:
            raise ValueError(f"negative life, partition or generation: {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldKey:
    """The parts of a fold's key: partition of the offsets topic, end, and the first digits of its SHA-256."""

    life: int
    partition: int
    next: int
    digest: str

    def __post_init__(self) -> None:
        if not 0 <= self.life <= MOST_PARTITION or not 0 <= self.partition <= MOST_PARTITION:
            raise ValueError(f"not a life and a partition: {self}")
        if not 0 < self.next <= MOST_OFFSET or re.fullmatch(r"[0-9a-f]{24}", self.digest, re.ASCII) is None:
            raise ValueError(f"not an offset and the digits of a digest: {self}")


@dataclass(frozen=True, slots=True)
class Layout:
    """Keys below a prefix; the prefix is empty, or ends without a slash."""

    prefix: str = ""

    def __post_init__(self) -> None:
        if self.prefix != self.prefix.strip("/"):
            raise ValueError(f"a prefix neither begins nor ends with a slash: {self.prefix!r}")

    def _under(self, path: str) -> str:
        return f"{self.prefix}/{path}" if self.prefix else path

    @property
    def root(self) -> str:
        """Return the common beginning of all keys."""
        return self._under("")

    @property
    def readme_key(self) -> str:
        return self._under("README.txt")

    def is_ours(self, directory: str) -> bool:
        """Return whether a directory right below the prefix belongs to the archive, by its name."""
        return f"{self.root}{directory}/" in {self.topics_prefix, self.copies_root, self.control_root}

    # --- segments

    @property
    def topics_prefix(self) -> str:
        return self._under("topics/")

    def topic_prefix(self, topic: str, life: int) -> str:
        return f"{self.topics_prefix}{_directory(topic, life)}/"

    def partition_prefix(self, topic: str, life: int, partition: int) -> str:
        return f"{self.topic_prefix(topic, life)}partition={partition}/"

    def segment_key(self, segment: SegmentKey) -> str:
        """Spell a segment's key; keys of one partition sort as their bases do."""
        return f"{self.segment_stem(segment.topic, segment.life, segment.partition)}{offsets_name(segment.base, segment.next, segment.rewrite)}"

    def segment_stem(self, topic: str, life: int, partition: int) -> str:
        """Spell the beginning of all segment keys of a partition; `offsets_name` spells the rest."""
        return f"{self.partition_prefix(topic, life, partition)}{topic}+{partition}-"

    def parse_segment(self, key: str) -> SegmentKey | None:
        """Parse a key; None for a stranger: any key that segment_key would not spell exactly so."""
        parts = self.split_segment(key)
        if parts is None:
            return None
        (topic, life, partition), base, named_next, rewrite = parts
        return SegmentKey(topic=topic, life=life, partition=partition, base=base, next=named_next, rewrite=rewrite)

    def split_segment(self, key: str) -> tuple[tuple[str, int, int], int, int | None, int] | None:
        """Parse a key into (topic, life, partition), base, next and rewrite. Faster, for listings of millions: makes no SegmentKey."""
        parent, _, name = key.rpartition("/")
        directory = _parse_partition_directory(self.topics_prefix, parent)
        if directory is None or not name.startswith(directory.stem):
            return None
        match = _OFFSETS.fullmatch(name, len(directory.stem))
        if match is None:
            return None
        base, after = int(match[1]), match[2]
        named_next = None if after is None else int(after)
        if base > MOST_OFFSET or (named_next is not None and not base < named_next <= MOST_OFFSET):
            return None
        rewrite = int(match[3] or 0)
        return None if rewrite > MOST_PARTITION else (directory.place, base, named_next, rewrite)

    @staticmethod
    def parse_segment_name(name: str) -> SegmentKey | None:
        """Parse only the last part of a segment's key, for an object that was copied elsewhere: its life is unknown."""
        match = _SEGMENT_NAME.fullmatch(name)
        if match is None:
            return None
        path = f"{match['topic']}/partition={match['partition']}/{name}"
        return Layout().parse_segment(f"topics/{path}")

    @staticmethod
    def parse_topic_directory(name: str) -> tuple[str, int] | None:
        """Parse `<topic>` or `<topic>@<life>`; None for anything else."""
        return _parse_topic_directory(name)

    # --- copies of compacted topics

    @staticmethod
    def parse_partition_directory(name: str) -> int | None:
        """Return the partition whose directory has this name; None for other names."""
        number = name.removeprefix("partition=")
        return int(number) if number != name and is_partition_number(number) else None

    @property
    def copies_root(self) -> str:
        return self._under("compacted/")

    def copy_prefix(self, copy: CopyKey) -> str:
        directory = f"{_directory(copy.topic, copy.life)}/partition={copy.partition}"
        return f"{self.copies_root}{copy.instance}/topics/{directory}/generation={copy.generation}/"

    def copied_topic_prefix(self, instance: str, topic: str, life: int) -> str:
        """Return the common prefix of all copies that an instance has made of a topic in one life."""
        return f"{self.copies_root}{instance}/topics/{_directory(topic, life)}/"

    def parse_copy(self, key: str) -> CopyKey | None:
        """Return the copy whose prefix contains a key; None for other keys."""
        directory = key.removeprefix(self.copies_root).rpartition("/")[0] if key.startswith(self.copies_root) else ""
        return _parse_copy_directory(directory)

    def copied_segment_key(self, copy: CopyKey, base: int) -> str:
        return f"{self.copy_prefix(copy)}{copy.topic}+{copy.partition}-{offsets_name(base, None)}"

    def parse_copied_segment(self, copy: CopyKey, key: str) -> SegmentKey | None:
        """Parse the key of a segment of a copy; None for anything else."""
        prefix = self.copy_prefix(copy)
        found = self.parse_segment_name(key.removeprefix(prefix)) if key.startswith(prefix) else None
        if found is None or (found.topic, found.partition) != (copy.topic, copy.partition):
            return None
        return replace(found, life=copy.life)

    def split_copied(self, key: str) -> tuple[CopyKey, SegmentKey] | None:
        """Parse a key into its copy and segment key; None for anything else."""
        copy = self.parse_copy(key)
        found = None if copy is None else self.parse_copied_segment(copy, key)
        return None if copy is None or found is None else (copy, found)

    def parse_stored(self, key: str) -> SegmentKey | None:
        """Parse the key of a segment, under `topics/` or of a copy; None for anything else."""
        found = self.parse_segment(key)
        if found is not None:
            return found
        copied = self.split_copied(key)
        return None if copied is None else copied[1]

    def place_of(self, key: str) -> tuple[str, int, int] | None:
        """Return the topic, life and partition of a segment, under `topics/` or of a copy; None for anything else."""
        found = self.parse_stored(key)
        return None if found is None else (found.topic, found.life, found.partition)

    # --- control

    @property
    def control_root(self) -> str:
        return self._under("control/")

    def control_prefix(self, stream: str) -> str:
        return self._under(f"control/{stream}/")

    def fact_key(self, stream: str, number: int) -> str:
        return f"{self.control_prefix(stream)}{_fact_number(number)}.json"

    def parse_fact(self, stream: str, key: str) -> int | None:
        """Return the number of a fact of this stream; None for anything else."""
        prefix = self.control_prefix(stream)
        match = _FACT.fullmatch(key, len(prefix)) if key.startswith(prefix) else None
        return int(match["number"]) if match else None

    def split_fact(self, key: str) -> tuple[str, int] | None:
        """Return the stream and the number of a fact; None for anything else."""
        stream, _, name = key.removeprefix(self.control_root).rpartition("/")
        match = _FACT.fullmatch(name) if key.startswith(self.control_root) and stream else None
        return (stream, int(match["number"])) if match else None

    def chosen_stem(self, restore_id: str, topic: str, partition: int) -> str:
        """Spell the common beginning of the keys of a restore's lists of chosen records of a partition; `chosen_name` spells the rest."""
        return self.control_prefix(f"restores/{restore_id}/{topic}/{partition}/chosen")

    def chosen_key(self, restore_id: str, topic: str, partition: int, digest: str) -> str:
        """Spell the key of a restore's list of chosen records of an object."""
        return f"{self.chosen_stem(restore_id, topic, partition)}{chosen_name(digest)}"

    def is_chosen(self, key: str) -> bool:
        is_ours = key.startswith(self.control_prefix("restores")) and _CHOSEN.search(key) is not None
        return is_ours and len(key.encode()) <= _MOST_KEY

    # --- offset maps

    def offset_map_key(self, found: OffsetMapKey) -> str:
        prefix = self.control_prefix(f"restores/{found.restore_id}/{found.topic}/{found.partition}")
        return f"{prefix}offsets/{found.topic_id}.avro"

    def parse_offset_map(self, key: str) -> OffsetMapKey | None:
        """Parse a key; None for any key that offset_map_key would not spell exactly so."""
        prefix = self.control_prefix("restores")
        match = _OFFSET_MAP.fullmatch(key, len(prefix)) if key.startswith(prefix) else None
        if match is None:
            return None
        restore_id, topic, partition, topic_id = match.groups()
        with suppress(ValueError):
            return OffsetMapKey(restore_id=restore_id, topic=topic, partition=int(partition), topic_id=topic_id)
        return None

    # --- folds

    def fold_key(self, found: FoldKey) -> str:
        prefix = self.control_prefix(f"{FOLDS}/{found.life}/{found.partition}")
        return f"{prefix}folds/{found.next:0{OFFSET_DIGITS}}-{found.digest}.avro"

    def parse_fold(self, key: str) -> FoldKey | None:
        """Parse a key; None for any key that fold_key would not spell exactly so."""
        prefix = self.control_prefix(FOLDS)
        match = _FOLD.fullmatch(key, len(prefix)) if key.startswith(prefix) else None
        if match is None:
            return None
        life, partition, following = (int(match[name]) for name in ("life", "partition", "next"))
        with suppress(ValueError):
            return FoldKey(life=life, partition=partition, next=following, digest=match["digest"])
        return None

    # --- index

    @property
    def index_prefix(self) -> str:
        return self._under("control/index/")

    def index_generation_prefix(self, generation: int) -> str:
        return f"{self.index_prefix}{_fact_number(generation)}/"

    def index_key(self, generation: int, number: int) -> str:
        return f"{self.index_generation_prefix(generation)}{_fact_number(number)}.zst"

    def parse_index(self, generation: int, key: str) -> int | None:
        """Return the number of a file of this version of the index; None for anything else."""
        prefix = self.index_generation_prefix(generation)
        match = _INDEX_FILE.fullmatch(key, len(prefix)) if key.startswith(prefix) else None
        return int(match["number"]) if match else None

    @staticmethod
    def parse_index_generation(name: str) -> int | None:
        return int(name) if _INDEX_GENERATION.fullmatch(name) else None


def offsets_name(base: int, named_next: int | None, rewrite: int = 0) -> str:
    """Spell the end of a segment's key."""
    end = "" if named_next is None else f"-{named_next:0{OFFSET_DIGITS}}"
    return f"{base:0{OFFSET_DIGITS}}{end}{f'.{rewrite}' if rewrite else ''}.data"


def chosen_name(digest: str) -> str:
    """Spell the last part of the key of a list of chosen records: 24 digits of its digest."""
    return f"{digest}.offsets"


def stem_of(key: str) -> str:
    """Return the part of a segment's key before its offsets, also of a copied segment."""
    return key[: key.index("-", key.rindex("+")) + 1]


def _fact_number(number: int) -> str:
    if not 0 <= number <= LAST_FACT_NUMBER:
        raise ValueError(f"there is no fact number {number}")
    return f"{number:0{FACT_DIGITS}}"


def _directory(topic: str, life: int) -> str:
    return f"{topic}@{life}" if life else topic


def _parse_topic_directory(name: str) -> tuple[str, int] | None:
    match = _TOPIC_DIRECTORY.fullmatch(name)
    life = int(match["life"] or 0) if match is not None else 0
    if match is None or match["topic"] in {".", ".."} or life > MOST_PARTITION:
        return None
    return match["topic"], life


@lru_cache(maxsize=64)
def _parse_copy_directory(path: str) -> CopyKey | None:
    match = _COPY_DIRECTORY.fullmatch(path)
    topic_life = _parse_topic_directory(match["directory"]) if match else None
    if match is None or topic_life is None:
        return None
    if max(int(match["partition"]), int(match["generation"])) > MOST_PARTITION:
        return None
    return CopyKey(
        instance=match["instance"],
        topic=topic_life[0],
        life=topic_life[1],
        partition=int(match["partition"]),
        generation=int(match["generation"]),
    )


class _PartitionDirectory(NamedTuple):
    place: tuple[str, int, int]  # topic, life, partition
    stem: str  # the common beginning of the keys in it


@lru_cache(maxsize=64)  # a listing has the keys of a partition in a row
def _parse_partition_directory(topics_prefix: str, path: str) -> _PartitionDirectory | None:
    match = _PARTITION_DIRECTORY.fullmatch(path, len(topics_prefix)) if path.startswith(topics_prefix) else None
    topic_life = _parse_topic_directory(match["directory"]) if match else None
    if match is None or topic_life is None or int(match["partition"]) > MOST_PARTITION:
        return None
    topic, life = topic_life
    return _PartitionDirectory((topic, life, int(match["partition"])), f"{topic}+{match['partition']}-")
