"""Small facts beside the records: numbered objects, put if absent, never changed; the highest number holds (docs/format.md §8)."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from archiver.errors import CorruptSegmentError, FormatTooNewError, StrangerError, TemporaryError
from archiver.layout import Layout
from archiver.store import ObjectStore

FORMAT = 1
_ATTEMPTS = 32

Fact = Mapping[str, Any]


def latest_fact(store: ObjectStore, layout: Layout, stream: str) -> Fact | None:
    """Return the fact that holds; None when the stream has none."""
    number = _highest(store, layout, stream)
    return None if number is None else _read(store, layout.fact_key(stream, number))


def facts(store: ObjectStore, layout: Layout, stream: str) -> list[Fact]:
    """Return the history of a stream, oldest first."""
    numbers = _numbers(store, layout, stream)
    return [_read(store, layout.fact_key(stream, number)) for number in sorted(numbers)]


def append_fact(
    store: ObjectStore, layout: Layout, stream: str, decide: Callable[[Fact | None], Fact | None]
) -> Fact | None:
    """Append what `decide` makes of the latest fact. Returns the fact that holds afterwards.

    When another writer was faster, `decide` is asked again with what that one wrote; it may answer None: nothing to add.
    It also meets its own fact there, when the answer to the put was lost: it must know what it wrote.
    """
    for _ in range(_ATTEMPTS):
        number = _highest(store, layout, stream)
        latest = None if number is None else _read(store, layout.fact_key(stream, number))
        wanted = decide(latest)
        if wanted is None:
            return latest
        key = layout.fact_key(stream, 0 if number is None else number + 1)
        if store.put_if_absent(key, json.dumps(wanted, indent=1, sort_keys=True).encode(), {}):
            return wanted
    raise TemporaryError(f"{layout.control_prefix(stream)}: {_ATTEMPTS} other writers were faster; try again")


def _numbers(store: ObjectStore, layout: Layout, stream: str) -> list[int]:
    listed = store.list(layout.control_prefix(stream))
    return [number for item in listed if (number := layout.parse_fact(stream, item.key)) is not None]


def _highest(store: ObjectStore, layout: Layout, stream: str) -> int | None:
    return max(_numbers(store, layout, stream), default=None)


def _read(store: ObjectStore, key: str) -> Fact:
    found = store.get(key)
    if found is None:
        raise CorruptSegmentError(f"{key}: was listed, and is gone; control facts are never deleted")
    try:
        fact = json.loads(found[0])
    except ValueError as error:
        raise CorruptSegmentError(f"{key}: not JSON: {error}") from error
    if not isinstance(fact, dict) or not isinstance(fact.get("format"), int):
        raise CorruptSegmentError(f"{key}: not a control fact")
    if fact["format"] > FORMAT:
        raise FormatTooNewError(f"{key}: format {fact['format']} is newer than this program reads ({FORMAT})")
    return cast("Fact", fact)


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One history of a topic; `parent` and `branch` of a log that was cut back."""

    life: int
    topic_id: str
    leader_epoch: int = -1
    parent: int | None = None
    branch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFact:
    """What a topic is: where it lives, how many partitions it has, which configs were set on it."""

    topic: str
    cluster_id: str
    partitions: int
    configs: Mapping[str, str]
    lives: tuple[Life, ...]

    def __post_init__(self) -> None:
        if not self.lives or [life.life for life in self.lives] != list(range(len(self.lives))):
            raise ValueError(f"the lives of {self.topic} are not numbered from 0: {[life.life for life in self.lives]}")

    @property
    def current(self) -> Life:
        return self.lives[-1]

    def life_of(self, topic_id: str) -> Life | None:
        """Return the newest life of a topic id."""
        return next((life for life in reversed(self.lives) if life.topic_id == topic_id), None)

    def to_fact(self) -> Fact:
        return {
            "format": FORMAT,
            "topic": self.topic,
            "cluster_id": self.cluster_id,
            "partitions": self.partitions,
            "configs": dict(self.configs),
            "lives": [
                {
                    "life": life.life,
                    "topic_id": life.topic_id,
                    "leader_epoch": life.leader_epoch,
                    "parent": life.parent,
                    "branch": life.branch,
                }
                for life in self.lives
            ],
        }

    @classmethod
    def from_fact(cls, fact: Fact, where: str = "") -> "TopicFact":
        """Read a fact; `where` names its key in an error."""
        try:
            if not (
                isinstance(fact["partitions"], int) and fact["partitions"] > 0 and isinstance(fact["configs"], dict)
            ):
                raise ValueError(f"partitions {fact['partitions']!r}, configs {fact['configs']!r}")  # noqa: TRY301
            lives = tuple(
                Life(
                    life=life["life"],
                    topic_id=life["topic_id"],
                    leader_epoch=life["leader_epoch"],
                    parent=life["parent"],
                    branch=life["branch"],
                )
                for life in fact["lives"]
            )
            return cls(
                topic=fact["topic"],
                cluster_id=fact["cluster_id"],
                partitions=fact["partitions"],
                configs=fact["configs"],
                lives=lives,
            )
        except (KeyError, TypeError) as error:
            raise CorruptSegmentError(f"{where or fact.get('topic')}: a topic's control fact lacks {error}") from error
        except ValueError as error:
            raise CorruptSegmentError(
                f"{where or fact.get('topic')}: a topic's control fact cannot be: {error}"
            ) from error


