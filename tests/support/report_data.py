"""Data of reports of any size, spelled as the program spells it, without an archive."""

import json
import random
import re
from typing import Any, Final

from archiver.upkeep.report.timelines import BINS, COLUMNS

NOW_MS: Final = 1_790_000_000_000
DAY_MS: Final = 86_400_000
MEMBERS: Final = {"objects": "segments", "records": "records", "bytes": "payload_bytes", "stored": "stored_bytes"}
NAMES: Final = ("orders", "payments", "clicks", "stock-levels", "customer.addresses", "invoices", "sessions")
LOST: Final = (
    ("m", "missing"),
    ("u", "unreadable"),
    ("e", "expired"),
    ("s", "swept"),
    ("b", "before-start"),
    ("d", "undecided"),
)


def data_in(page: str) -> Any:  # noqa: ANN401 - JSON
    """The data that a page draws: what a browser takes for its text."""
    found = re.search(r'<script id="data" type="application/json">(.*?)</script', page, re.DOTALL | re.IGNORECASE)
    assert found is not None
    return json.loads(found[1])


def report_data(partitions: int, a_topic: int = 1, *, extra: str = "", seed: int = 1) -> dict[str, Any]:
    """A report of so many partitions; `extra` is part of each name and text."""
    drawn = random.Random(seed)
    topics = [
        _topic(
            drawn,
            f"{NAMES[number % len(NAMES)]}{f'.{number}' if number >= len(NAMES) else ''}{extra}",
            min(a_topic, partitions),
        )
        for number in range(max(1, partitions // a_topic))
    ]
    axis = {"from_ms": NOW_MS - 60 * DAY_MS, "until_ms": NOW_MS}
    groups = [
        {
            "group": f"{name}-service{extra}",
            "partitions": 9,
            "lag": 12_345 // (at + 1),
            "committed_ms": NOW_MS - 60_000 * at,
        }
        for at, name in enumerate(NAMES[:4])
    ]
    cost = {
        "puts_a_day": 288 * partitions,
        "measured_ms": 7 * DAY_MS,
        "storage_a_month": 1.72 * partitions,
        "puts_a_month": 0.04 * partitions,
    }
    prices = {"price_gb": 0.023, "price_puts": 0.005, "currency": "USD"}
    bad = [f"{one['topic']}-0: offsets 100-199 are missing from the archive{extra}" for one in topics[:2]]
    return {
        "url": f"s3://backups/kafka{extra}", "version": "0.1.0", "now_ms": NOW_MS, "record_axis": axis, "put_axis": axis,
        "cost": cost | prices, "puts": _puts(topics), "topics": topics, "groups": groups, "group_count": len(groups),
        "status": _status(extra), "problems": bad, "problem_count": len(bad),
    }  # fmt: skip


def _status(extra: str) -> dict[str, Any]:
    """As `archiver status` spells it: a running backup, and a sweep that is late."""
    row = {"last_success": "2026-09-21T14:12:00Z", "outcome": "running", "partitions": 5, "durable_through": "2026-09-21T14:12:00Z", "next": None, "late": None}  # fmt: skip
    late = {"kind": "retention", "outcome": "done", "partitions": None, "durable_through": None, "next": "2026-09-20T02:00:00Z", "late": f"the last success was three days ago{extra}"}  # fmt: skip
    return {
        "working": False,
        "durable_through": "2026-09-21T14:12:00Z",
        "runs": [row | {"kind": "backup"}, row | late],
        "late": [late["late"]],
        "unfinished_restores": [f"mine{extra}"],
        "topics_gone": [f"old{extra}"],
        "holds": [f"audit{extra}"],
    }


def _puts(topics: list[dict[str, Any]]) -> dict[str, list[int]]:
    """What the topics' partitions have, with the steps of working days."""
    shares = [3 if at % 14 < 10 else 2 for at in range(BINS)]
    sums = {name: sum(part[MEMBERS[name]] for one in topics for part in one["partitions"]) for name in COLUMNS}
    return {name: [whole * share // sum(shares) for share in shares] for name, whole in sums.items()}


def _topic(drawn: random.Random, name: str, partitions: int) -> dict[str, Any]:
    begin, rate = drawn.choice((0, 0, 20, 50)), int(10 ** drawn.uniform(6, 9))
    stored = [
        0 if at < begin else int(rate * (1 + 0.5 * (at % 14 < 10)) * drawn.uniform(0.8, 1.2)) for at in range(BINS)
    ]
    return {
        "topic": name,
        "life": 0,
        "rate": "".join(str(9 * one // max(stored)) for one in stored),
        "partitions": [_partition(drawn, number, begin, sum(stored) // partitions) for number in range(partitions)],
    }


def _partition(drawn: random.Random, number: int, begin: int, stored: int) -> dict[str, Any]:
    row: dict[str, Any] = {
        "partition": number, "first_offset": 0, "next_offset": stored // 180, "segments": 144 * (BINS - begin), "records": stored // 180,
        "payload_bytes": stored * 3, "stored_bytes": stored, "last_put": NOW_MS - drawn.randrange(300_000), "line": "." * begin + "a" * (BINS - begin),
    }  # fmt: skip
    if drawn.random() < 0.15:
        code, cause = drawn.choice(LOST)
        at = drawn.randrange(begin, BINS - 9)
        row |= {
            "line": row["line"][:at] + 6 * code + row["line"][at + 6 :],
            "lost": {cause: 100},
            "ranges": f"100-199 {cause}",
        }
    return row
