"""CUDA source as HTML: one element a line, so that #L12 names line 12."""

from __future__ import annotations

from functools import lru_cache

from markupsafe import Markup, escape
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import CudaLexer

from app.dashboard.words import visible_lines

LARGEST_HIGHLIGHTED = 300_000        # characters; longer text is shown plain


@lru_cache(maxsize=64)
def cuda_lines(text: str) -> Markup:
    """`text` with line anchors; the style sheet draws the numbers, so that copying takes the code alone."""
    text = visible_lines(text)
    if len(text) > LARGEST_HIGHLIGHTED:
        lines = [str(escape(line)) for line in text.split("\n")]
    else:
        lines = highlight(text, CudaLexer(stripnl=False), HtmlFormatter(nowrap=True)).split("\n")
    while lines and not lines[-1]:
        lines.pop()
    return Markup("\n").join(
        Markup(f'<span class="line" id="L{number}"><a href="#L{number}" aria-label="line {number}" '
               f'data-number="{number}"></a>{line}</span>') for number, line in enumerate(lines, 1))
