"""Prints the demo's story: with colours on a terminal, plain elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.text import Text


class Teller:
    """Passes lines to `print_text`. Shows progress only if stderr is a terminal."""

    def __init__(self, print_text: Callable[[str], object]) -> None:
        self._print_text = print_text
        self._console = Console(highlight=False, soft_wrap=True)
        self._terminal = Console(stderr=True)
        self._chapter = 0

    def title(self, text: str) -> None:
        self._line(text, "bold")

    def chapter(self, text: str) -> None:
        self._chapter += 1
        self._line("")
        self._line(f"{self._chapter}. {text}", "bold cyan")

    def say(self, text: str) -> None:
        self._line(text)

    def aside(self, text: str) -> None:
        self._line(f"  ({text})", "dim")

    def item(self, text: str) -> None:
        self._line(f"  - {text}")

    def good(self, text: str) -> None:
        self._line(text, "bold green")

    def bad(self, text: str) -> None:
        self._line(text, "bold red")

    def command(self, text: str) -> None:
        self._line(f"$ {text}", "bold yellow")

    def shown(self, text: str) -> None:
        """Print a file, or the output of a command."""
        for line in text.splitlines():
            self._line(f"    {line}".rstrip())

    @contextmanager
    def busy(self, doing: str) -> Iterator[None]:
        """Show activity on a terminal."""
        if not self._terminal.is_terminal:
            yield
            return
        with self._terminal.status(Text(doing)):
            yield

    def _line(self, text: str, style: str = "") -> None:
        with self._console.capture() as captured:
            self._console.print(Text(text, style), end="")
        self._print_text(captured.get())
