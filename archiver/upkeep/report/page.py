"""Writes the report as one HTML file: a template, its style and scripts, and the data as JSON. Nothing is fetched when it is opened."""

import hashlib
import json
from base64 import b64encode
from collections.abc import Mapping
from importlib.resources import files
from typing import Final

# The text of a script element ends at `</script`, and changes its meaning at `<!--`.
_ESCAPED: Final = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def page_of(data: Mapping[str, object]) -> str:
    """Return the page of a report's data. A browser refuses every script but its own, which are named by checksum."""
    scripts = [_part(name) for name in ("uplot/uPlot.iife.min.js", "page.js")]
    sums = " ".join(f"'sha256-{b64encode(hashlib.sha256(one.encode()).digest()).decode()}'" for one in scripts)
    values = {
        "POLICY": f"default-src 'none'; style-src 'unsafe-inline'; script-src {sums}",
        "STYLE": "\n".join(map(_part, ("uplot/uPlot.min.css", "page.css"))),
        "SCRIPTS": "\n".join(f"<script>{one}</script>" for one in scripts),
        "DATA": json.dumps(data, separators=(",", ":")).translate(_ESCAPED),
    }
    texts = _part("page.html").split("@@")  # each second one is a name
    return "".join(values[text] if at % 2 else text for at, text in enumerate(texts))


def _part(name: str) -> str:
    return files("archiver.upkeep.report").joinpath(name).read_text(encoding="utf-8")
