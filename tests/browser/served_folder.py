"""The real service on a data folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from warm_command import WarmCommand

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The real service in a child process, without workers; gives its URL."""
    environment = {**os.environ, "GREENFAST_DATA": str(folder), "GREENFAST_TOKEN": ""}
    ours, theirs = os.pipe()
    command = ("serve", "--port", "0", "--workers", "0")
    with os.fdopen(ours) as output:
        process = WarmCommand(command, environment, ROOT, theirs, stderr=2)
        os.close(theirs)
        try:
            line = output.readline()
            assert "http://" in line, f"the service did not start: {line!r}"
            yield line.split()[-1]
        finally:
            process.terminate()
            process.wait(20)
