"""Notes of topics, as JSON objects and as values."""

from archiver.archive.format.control import Fact
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.archive.notes.topics import TOPIC_NOTES, TopicFact, topic_stream
from tests.support.memory_store import MemoryStore


def note_of(topic: TopicFact) -> Fact:
    return TOPIC_NOTES.encode(topic)


def topic_of(note: Fact) -> TopicFact:
    return TOPIC_NOTES.decode(note, Archive(MemoryStore(), Layout("p")), topic_stream(note["topic"]))
