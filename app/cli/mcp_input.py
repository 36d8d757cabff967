"""Standard input as the MCP SDK can read it.

JSON allows escapes of lone surrogates, which are no text. The SDK drops such a message, so that its
sender would wait for ever. A NUL takes their place here, and the tool refuses that with a code.
"""

from __future__ import annotations

import json
import os
import re
import threading
from contextlib import suppress

_SURROGATE = re.compile("[\ud800-\udfff]")
STDIN = 0


def repaired(line: bytes) -> bytes:
    """The message, with a NUL for each lone surrogate."""
    if b"\\ud" not in line and b"\\uD" not in line:
        return line
    try:
        text = json.dumps(json.loads(line), ensure_ascii=False)
    except (ValueError, RecursionError):
        return line
    if not _SURROGATE.search(text):
        return line
    return _SURROGATE.sub(r"\\u0000", text).encode() + b"\n"


def repair_input() -> None:
    """Put a pipe with repaired messages in the place of this process's standard input."""
    source = os.dup(STDIN)
    read, write = os.pipe()
    os.dup2(read, STDIN)
    os.close(read)
    threading.Thread(target=_forward, args=(source, write), daemon=True).start()


def _forward(source: int, write: int) -> None:
    with suppress(OSError), open(source, "rb") as lines, open(write, "wb", buffering=0) as pipe:
        for line in lines:
            view = memoryview(repaired(line))
            while view:
                view = view[pipe.write(view) :]
