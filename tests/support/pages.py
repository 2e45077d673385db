"""Pages of the documentation that have a table which is generated, between two marks."""

import re


def with_table(page: str, mark: str, table: str) -> str:
    """The page with this table in its place."""
    begin, end = f"<!-- {mark}: written by `make docs` -->", f"<!-- {mark}: end -->"
    parts = re.fullmatch(rf"(.*{re.escape(begin)}\n).*(\n{re.escape(end)}.*)", page, re.DOTALL)
    if parts is None:
        raise ValueError(f"the page has no place for the table: {begin} ... {end}")
    return f"{parts[1]}{table}{parts[2]}"
