"""Ways to bend JSON: what stands where another value was, is there twice, or is gone; and text that no encoder of ours writes."""

import json
import random
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

_RAW = "\x00raw"  # stands for what no value is spelled as
_RAW_TEXTS = (
    "NaN", "-Infinity", "1e999", "9" * 5000, "-" + "9" * 4299, "[" * 5000, "[" * 200 + "]" * 200, '"\\ud800"', "tru",
    "[" + "[]," * 20_000 + "0]", '{"a":1,"a":2}',
)  # fmt: skip
ODD: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 2, 7, 2**15, 2**31 - 1, 2**31, 10**6, 10**9, 10**12, 2**63 - 1, 2**63, -(2**63) - 1, 10**40,
    10**4000, 0.5, 1.0, 1e300, "", "x", "0", "-5", "1_000", " 5", "\u0665", "9" * 5000, "f" * 16, "f" * 40, "0x10", "\0",
    "e" * 3000, "\u20ac" * 300, "e" * 100_000, "5-1:expired", "1-2:expired;", ",", "../../..", "a/b", "k" * 1100, [], [[]], {},
    {"a": 1}, [None], [0] * 3, ["x"] * 2, [0] * 20_000, [[1, 0, 5]], _RAW, _RAW,
)  # fmt: skip


def bend(rng: random.Random, value: Any) -> str:  # noqa: ANN401 - any JSON
    """Return JSON that differs from a value in one place or a few."""
    bent = json.loads(json.dumps(value))
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        bent = _bend_once(rng, bent)
    text = json.dumps(bent, ensure_ascii=rng.random() < 0.9).encode("utf-8", "replace").decode()
    return text.replace(json.dumps(_RAW), rng.choice(_RAW_TEXTS), 1)


def _bend_once(rng: random.Random, value: Any) -> Any:  # noqa: ANN401
    places = list(_places(value))
    if not places or rng.random() < 0.02:
        return deepcopy(rng.choice(ODD))
    container, place = rng.choice(places)
    kind = rng.random()
    if kind < 0.65:
        container[place] = deepcopy(rng.choice(ODD))
    elif kind < 0.75:
        del container[place]
    elif kind < 0.85 and isinstance(container, list):
        times = rng.choice((1, 1, 3, 1000))
        container[place:place] = [container[place]] * (times if len(json.dumps(container[place])) < 1000 else 1)
    elif kind < 0.9 and isinstance(container, dict):
        container[str(rng.choice(ODD))[:2000]] = container.pop(place)
    else:
        other, at = rng.choice(places)
        container[place] = json.loads(json.dumps(other[at]))
    return value


def _places(value: Any) -> Iterator[tuple[Any, Any]]:  # noqa: ANN401
    """Each place of a value that another could stand in."""
    for place in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, place
        yield from _places(value[place])
