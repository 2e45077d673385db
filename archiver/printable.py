"""Text that may come from anywhere, spelled so that a terminal shows it and does nothing else."""

import re
from typing import Final

# What moves a cursor, colors, rings, breaks a line or turns its direction, for any terminal, pager or log viewer; and halves
# of pairs, which UTF-8 cannot write. C1 (U+0080-U+009F) are commands to terminals as those that begin with ESC are.
_ACTING: Final = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    r"""Write a line: each character that acts as \n, \x1b or \u2028."""
    return _ACTING.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def printable_json(text: str) -> str:
    r"""Write a line of JSON, which means the same afterwards: JSON itself lets DEL, C1 and U+2028 stand as they are."""
    return _ACTING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
