"""Requests about ACLs, quotas, SCRAM users and configs that librdkafka lacks, or supports only in part. cluster_parts sends them."""

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from archiver.kafka.brokers.wire import AnswerReader, Call, RequestWriter

_Layout = tuple[Any, ...]  # the type of each field: a method of reader and writer, or the layout of an array's items

_RESULT: Final = ("int16", "text")  # an error code, and the broker's text
_ACL: Final = ("int8", "text", "int8", "text", "text", "int8", "int8")  # resource, pattern, principal, host, codes
_ENTITY: Final = ("text", "text_or_none")


def _write(out: RequestWriter, layout: _Layout, values: Sequence[Any]) -> None:
    for kind, value in zip(layout, values, strict=True):
        if isinstance(kind, str):
            getattr(out, kind)(value)
        else:
            out.count(-1 if value is None else len(value))
            for item in value or ():
                _write(out, kind, item)
    out.tags()


def _read(answer: AnswerReader, layout: _Layout) -> tuple[Any, ...]:
    def read(kind: Any) -> Any:  # noqa: ANN401 - of any type
        return getattr(answer, kind)() if isinstance(kind, str) else answer.array(lambda: _read(answer, kind))

    found = tuple(map(read, layout))
    answer.tags()
    return found


class _LayoutCall(Call[tuple[Any, ...]]):
    """A request and its answer as nested tuples. The throttle time is left out of the answer."""

    asks: ClassVar[_Layout]
    tells: ClassVar[_Layout]

    def __init__(self, *values: Any) -> None:  # noqa: ANN401 - of any type
        self._values = values

    def write(self, out: RequestWriter, version: int) -> None:  # noqa: ARG002 all are written alike
        _write(out, self.asks, self._values)

    def read(self, answer: AnswerReader, version: int) -> tuple[Any, ...]:  # noqa: ARG002 all are read alike
        self.throttle_ms, *told = _read(answer, ("int32", *self.tells))
        return tuple(told)


class DescribeAclsCall(_LayoutCall):
    """Asks for the ACLs that a filter matches. ACLs of users need v3 (Kafka 3.3)."""

    api_key = 29
    lowest, highest, flexible_from = 1, 3, 2
    asks = ("int8", "text", "int8", "text", "text", "int8", "int8")
    tells = (*_RESULT, ("int8", "text", "int8", ("text", "text", "int8", "int8")))


class CreateAclsCall(_LayoutCall):
    """Adds ACLs. Brokers accept one that exists."""

    api_key = 30
    lowest, highest, flexible_from = 1, 3, 2
    asks = (_ACL,)
    tells = (_RESULT,)


class DescribeClientQuotasCall(_LayoutCall):
    """Asks for the quotas that a filter matches."""

    api_key = 48
    lowest, highest, flexible_from = 0, 1, 1
    asks = (("text", "int8", "text"), "int8")
    tells = (*_RESULT, (_ENTITY, ("text", "float64")))


class AlterClientQuotasCall(_LayoutCall):
    """Sets quotas. The last field: only check them."""

    api_key = 49
    lowest, highest, flexible_from = 0, 1, 1
    asks = ((("text", "text"), ("text", "float64", "int8")), "int8")
    tells = ((*_RESULT, _ENTITY),)


class DescribeUserScramCredentialsCall(_LayoutCall):
    """Asks for names and mechanisms of users. Brokers return neither salts nor keys."""

    api_key = 50
    lowest = highest = 0
    asks = (("text",),)
    tells = (*_RESULT, ("text", *_RESULT, ("int8", "int32")))


class IncrementalAlterConfigsCall(_LayoutCall):
    """Sets configs of a resource; its others stay. The last field: only check them."""

    api_key = 44
    lowest, highest, flexible_from = 0, 1, 1
    asks = (("int8", "text", ("text", "int8", "text")), "int8")
    tells = ((*_RESULT, "int8", "text"),)
