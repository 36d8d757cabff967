"""Printing: data on stdout, everything else on stderr, and no terminal control characters."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable, Sequence
from typing import IO, Any, TextIO, cast

from rich.console import Console
from rich.table import Table
from rich.text import Text

from greenfast.app.views.terminal import say
from greenfast.search.errors import GreenfastError
from greenfast.search.json_values import json_text
from greenfast.search.text import visible

WIDTH_WITHOUT_TERMINAL = 100_000  # no row is cut or folded for a program that reads it
WIDEST_PANEL = 140
SMALL_US = 0.1  # figures below it have significant digits


class _Console(Console):
    """rich's own exits with 1 when its reader is gone, as in `greenfast templates | head`."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


class _WithoutPadding(io.TextIOBase):
    """Tables fill their last column with blanks, which only a terminal needs."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        lines = text.split("\n")
        self._stream.write("\n".join([*(line.rstrip(" ") for line in lines[:-1]), lines[-1]]))
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def isatty(self) -> bool:
        return False


def console(*, stderr: bool = False) -> Console:
    """A console without markup, so that names and logs are printed as they are.

    As wide as the terminal. Other readers get whole rows, unless COLUMNS asks for a width.
    """
    stream = sys.stderr if stderr else sys.stdout
    if stream.isatty():
        return _Console(stderr=stderr, markup=False, highlight=False, emoji=False)
    asked = os.environ.get("COLUMNS", "")
    width = int(asked[:7]) if asked.isascii() and asked.isdecimal() else None
    return _Console(
        file=cast(IO[str], _WithoutPadding(stream)),
        markup=False,
        highlight=False,
        emoji=False,
        width=width or WIDTH_WITHOUT_TERMINAL,
    )


def panel_width(out: Console) -> int:
    """The width of a frame around text: no wider than people read."""
    return min(out.width, WIDEST_PANEL)


def print_json(value: Any) -> None:
    """Exactly one JSON value on stdout."""
    print(json_text(value), flush=True)


def print_error(error: GreenfastError, as_json: bool) -> None:
    """The sentence on stderr, and with --json the error as the only value on stdout."""
    for each in (error, *error.also):
        say(f"greenfast: {each}")
    if as_json:
        first, *others = (
            {"code": e.code, "message": e.message, "mend": e.mend} for e in (error, *error.also)
        )
        print_json({"error": {**first, "also": others} if others else first})


def text(value: object, style: str = "") -> Text:
    """A table cell or panel text without markup and terminal control characters."""
    if isinstance(value, bool):
        value = "yes" if value else "no"
    return Text("-" if value is None else visible(value), style=style)


def table(titles: Sequence[str], rows: Iterable[Sequence[object]], *, title: str = "") -> Table:
    """A table without lines; cells are texts, or values that `text` shows."""
    result = Table(
        title=text(title) if title else None,
        title_justify="left",
        header_style="bold",
        box=None,
        pad_edge=False,
    )
    for heading in titles:
        result.add_column(text(heading), overflow="fold")
    for row in rows:
        result.add_row(*(cell if isinstance(cell, Text) else text(cell) for cell in row))
    return result


VERDICT_STYLES = {
    "accepted": "bold green",
    "green": "green",
    "rejected": "yellow",
    "faulted": "bold red",
    "passed": "green",
    "failed": "yellow",
    "completed": "green",
    "running": "cyan",
    "cancelled": "yellow",
    "missing": "red",
    "ok": "green",
    "right": "green",
    "wrong": "bold red",
}


def styled(word: object) -> Text:
    """A verdict, outcome or status in its colour."""
    return text(word, VERDICT_STYLES.get(str(word), ""))


def microseconds(value: float | None, kind: object = None, mode: str | None = None) -> str:
    """3.20 us (measured, hot)."""
    if value is None:
        return "-"
    qualifier = ", ".join(str(word) for word in (kind, mode) if word)
    digits = f"{value:.2f}" if value >= SMALL_US else f"{value:.3g}"
    return f"{digits} us" + (f" ({qualifier})" if qualifier else "")


def ratio_in_band(ratio: float | None, kind: object, band: float | None) -> str:
    """A ratio to the baseline, marked as a tie if it was not measured and lies within `band`."""
    if ratio is None:
        return "-"
    told_apart = str(kind) == "measured" or not band or not 1 / band < ratio < band
    return f"{ratio:.3f}" + ("" if told_apart else f" (a tie: within a factor of {band:g})")


def duration(seconds: float | None) -> str:
    """3.2 s, 4 min 5 s, 2 h 10 min."""
    if seconds is None:
        return "-"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
