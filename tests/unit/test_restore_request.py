"""What a restore was asked for: which topics, into which, in which order, and under which id."""

import pytest

from archiver.errors import UsageError
from archiver.restore import RestoreRequest

NAMES = ["payments", "orders", "orders.dead", "__consumer_offsets"]


def test_topics_are_chosen_by_full_match_and_renamed() -> None:
    request = RestoreRequest.parse("orders|pay.*", ["orders=orders.back"])
    assert request.targets(NAMES) == {"orders": "orders.back", "payments": "payments"}
    assert list(RestoreRequest().targets(NAMES)) == ["orders", "orders.dead", "payments"]
    assert list(RestoreRequest(topics="__consumer_offsets|orders").targets(NAMES)) == ["__consumer_offsets", "orders"]


@pytest.mark.parametrize(
    ("topics", "renames", "message"),
    [
        ("nothing", [], "no archived topic matches nothing"),
        ("(", [], "not a regular expression"),
        ("orders", ["payments=p"], "--rename of payments: not among"),
        (None, ["orders=payments"], "two topics would be restored into payments"),
        (None, ["orders"], "must be OLD=NEW"),
        (None, ["orders=a", "orders=b"], "each OLD once"),
        (None, ["orders=a/b"], "cannot be a topic's name"),
    ],
)
def test_what_cannot_be_is_refused(topics: str | None, renames: list[str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        RestoreRequest.parse(topics, renames).targets(NAMES)
    assert message in str(caught.value)


def test_the_first_wave_is_small_and_has_what_exists_already() -> None:
    targets = {f"t{number:03}": f"t{number:03}.back" for number in range(100)}
    waves = RestoreRequest().waves(targets, {"t090.back", "t091", "another"})
    assert list(waves[0]) == [*(f"t{number:03}" for number in range(16)), "t090"]
    assert len(waves) == 2
    assert waves[0] | waves[1] == targets
    assert not waves[0].keys() & waves[1].keys()


@pytest.mark.parametrize(("count", "life"), [(16, None), (100, 1)])
def test_few_topics_and_those_of_a_certain_life_are_one_wave(count: int, life: int | None) -> None:
    targets = {str(number): str(number) for number in range(count)}
    assert RestoreRequest(life=life).waves(targets, ()) == [targets]


def test_all_topics_may_exist_already() -> None:
    targets = {str(number): str(number) for number in range(100)}
    assert RestoreRequest().waves(targets, targets) == [targets]


def test_the_same_command_has_the_same_id_and_another_one_another() -> None:
    asked = [("a|b", []), ("a", ["a=c", "b=d"]), ("a", ["a=c"]), (None, []), ("None", [])]
    requests = [RestoreRequest.parse(topics, renames) for topics, renames in asked]
    requests += [RestoreRequest(topics="a|b", life=0), RestoreRequest(topics="a|b", life=1)]
    ids = [request.default_id("s3://archive", "cluster") for request in requests]
    assert len(set(ids)) == len(ids)
    assert RestoreRequest.parse("a", ["b=d", "a=c"]).default_id("s3://archive", "cluster") == ids[1]
    assert requests[0].default_id("s3://archive", "other") != ids[0] != requests[0].default_id("s3://b", "cluster")
