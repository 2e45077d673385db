"""Reads and writes each kind of control fact by a dataclass: its annotations define the valid members. All note modules use it.

Every writer to the bucket can write a fact. Reading ends at the first invalid member, since a fact of 64 MB has room for
millions. Members that a later version adds are ignored.
"""

from collections.abc import Callable, Collection
from functools import cached_property
from inspect import signature
from reprlib import repr as short_repr
from typing import Annotated, Any, Final, Generic, TypeVar

from pydantic import BeforeValidator, Field, PlainSerializer, Strict, TypeAdapter, ValidationError, WrapValidator
from pydantic_core import ErrorDetails

from archiver.archive.format.control import FACT_FORMAT, FORMAT, Fact
from archiver.errors import ArchiverError
from archiver.process.values.json_values import LARGEST, MOST_TEXT, spelled_digest

Value = TypeVar("Value")
LeftOut = dict[str, Any]  # by name: True, or the members to leave out within a member, as pydantic's `exclude`


class _WrongItemError(Exception):
    """An item of a list or an object is wrong. pydantic would collect the errors of all items; this ends its reading."""


def _read_item(value: object, read: Callable[[object], Any]) -> Any:  # noqa: ANN401 - of any kind
    try:
        return read(value)
    except ValidationError as error:
        raise _WrongItemError(_first_problem(error)) from None


Item = Annotated[Value, WrapValidator(_read_item)]  # an element of a list or an object that may have many
Number = Annotated[int, Strict(), Field(ge=0, le=LARGEST)]
LeaderEpoch = Annotated[int, Strict(), Field(ge=-1, le=LARGEST)]  # -1: unknown
BoundedText = Annotated[str, Strict(), Field(max_length=MOST_TEXT)]
MOST_NAME_BYTES: Final = 2**15 - 1  # Kafka's limit for a text in its log, such as a group's name or its metadata
KafkaText = Annotated[str, Strict(), Field(max_length=MOST_NAME_BYTES)]
Digest = Annotated[int, BeforeValidator(spelled_digest), PlainSerializer("{:016x}".format)]


class FactModel(Generic[Value]):
    """Reads facts of one kind as values, and writes them."""

    def __init__(self, kind: type[Value]) -> None:
        self._kind = kind

    @cached_property
    def _adapter(self) -> TypeAdapter[Value]:
        """The pydantic reader of this kind, made at its first use: making one takes milliseconds."""
        return TypeAdapter(self._kind)

    @cached_property
    def names(self) -> Collection[str]:
        """The members that this kind of fact can have."""
        return {FORMAT, *signature(self._kind).parameters}

    def read(self, fact: Fact, refusal: Callable[[str], ArchiverError]) -> Value:
        """Read a fact. Raises the error that `refusal` makes from the reason why the fact is invalid."""
        try:
            return self._adapter.validate_python(fact)
        except ValidationError as error:
            raise refusal(_first_problem(error)) from error
        except _WrongItemError as error:
            raise refusal(str(error)) from error

    def write(self, value: Value, left_out: LeftOut | None = None) -> Fact:
        """Return a separate fact of a value, without some members."""
        return {FORMAT: FACT_FORMAT, **self.members(value, left_out)}

    def members(self, value: Value, left_out: LeftOut | None = None) -> Fact:
        """Return the members that a value has within another fact."""
        found: Fact = self._adapter.dump_python(value, mode="json", by_alias=True, exclude=left_out)
        return found


_WANTED: Final = {
    "bool": "true or false",
    "dataclass": "an object",
    "dict": "an object",
    "greater": "a number of at least {ge}",
    "int": "a number",
    "less": "a number of at most {le}",
    "list": "a list",
    "mapping": "an object",
    "string": "a text",
    "tuple": "a list",
}


def _first_problem(error: ValidationError) -> str:
    problem: ErrorDetails = error.errors(include_url=False)[0]
    if problem["type"] == "missing":
        return f"{problem['loc'][-1]} is missing"
    if problem["type"] == "value_error":
        return str(problem["ctx"]["error"])
    limits = problem.get("ctx", {})
    if problem["type"] == "string_too_long":
        wanted = f"a text of at most {limits['max_length']} characters"
    else:
        wanted = _WANTED.get(problem["type"].partition("_")[0], "something else").format(**limits)
    return f"{short_repr(problem['input'])} where {wanted} was to come"
