"""The rendering children of this process, each started when it is first needed.

A render takes about two milliseconds and a start a hundred, so children stay. They end with this
process, whose end closes their pipes.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from greenfast.search.children import ChildDied, Children, ChildTimeout, Limits
from greenfast.search.cpu_time import Deadline, beside_others
from greenfast.search.errors import Fault

MOST_CHILDREN = 4
PATIENCE_S = 0.5  # for a child that runs, before another one is started
LOG_BYTES = 64 * 1024  # of stderr, the only file that a child may write
# The child ends a text after three seconds by itself, unless a single operation takes longer.
DEADLINE_S = 6.0


@dataclass(frozen=True)
class TextFailed:
    """The template refused these values; `line` is 0 if it is not known."""

    message: str
    line: int


# The lines of a text, and for each the number of the template's line that it comes from.
Rendered = tuple[list[str], list[int]]


class Renderers:
    """Children that render; safe for several threads."""

    def __init__(self, count: int) -> None:
        self.pool = Children(
            count,
            "greenfast.search.rendering.child",
            Limits(file_bytes=LOG_BYTES),
            patience_s=PATIENCE_S,
        )

    def rendered(self, text: str, values: Mapping[str, Any]) -> Rendered | TextFailed:
        """The text that a template gives for these values.

        Raises Fault when a child is lost, or gets too little of the processor.
        """
        request = {"text": text, "values": dict(values)}
        try:
            reply = beside_others(lambda: self._twice(request), "rendering")
        except ChildTimeout:
            message = f"rendering takes more than {DEADLINE_S:g} s of processor time"
            return TextFailed(message, 0)
        except ChildDied as died:
            if not died.has_crashed:
                raise Fault(
                    f"the rendering child was lost (exit {died.returncode}): "
                    f"{died.tail[-300:].strip()}",
                    code="child_lost",
                ) from died
            return TextFailed(f"the template crashed Jinja (signal {died.signal_number})", 0)
        if "error" in reply:
            return TextFailed(reply["error"], reply["line"] or 0)
        return reply["lines"], reply["numbers"]

    def _twice(self, request: dict[str, Any]) -> dict[str, Any]:
        """The reply; from another child when the first was ended from outside."""
        deadline = Deadline.of(DEADLINE_S)
        try:
            return self.pool.call(request, deadline)
        except ChildDied as died:
            if died.has_crashed:
                raise
        return self.pool.call(request, deadline)


@cache
def renderers() -> Renderers:
    """The renderers that this process shares."""
    shared = Renderers(MOST_CHILDREN)
    atexit.register(shared.pool.close)
    return shared


# A forked process starts its own: its parent's children answer the parent.
os.register_at_fork(after_in_child=renderers.cache_clear)
