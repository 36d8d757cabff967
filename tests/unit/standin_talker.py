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

NOTES = Path(os.environ["TMPDIR"]) / "notes"


def note(words: str) -> None:
    with NOTES.open("a") as file:
        file.write(f"{words} {os.getpid()} {time.monotonic()}\n")


def answer(request: dict[str, Any]) -> dict[str, Any]:
    if request["do"] == "hello":
        return {"pid": os.getpid()}
    note(f"begins {request['name']}")
    time.sleep(request.get("seconds", 0.0))
    if request.get("dies"):
        os._exit(3)
    note(f"ends {request['name']}")
    error = {"error": "an illegal address"} if request.get("breaks") else {}
    return {"name": request["name"], "size": len(request.get("filling", "")), **error}


if __name__ == "__main__":
    serve_requests(answer, int(sys.argv[1]), int(sys.argv[2]))
