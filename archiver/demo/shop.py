"""Makes the demo's records: orders of a small shop, with all that a copy easily loses (nulls, order of headers, ...)."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from archiver.demo.witness import HeaderPairs, SeenRecord, Topic

DAYS = 3
_DAY_MS = 24 * 3_600_000
_ARTICLES = (("tea", 4.5), ("coffee", 7.2), ("biscuits", 2.8), ("jam", 3.9))


def make_orders(count: int, start_ms: int) -> Iterator[SeenRecord]:
    """Make orders, spread evenly over some days."""
    for number in range(count):
        timestamp_ms = start_ms + number * DAYS * _DAY_MS // count
        if number % 50 == 49:  # a cancelled order: a tombstone for an earlier one
            yield SeenRecord(_key(number - 24), None, (), timestamp_ms)
        elif number % 1000 == 500:  # an empty value, which is no tombstone
            yield SeenRecord(_key(number), b"", (), timestamp_ms)
        else:
            yield SeenRecord(_key(number), _order(number), _headers(number), timestamp_ms)


def make_payments(count: int, start_ms: int, status: str) -> Iterator[SeenRecord]:
    """Make the payments of one evening, for one transaction."""
    timestamp_ms = start_ms + DAYS * _DAY_MS
    for number in range(count):
        value = json.dumps({"order": _key(number).decode(), "status": status}).encode()
        yield SeenRecord(_key(number), value, (("trace", b"payments"),), timestamp_ms)


def _key(number: int) -> bytes:
    return f"order-{number:06d}".encode()


def _order(number: int) -> bytes:
    scattered = number * 7919
    article, price = _ARTICLES[scattered // 3 % len(_ARTICLES)]
    pieces = scattered % 5 + 1
    order = {
        "order": _key(number).decode(),
        "customer": f"customer-{scattered % 10_007:05d}",
        "article": article,
        "pieces": pieces,
        "total": round(pieces * price, 2),
        "status": "placed",
    }
    return json.dumps(order).encode()


def _headers(number: int) -> HeaderPairs:
    if number % 25 == 12:  # records with a header name twice, and a null value
        return ("tag", b"gift"), ("tag", b"express"), ("coupon", None)
    return (("trace", f"{number:08x}".encode()),) if number % 5 == 0 else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Counts of a topic's records by kind."""

    records: int
    tombstones: int
    empty: int
    with_headers: int
    doubled: int  # records with a header name twice
    paid: int
    wrongly_charged: int

    @classmethod
    def of(cls, topic: Topic) -> "Counts":
        records = list(chain.from_iterable(topic.values()))
        return cls(
            records=len(records),
            tombstones=_count(record.value is None for record in records),
            empty=_count(record.value == b"" for record in records),
            with_headers=_count(bool(record.headers) for record in records),
            doubled=_count(len(record.headers) > 1 for record in records),
            paid=_count(_has_status(record, PAID) for record in records),
            wrongly_charged=_count(_has_status(record, CHARGED_TWICE) for record in records),
        )


PAID = "paid"
CHARGED_TWICE = "charged twice"


def _has_status(record: SeenRecord, status: str) -> bool:
    return record.value is not None and status.encode() in record.value


def _count(answers: Iterable[bool]) -> int:
    return sum(answers)


def first_difference(before: Topic, after: Topic) -> str:
    """Compare two topics record by record. Returns the first difference; empty: none."""
    if before.keys() != after.keys():
        return f"partitions {sorted(before)} became {sorted(after)}"
    for number, records in before.items():
        if len(records) != len(after[number]):
            return f"partition {number} had {len(records):,} records and has {len(after[number]):,}"
        for place, (was, now) in enumerate(zip(records, after[number], strict=True)):
            if was != now:
                return f"record {place} of partition {number} was {was} and is {now}"
    return ""
