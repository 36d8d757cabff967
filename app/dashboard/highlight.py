"""CUDA source as HTML: one element a line, so that #L12 names line 12."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from markupsafe import Markup, escape
from pygments import highlight
from pygments.formatters import HtmlFormatter

from greenfast.app.dashboard.annotations import Note
from greenfast.app.dashboard.cuda_lexer import LinearCudaLexer
from greenfast.search.text import visible

LARGEST_HIGHLIGHTED = 300_000  # characters; longer text is shown plain


def cuda_lines(text: str, notes: Mapping[int, Sequence[Note]] | None = None) -> Markup:
    """`text` with line anchors and `notes` at their lines.

    The style sheet draws the numbers and keeps notes out of a selection, so that copying takes the
    code alone.
    """
    notes = notes or {}
    return Markup("\n").join(
        _line(number, line, notes.get(number, ()))
        for number, line in enumerate(_highlighted(text), 1)
    )


def _line(number: int, line: str, notes: Sequence[Note]) -> Markup:
    costs = [note for note in notes if note.kind == "cost"]
    beside = _COST.format(" \u00b7 ".join(_cost_text(cost) for cost in costs)) if costs else ""
    below = "".join(
        _FINDING.format(note.number, note.number, escape(visible(note.text)))
        for note in notes
        if note.kind == "finding"
    )
    marked = " has-finding" if below else ""
    return Markup(
        f'<span class="line{marked}" id="L{number}">'
        # Reached by mouse: a thousand lines must not be a thousand stops of the Tab key.
        f'<a href="#L{number}" tabindex="-1" aria-label="line {number}" data-number="{number}"></a>'
        f"{line}{beside}{below}</span>"
    )


_COST = '<span class="cost"> \u2190 {}</span>'
_FINDING = '<span class="finding">\u2716 <a href="#finding-{}">finding {}</a> {}</span>'


def _cost_text(note: Note) -> str:
    text = escape(note.text)
    return f"\u25b2 {text}" if note.is_bad else f"{text}"


@lru_cache(maxsize=64)
def _highlighted(text: str) -> tuple[str, ...]:
    text = visible(text.replace("\r\n", "\n"))
    if len(text) > LARGEST_HIGHLIGHTED:
        lines = [str(escape(line)) for line in text.split("\n")]
    else:
        lines = highlight(text, LinearCudaLexer(stripnl=False), HtmlFormatter(nowrap=True)).split(
            "\n"
        )
    while lines and not lines[-1]:
        lines.pop()
    return tuple(lines)
