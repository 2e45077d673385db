"""Reads a configuration file: checks its keys, fills in `${…}` variables and secret files, and keeps each key's line.

But for variables and secret files, values stay as written, without YAML's type guesses: text, null, or a list of these. Items of a few lists have keys of their own.
"""

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml

from archiver.errors import UsageError

_VARIABLE: Final = re.compile(r"\$(\$?)\{(?:(?:file:([^}]+)|([A-Za-z_][A-Za-z0-9_]*))\})?")
_LARGEST_SECRET: Final = 64 * 1024
_LARGEST_FILE: Final = 4 * 1024 * 1024
_QUOTES: Final = "a text with any of { } [ ] , & * # ? | - < > = ! % @ \\ in it goes between quotes"


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """A key that the file may have. A section has no value. A mapping takes all keys that begin with its own.

    Some keys of a mapping are known in advance: they come before the mapping, and must have a value. `item_keys`: those of
    each item, if the value is a list of mappings.
    """

    dotted: str
    path: tuple[str, ...]
    is_mapping: bool
    is_section: bool
    is_known_of_mapping: bool = False
    item_keys: "tuple[ConfigKey, ...]" = ()


def _list_of(key: ConfigKey | None) -> str:
    """Return the spelling of a list of mappings; empty: it is none."""
    names = ", ".join(one.dotted for one in key.item_keys) if key is not None else ""
    return f"is a list: each entry begins with '- ', and takes {names}" if names else ""


