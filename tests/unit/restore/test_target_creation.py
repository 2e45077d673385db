"""What is asked again right before topics are deleted, without a broker."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.errors import TargetError
from archiver.kafka.topics.admin import ToCreate
from archiver.restore.plan.request import Existing
from archiver.restore.plan.restore_notes import RestoreNotes
from archiver.restore.targets.target_creation import TargetCreation
from archiver.restore.targets.target_survey import Survey
from tests.support.memory_store import MemoryStore


class Creation(TargetCreation):
    """Has no broker: it notes what is asked and done."""

    def __init__(self) -> None:
        notes = RestoreNotes(Archive(MemoryStore(), Layout("p")), "mine", "c")
        super().__init__(cast("Any", None), notes, Existing.PURGE, lambda _: ToCreate())
        self.done: list[str] = []

    async def _check_once_more(self, *_: object) -> None:
        self.done.append("asked once more")

    async def _delete(self, *_: object) -> None:
        self.done.append("deleted")

    async def _create(self, *_: object) -> set[str]:
        self.done.append("created")
        return set()


def replace_topic(creation: Creation, check_others: Callable[[], None]) -> None:
    survey = Survey(purged={"t": "A"})
    asyncio.run(creation.replace(cast("Any", None), survey, ["t"], {}, check_others))


def test_nothing_is_deleted_when_another_topic_could_not_be_filled_meanwhile() -> None:
    """The other topic was still being filled when this one was surveyed."""
    creation = Creation()

    def check_others() -> None:
        assert creation.done == ["asked once more"]
        raise TargetError("others could not be filled")

    with pytest.raises(TargetError):
        replace_topic(creation, check_others)
    assert creation.done == ["asked once more"]


def test_topics_are_replaced_when_all_others_are_filled() -> None:
    creation = Creation()
    replace_topic(creation, lambda: None)
    assert creation.done == ["asked once more", "deleted", "created"]
