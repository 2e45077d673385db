"""Writes the report as one HTML file of template, style, scripts and data. An opened page fetches nothing."""

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Final

# The text of a script element ends at `</script`, and changes its meaning at `<!--`.
_ESCAPED: Final = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def page_of(data: Mapping[str, object]) -> str:
    """Return the page of a report's data."""
    values = {
        "STYLE": "\n".join(map(_part, ("uplot/uPlot.min.css", "page.css"))),
        "SCRIPT": "\n".join(map(_part, ("uplot/uPlot.iife.min.js", "page.js"))),
        "DATA": json.dumps(data, separators=(",", ":")).translate(_ESCAPED),
    }
    texts = _part("page.html").split("@@")  # each second one is a name
    return "".join(values[text] if at % 2 else text for at, text in enumerate(texts))


def _part(name: str) -> str:
    return files("archiver.upkeep.report").joinpath(name).read_text(encoding="utf-8")