@dataclass(slots=True)
class KeyFile:
    """The leaves of a file under their dotted keys, with the line of each. Fill it with `read`."""

    path: Path
    keys: Sequence[ConfigKey]
    variables: Mapping[str, str] = field(repr=False)
    _leaves: dict[str, tuple[object, int]] = field(default_factory=dict)
    _item_lines: dict[str, int] = field(default_factory=dict)  # the line of each item of a list, by key[number]
    _problems: list[str] = field(default_factory=list)

    def read(self) -> None:
        """Read the file. Raises UsageError, which names every wrong line at once."""
        text = ""
        try:
            text = self._text()
            self._refuse_tags(text)
            root = yaml.compose(text, Loader=yaml.SafeLoader)
            if isinstance(root, yaml.MappingNode):
                self._add_all(root)
            elif root is not None:
                raise UsageError(f"{self.path}: a configuration is a mapping of keys to values")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{self.path}: cannot be read: {error}") from error
        except RecursionError as error:
            raise UsageError(
                f"{self.path}: is nested too deep, or an alias (*) stands within what it stands for"
            ) from error
        except yaml.MarkedYAMLError as error:
            place = f"{self.path}:{error.problem_mark.line + 1}" if error.problem_mark is not None else str(self.path)
            problem = _tab_at(text, error.problem_mark) or _without_quotes(error.problem or "it cannot be parsed")
            raise UsageError(f"{place}: not YAML: {problem}") from None
        except yaml.YAMLError as error:
            raise UsageError(f"{self.path}: not YAML: {error}") from error
        if self._problems:
            raise UsageError("\n".join(self._problems))

    def _text(self) -> str:
        with self.path.open(encoding="utf-8") as file:
            text = file.read(_LARGEST_FILE + 1)
        if len(text) > _LARGEST_FILE:
            raise UsageError(f"{self.path}: is larger than {_LARGEST_FILE:,} characters; is it a configuration?")
        return text

    def _refuse_tags(self, text: str) -> None:
        """Raise UsageError for a tag: a password that begins with ! is one when it has no quotes, and its value would be empty."""
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.NodeEvent) and (getattr(event, "tag", None) or "").startswith("!"):
                line = event.start_mark.line + 1 if event.start_mark is not None else 0
                raise UsageError(f"{self.path}:{line}: a tag (!) is not taken; {_QUOTES}")

    def _add_all(self, node: yaml.MappingNode, prefix: str = "") -> None:
        sections: dict[str, int] = {}
        for name, value in node.value:
            line = name.start_mark.line + 1
            if isinstance(name, yaml.ScalarNode) and isinstance(value, yaml.MappingNode):
                first = sections.setdefault(name.value, line)
                if first != line:
                    named = self._named(f"{prefix}{name.value}")
                    self._problem(line, f"{named} is given a second time (first in line {first}); join the two")
            if name.tag == "tag:yaml.org,2002:merge":
                self._problem(line, "merge keys (<<) are not taken; write the keys out")
            elif isinstance(name, yaml.ScalarNode):
                self._add(f"{prefix}{name.value}", value, line, prefix.removesuffix("."))
            else:
                above = self._named(prefix.removesuffix(".")) if prefix else "the file"
                self._problem(line, f"{above}: a key is a text, not a list or a mapping")

    def _add(self, dotted: str, node: yaml.Node, line: int, parent: str) -> None:
        key = self._find(dotted)
        if isinstance(node, yaml.MappingNode) and node.value:
            self._add_below(dotted, node, key, line)
        elif dotted in self._leaves:
            self._problem(
                line, f"{self._named(dotted)} is given a second time (first in line {self._leaves[dotted][1]})"
            )
        elif key is None:
            self._refuse_unknown(line, dotted)
        elif not _is_empty(node) and (key.is_section or (key.is_mapping and key.dotted == dotted)):
            self._problem(line, f"{dotted} holds keys, not a value")
        elif key.is_mapping and _is_empty(node) and key.dotted != dotted:
            # The message does not show the key: it may be a part of a password with { or a comma that has no quotes.
            self._problem(line, f"{key.dotted}: a key has no value; {_QUOTES}")
        elif key.is_mapping and parent not in {"", key.dotted} and self._knows_keys_of(key):
            self._refuse_unknown(line, dotted)
        elif key.is_known_of_mapping and _is_empty(node):
            self._problem(line, f"{dotted} has no value")
        elif not (key.is_section or (key.is_mapping and _is_empty(node))):
            self._add_leaf(dotted, node, line, key)

    def _add_leaf(self, dotted: str, node: yaml.Node, line: int, key: ConfigKey) -> None:
        if key.item_keys and isinstance(node, yaml.ScalarNode) and not _is_empty(node):
            self._problem(line, f"{dotted} {_list_of(key)}")
            return
        if isinstance(node, yaml.SequenceNode):
            numbered = enumerate(node.value)
            self._item_lines |= {f"{dotted}[{number}]": item.start_mark.line + 1 for number, item in numbered}
        self._leaves[dotted] = (self._value_of(dotted, node, line, key.item_keys), line)

    def _add_below(self, dotted: str, node: yaml.MappingNode, key: ConfigKey | None, line: int) -> None:
        if self._takes_value(key):
            self._problem(line, f"{dotted} {_list_of(key) or f'takes a value, not keys; {_QUOTES}'}")
        elif self._takes_keys(dotted, key):
            self._add_all(node, f"{dotted}.")
        else:
            self._refuse_unknown(line, dotted, may_be_section=True)

    def _find(self, dotted: str) -> ConfigKey | None:
        for key in self.keys:
            if dotted == key.dotted or (key.is_mapping and dotted.startswith(f"{key.dotted}.")):
                return key
        return None

    def _takes_value(self, key: ConfigKey | None) -> bool:
        """Return whether a key takes only a value. backup.codec takes a value and also has keys below it."""
        if key is None or key.is_section or key.is_mapping:
            return False
        return not any(other.dotted.startswith(f"{key.dotted}.") for other in self.keys)

    def _takes_keys(self, dotted: str, key: ConfigKey | None) -> bool:
        if any(other.dotted.startswith(f"{dotted}.") for other in self.keys):
            return True
        return key is not None and key.is_mapping and not self._knows_keys_of(key)

    def _knows_keys_of(self, mapping: ConfigKey) -> bool:
        """Return whether all keys of a mapping are known: an unknown key may be part of a password."""
        return any(one.is_known_of_mapping and one.dotted.startswith(f"{mapping.dotted}.") for one in self.keys)

    def _value_of(self, dotted: str, node: yaml.Node, line: int, item_keys: Sequence[ConfigKey] = ()) -> object:
        if isinstance(node, yaml.SequenceNode):
            return [
                self._item_of(f"{dotted}[{number}]", item, item_keys)
                if item_keys and isinstance(item, yaml.MappingNode)
                else self._value_of(dotted, item, line)
                for number, item in enumerate(node.value)
            ]
        if _is_null(node):
            return None
        if isinstance(node, yaml.MappingNode):
            self._problem(line, f"{self._named(dotted)} is no mapping")
            return None
        return _VARIABLE.sub(lambda found: self._variable(found, dotted, line), str(node.value))

    def _item_of(self, place: str, node: yaml.MappingNode, keys: Sequence[ConfigKey]) -> dict[str, object]:
        """Return the values of an item that has keys of its own."""
        found: dict[str, object] = {}
        for name, value in node.value:
            line = name.start_mark.line + 1
            key = next(
                (one.dotted for one in keys if isinstance(name, yaml.ScalarNode) and one.dotted == name.value), ""
            )
            dotted = f"{place}.{key}"
            if not key:
                self._problem(line, f"unknown key in {place}; it takes {', '.join(one.dotted for one in keys)}")
            elif key in found:
                self._problem(line, f"{dotted} is given a second time (first in line {self._item_lines[dotted]})")
            else:
                self._item_lines[dotted] = line
                found[key] = self._value_of(dotted, value, line)
        return found

    def _variable(self, found: re.Match[str], dotted: str, line: int) -> str:
        """Replace a variable: `${NAME}` is the environment's NAME, `${file:PATH}` a file's content; `$${NAME}` is the text `${NAME}`."""
        dollar, path, name = found.groups()
        if dollar:
            return found[0][1:]
        if path is not None:
            return self._content_of(path, dotted, line)
        if name is None:  # the message does not show the text: it may be a password
            self._problem(
                line, f"{self._named(dotted)}: a ${{ that is neither ${{NAME}} nor ${{file:PATH}}; the text ${{ is $${{"
            )
            return ""
        if name not in self.variables:
            self._problem(line, f"{self._named(dotted)}: the environment has no {name}")
        return self.variables.get(name, "")

    def _content_of(self, path: str, dotted: str, line: int) -> str:
        """Read a mounted secret, without the line end that editors append."""
        try:
            with Path(path).open(encoding="utf-8") as file:
                text = file.read(_LARGEST_SECRET + 1)
        except (OSError, ValueError) as error:
            self._problem(
                line, f"{self._named(dotted)}: {path} cannot be read: {getattr(error, 'strerror', None) or 'no text'}"
            )
            return ""
        if len(text) > _LARGEST_SECRET:
            self._problem(line, f"{self._named(dotted)}: {path} is larger than {_LARGEST_SECRET} characters")
        return text.rstrip("\r\n")

    def _problem(self, line: int, text: str) -> None:
        self._problems.append(f"{self.path}:{line}: {text}")

    def _refuse_unknown(self, line: int, dotted: str, *, may_be_section: bool = False) -> None:
        above = self._known_of(dotted)
        below = f" below {above}" if above else ""
        self._problem(line, f"unknown key{below}{self._suggestion(dotted, may_be_section=may_be_section)}")

    def _named(self, dotted: str) -> str:
        """Name a key for a message, if it is one of ours. Any other text may be a secret with missing quotes or colon."""
        item, _, name = dotted.rpartition(".")
        if item in self._item_lines:  # only items with keys of their own are named so
            return f"{self._named(item.rpartition('[')[0])}{item[item.rindex('[') :]}.{name}"
        above = self._known_of(dotted)
        return dotted if above == dotted else f"a key below {above}" if above else "a key"

    def _known_of(self, dotted: str) -> str:
        """Return the longest prefix of a key that is also a prefix of one of ours."""
        known = ""
        for part in dotted.split("."):
            longer = f"{known}.{part}" if known else part
            if not any(f"{key.dotted}.".startswith(f"{longer}.") for key in self.keys):
                break
            known = longer
        return known

    def _suggestion(self, dotted: str, *, may_be_section: bool = False) -> str:
        # Stricter than difflib's default: keys of one section look alike, which means little.
        keys = [key.dotted for key in self.keys if may_be_section or not key.is_section]
        close = difflib.get_close_matches(dotted, keys, n=1, cutoff=0.75)
        return f"; did you mean {close[0]}?" if close else ""

    def tree(self) -> dict[str, object]:
        """Return the values, nested by the paths of their keys."""
        root: dict[str, object] = {}
        for dotted, (value, _) in self._leaves.items():
            key = self._find(dotted)
            assert key is not None, dotted  # noqa: S101 - `add` let no other in
            path = (*key.path, dotted.removeprefix(f"{key.dotted}.")) if key.is_mapping else key.path
            at = root
            for name in path[:-1]:
                at = at.setdefault(name, {})  # type: ignore[assignment]
            at[path[-1]] = value
        return root

    def place_of(self, dotted: str) -> str:
        """Return `file:line: key` for messages; `key[2]` is an item of a list, `key[2].name` a value in it."""
        for known in (dotted, dotted.rpartition(".")[0]):
            if known in self._item_lines:
                named = dotted.rpartition("[")[0] if dotted.endswith("]") else dotted
                return f"{self.path}:{self._item_lines[known]}: {self._named(named)}"
        line = self._leaves[dotted][1] if dotted in self._leaves else None
        return f"{self.path}{f':{line}' if line else ''}: {self._named(dotted)}"


def _tab_at(text: str, mark: yaml.Mark | None) -> str:
    """Return the problem where a tab indents a line; empty: none is there."""
    line = "" if mark is None else "".join(text.split("\n")[mark.line : mark.line + 1])
    is_indented = "\t" in line[: len(line) - len(line.lstrip())]
    return "a tab indents this line; YAML takes only spaces there" if is_indented else ""


def _without_quotes(problem: str) -> str:
    """Return PyYAML's message without quotes from the file, which may be a password. `'<...>'` is PyYAML's name for a token."""
    said = re.match(r"(?:[^'\"]|'(?:<[a-z ]+>|.)')*", problem)
    return f"{said[0].strip() if said else problem}; {_QUOTES}"


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"


def _is_empty(node: yaml.Node) -> bool:
    return _is_null(node) or (isinstance(node, yaml.MappingNode) and not node.value)
