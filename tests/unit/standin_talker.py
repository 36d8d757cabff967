"""A measuring child that notes when it works on which request, and dies or fails as it is told.

Started like the real one, with the folder TMPDIR for its notes.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from greenfast.search.children import serve_requests
from greenfast.search.targets.cuda.spans import UNASKED

NOTES = Path(os.environ["TMPDIR"]) / "notes"


replied_s: list[float] = []  # when the last reply was ready


def note(words: str) -> None:
    with NOTES.open("a") as file:
        file.write(f"{words} {os.getpid()} {time.monotonic()}\n")


def answer(request: dict[str, Any]) -> dict[str, Any]:
    if request["do"] == "hello":
        return {"pid": os.getpid()}
    spans = {UNASKED: time.monotonic() - replied_s.pop()} if replied_s else {}
    name = request.get("name", "")
    note(f"begins {name}")
    time.sleep(request.get("seconds", 0.0))
    if request.get("dies"):
        os._exit(3)
    note(f"ends {name}")
    error = {"error": "an illegal address"} if request.get("breaks") else {}
    replied_s.append(time.monotonic())
    return {"name": name, "size": len(request.get("filling", "")), "spans": spans, **error}


if __name__ == "__main__":
    serve_requests(answer, int(sys.argv[1]), int(sys.argv[2]))
