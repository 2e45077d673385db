"""Spells texts for people. Foreign text is escaped: a terminal shows all of it, and obeys none of it."""

import json
import re
from collections.abc import Sequence
from typing import Final

# Controls that move a cursor, color, ring, break a line or turn its direction, in any terminal, pager or viewer; and halves
# of pairs, which UTF-8 cannot write. C1 (U+0080-U+009F) are commands to terminals as those that begin with ESC are.
_COMMANDS: Final = "\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff"
# Unicode's format characters (Cf): some change the direction of the text around them, most are invisible.
_FORMATS: Final = (
    "\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
# Of all others those that no font shows: Unicode's Default_Ignorable_Code_Point, with selectors of variants, which can carry
# any bytes behind a letter; and U+2800, whose sign is blank.
_UNSEEN: Final = "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8"
WIDEST: Final = 60  # characters that a column of a table is padded to
_LONGEST: Final = 255  # characters of a cell
_ACTING: Final = re.compile(f"[{_COMMANDS}{_FORMATS}{_UNSEEN}]")


def printable(text: str) -> str:
    r"""Write a line: each character that acts as \n, \x1b or \u2028."""
    return text if _is_tame(text) else _ACTING.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def printable_json(text: str) -> str:
    r"""Escape a line of JSON without changing its meaning: JSON itself leaves DEL, C1 and U+2028 unescaped."""
    return text if _is_tame(text) else _ACTING.sub(lambda found: json.dumps(found[0])[1:-1], text)


def _is_tame(text: str) -> bool:
    """Return quickly whether a text needs no escaping, as most do: ten times as fast as the pattern."""
    return text.isascii() and text.isprintable()


def spell_count(count: int, one: str, many: str = "") -> str:
    """Write a count with its noun: `1 topic`, `12,345 topics`. `many` is for nouns, or verbs behind them, that take more than an s."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


def spell_size(count: int) -> str:
    """Spell a number of bytes for people."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def spell_some(names: Sequence[str], most: int) -> str:
    """Spell the first of some names, and the number of further ones."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def spell_name(name: str) -> str:
    """Write a name of any origin: cut if long, quoted if empty or with a space at an end."""
    return spell_cell(name) if name and not name.startswith('"') else f'"{name[:_LONGEST]}"'


def spell_cell(text: str) -> str:
    """Write a cell of a table: cut if long, quoted if it has a space at an end."""
    cut = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
    return cut if text == text.strip() else f'"{cut}"'
