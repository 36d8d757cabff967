"""Lines for the person at the terminal."""

from __future__ import annotations

import sys

from greenfast.search.text import one_line


def say(text: object) -> None:
    """Print a single line on stderr."""
    print(one_line(text), file=sys.stderr, flush=True)