TOPICS = "topics"


def topic_stream(topic: str) -> str:
    return f"{TOPICS}/{topic}"


def read_topic(store: ObjectStore, layout: Layout, topic: str) -> TopicFact | None:
    """Return what is known of a topic."""
    return _parse_topic(layout, topic, latest_fact(store, layout, topic_stream(topic)))


def read_topic_history(store: ObjectStore, layout: Layout, topic: str) -> list[TopicFact]:
    """Return what was known of a topic, oldest first."""
    numbered = enumerate(facts(store, layout, topic_stream(topic)))  # they are numbered from 0 without gaps
    return [TopicFact.from_fact(fact, layout.fact_key(topic_stream(topic), number)) for number, fact in numbered]


def _parse_topic(layout: Layout, topic: str, latest: Fact | None) -> TopicFact | None:
    where = f"{layout.control_prefix(topic_stream(topic))} (the newest)"
    return None if latest is None else TopicFact.from_fact(latest, where)


def settle_topic(
    store: ObjectStore,
    layout: Layout,
    *,
    topic: str,
    topic_id: str,
    cluster_id: str,
    partitions: int,
    configs: Mapping[str, str],
) -> Life:
    """Write down what the topic is now, if that is news, and return the life of this topic id.

    Another topic id is a recreated topic: a new life without a parent. Another cluster is refused. Who still sees the
    topic of an earlier life gets that life, and writes down nothing: topic ids do not come back.
    """

    def decide(latest: Fact | None) -> Fact | None:
        known = _parse_topic(layout, topic, latest)
        if known is not None and known.cluster_id != cluster_id:
            raise StrangerError(
                f"{topic}: this archive belongs to cluster {known.cluster_id}, and this is {cluster_id};"
                " give each cluster its own prefix in storage.url"
            )
        lives = () if known is None else known.lives
        if lives and not lives[-1].topic_id:  # the brokers were upgraded to a version that has topic ids
            lives = (*lives[:-1], replace(lives[-1], topic_id=topic_id))
        if topic_id not in {life.topic_id for life in lives}:
            lives = (*lives, Life(life=len(lives), topic_id=topic_id))
        wanted = TopicFact(topic=topic, cluster_id=cluster_id, partitions=partitions, configs=configs, lives=lives)
        is_old_news = wanted.current.topic_id != topic_id
        return None if known == wanted or is_old_news else wanted.to_fact()

    settled = _parse_topic(layout, topic, append_fact(store, layout, topic_stream(topic), decide))
    life = None if settled is None else settled.life_of(topic_id)
    if life is None:
        raise CorruptSegmentError(f"{topic}: no control fact after one was written")
    return life
