"""What the reader of restores' notes returns for notes that are whole, damaged, missing, foreign or newer."""

from collections.abc import Callable, Iterable

import pytest

from archiver.archive.format.control import Fact, append_fact, encode_fact
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.archive.notes.restore_streams import ListedNote, list_restore_notes, read_each, required
from archiver.archive.restores.restore_pins import RestorePins
from archiver.errors import CorruptSegmentError, FormatTooNewError, NotWholeError, StoreTemporaryError
from archiver.restore.plan.restore_notes import RestoreNotes
from archiver.restore.report.noted_restores import read_restore
from archiver.store.port import ObjectKind
from tests.support.memory_store import MemoryStore

LAYOUT = Layout("p")
STREAMS = [f"restores/mine/{target}/plan" for target in ("a", "b", "c")]
NOTE = {"format": 1, "source": "orders"}


@pytest.fixture
def archive() -> Archive:
    return Archive(MemoryStore(), LAYOUT)


def put(archive: Archive, key: str, body: bytes = encode_fact(NOTE)) -> None:
    archive.store.put_if_absent(key, body, {}, kind=ObjectKind.FACT)


def read(archive: Archive, notes: Iterable[ListedNote]) -> list[tuple[str, Fact | NotWholeError]]:
    return [(note.stream, found) for note, found in read_each(archive, list(notes), lambda _, fact: fact)]


def test_notes_are_listed_with_their_places_and_what_is_no_note_is_left_out(archive: Archive) -> None:
    wanted = ["mine/@groups/g/000000", "mine/a/plan/000000", "mine/a/plan/000001", "mine/a/plan/3-0f/000000"]
    strange = ["000000", "mine/000000", "mine/a/000000", "-mine/a/plan/000000", "mine/a/plan/0", "mine/a/3/offsets/T"]
    for name in [*wanted, *strange]:
        put(archive, LAYOUT.control_prefix("restores") + f"{name}.json")
    found = list(list_restore_notes(archive))
    assert [(one.restore_id, one.target, one.name, one.listed.number) for one in found] == [
        ("mine", "@groups", "g", 0),
        ("mine", "a", "plan", 0),
        ("mine", "a", "plan", 1),
        ("mine", "a", "plan/3-0f", 0),
    ]
    assert list(list_restore_notes(archive, "restores/mine/@groups")) == found[:1]
    assert list(list_restore_notes(archive, "restores/min")) == []


DAMAGES: list[tuple[bytes, type[NotWholeError]]] = [
    (b"", CorruptSegmentError),
    (b"[]", CorruptSegmentError),
    (encode_fact(NOTE)[:-9], CorruptSegmentError),
    (encode_fact(NOTE).replace(b"orders", b"others"), CorruptSegmentError),
    (encode_fact({**NOTE, "format": 2}), FormatTooNewError),
]


@pytest.mark.parametrize(("body", "error"), DAMAGES)
@pytest.mark.parametrize("broken", STREAMS)
def test_a_damaged_note_is_returned_as_its_error_and_hides_no_other(
    archive: Archive, body: bytes, error: type[NotWholeError], broken: str
) -> None:
    for stream in STREAMS:
        put(archive, LAYOUT.fact_key(stream, 0), body if stream == broken else encode_fact(NOTE))
    found = read(archive, list_restore_notes(archive))
    assert [stream for stream, _ in found] == STREAMS
    for stream, one in found:
        assert (type(one) is error) if stream == broken else (one == NOTE)
    with pytest.raises(error):
        [required(one) for _, one in found]


def test_a_note_that_went_since_it_was_listed_is_returned_as_an_error(archive: Archive) -> None:
    for stream in STREAMS:
        append_fact(archive, stream, lambda _: NOTE)
    notes = list(list_restore_notes(archive))
    archive.store.delete([LAYOUT.fact_key(STREAMS[1], 0)])
    (first, gone, last) = (one for _, one in read(archive, notes))
    assert first == last == NOTE
    assert "was listed, and is gone" in str(gone)


def test_what_a_decoder_refuses_is_an_error_of_that_note(archive: Archive) -> None:
    for stream in STREAMS:
        append_fact(archive, stream, lambda _: NOTE)

    def decode(stream: str, _: Fact) -> str:
        if stream == STREAMS[0]:
            raise NotWholeError("foreign")
        return stream

    found = [one for _, one in read_each(archive, list(list_restore_notes(archive)), decode)]
    assert [str(one) for one in found] == ["foreign", *STREAMS[1:]]


def test_an_error_of_the_store_is_no_property_of_a_note(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    append_fact(archive, STREAMS[0], lambda _: NOTE)

    def fail(*_: object) -> None:
        raise StoreTemporaryError("timed out")

    notes = list(list_restore_notes(archive))
    monkeypatch.setattr(archive.store, "get", fail)
    with pytest.raises(StoreTemporaryError):
        read(archive, notes)


REFUSALS: list[Callable[[Archive], object]] = [
    lambda archive: RestoreNotes(archive, "mine", "c").plans({"a": "T"}, {}),
    lambda archive: RestoreNotes(archive, "other", "c").begun_by_others({"a": "T"}),
    lambda archive: read_restore(archive, "mine"),
]


@pytest.mark.parametrize(("body", "error"), DAMAGES)
def test_pins_keep_and_restores_refuse_what_cannot_be_read(
    archive: Archive, body: bytes, error: type[NotWholeError]
) -> None:
    put(archive, LAYOUT.fact_key("restores/mine/a/plan", 0), body)
    pins = RestorePins(archive)
    assert (len(pins.read(0).unreadable), len(pins.read_objects(0).unreadable)) == (1, 1)
    assert pins.read_objects(0).restores == {"mine"}
    for refused in REFUSALS:
        with pytest.raises(error):
            refused(archive)
