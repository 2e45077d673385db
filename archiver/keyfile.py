"""A YAML file as dotted keys with their lines: the one form in which nested and dotted spelling are the same.

Values are taken as written, not as YAML guesses them: text, null, or a list of these.
"""

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml

from archiver.errors import UsageError

_VARIABLE: Final = re.compile(r"\$(\$?)\{(?:file:([^}]+)|([A-Za-z_][A-Za-z0-9_]*))\}")
_LARGEST_SECRET: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Key:
    """A key that may stand in the file. A mapping's own keys are all that begin with it; a section has no value."""

    dotted: str
    path: tuple[str, ...]
    is_mapping: bool
    is_section: bool


@dataclass(slots=True)
class KeyFile:
    """The leaves of a file under their dotted keys, with the line of each. Fill it with `read`."""

    path: Path
    keys: Sequence[Key]
    variables: Mapping[str, str] = field(repr=False)
    _leaves: dict[str, tuple[object, int]] = field(default_factory=dict)
    _problems: list[str] = field(default_factory=list)

    def read(self) -> None:
        """UsageError names every wrong line at once."""
        try:
            root = yaml.compose(self.path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{self.path}: cannot be read: {error}") from error
        except RecursionError as error:
            raise UsageError(f"{self.path}: is nested too deep") from error
        except yaml.YAMLError as error:
            mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
            place = f"{self.path}:{mark.line + 1}" if mark is not None else str(self.path)
            raise UsageError(f"{place}: not YAML: {problem or error}") from error
        if isinstance(root, yaml.MappingNode):
            self._add_all(root)
        elif root is not None:
            raise UsageError(f"{self.path}: a configuration is a mapping of keys to values")
        if self._problems:
            raise UsageError("\n".join(self._problems))

    def _add_all(self, node: yaml.MappingNode, prefix: str = "") -> None:
        for name, value in node.value:
            self._add(f"{prefix}{name.value}", value, name.start_mark.line + 1)

    def _add(self, dotted: str, node: yaml.Node, line: int) -> None:
        key = self._find(dotted)
        if isinstance(node, yaml.MappingNode) and node.value:
            self._add_all(node, f"{dotted}.")
        elif dotted in self._leaves:
            self._problem(line, f"{dotted} is given a second time (first in line {self._leaves[dotted][1]})")
        elif key is None:
            self._problem(line, f"unknown key {dotted}{self._suggestion(dotted)}")
        elif not _is_empty(node) and (key.is_section or (key.is_mapping and key.dotted == dotted)):
            self._problem(line, f"{dotted} holds keys, not a value")
        elif key.is_mapping and _is_empty(node) and key.dotted != dotted:
            self._problem(line, f"{dotted} has no value")
        elif not (key.is_section or (key.is_mapping and _is_empty(node))):
            self._leaves[dotted] = (self._value_of(dotted, node, line), line)

    def _find(self, dotted: str) -> Key | None:
        for key in self.keys:
            if dotted == key.dotted or (key.is_mapping and dotted.startswith(f"{key.dotted}.")):
                return key
        return None

    def _value_of(self, dotted: str, node: yaml.Node, line: int) -> object:
        if isinstance(node, yaml.SequenceNode):
            return [self._value_of(dotted, item, line) for item in node.value]
        if _is_null(node):
            return None
        if isinstance(node, yaml.MappingNode):
            self._problem(line, f"{dotted} is no mapping")
            return None
        return _VARIABLE.sub(lambda found: self._variable(found, dotted, line), str(node.value))

    def _variable(self, found: re.Match[str], dotted: str, line: int) -> str:
        """`${NAME}` is the environment's NAME, `${file:PATH}` what a file holds; `$${NAME}` is the text `${NAME}`."""
        dollar, path, name = found.groups()
        if dollar:
            return found[0][1:]
        if path is not None:
            return self._content_of(path, dotted, line)
        if name not in self.variables:
            self._problem(line, f"{dotted}: the environment has no {name}")
        return self.variables.get(name, "")

    def _content_of(self, path: str, dotted: str, line: int) -> str:
        """Read a secret that somebody mounted; an editor's line end behind it is none of it."""
        try:
            with Path(path).open(encoding="utf-8") as file:
                text = file.read(_LARGEST_SECRET + 1)
        except (OSError, ValueError) as error:
            self._problem(line, f"{dotted}: {path} cannot be read: {getattr(error, 'strerror', None) or 'no text'}")
            return ""
        if len(text) > _LARGEST_SECRET:
            self._problem(line, f"{dotted}: {path} is larger than {_LARGEST_SECRET} characters")
        return text.rstrip("\r\n")

    def _problem(self, line: int, text: str) -> None:
        self._problems.append(f"{self.path}:{line}: {text}")

    def _suggestion(self, dotted: str) -> str:
        close = difflib.get_close_matches(dotted, [key.dotted for key in self.keys if not key.is_section], n=1)
        return f"; did you mean {close[0]}?" if close else ""

    def tree(self) -> dict[str, object]:
        """The values, as nested as the keys' paths."""
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
        """`file:line: key`, for messages."""
        line = self._leaves[dotted][1] if dotted in self._leaves else None
        return f"{self.path}:{line}: {dotted}" if line else f"{self.path}: {dotted}"


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"


def _is_empty(node: yaml.Node) -> bool:
    return _is_null(node) or (isinstance(node, yaml.MappingNode) and not node.value)
