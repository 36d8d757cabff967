"""Runs the peers' child in its Python, to its end or its deadline, and reads its replies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from greenfast.search.children import child_environment, kill_group
from greenfast.search.errors import Fault
from greenfast.search.text import last_line

PYTHON_VARIABLE = "GREENFAST_PEERS_PYTHON"  # an interpreter with torch, cupy, numpy and ml_dtypes
# Imported by the child: the domain, and the folders of data that search/shipped.py looks up.
PACKAGES = (
    "greenfast",
    "greenfast.search",
    "greenfast.kernel_templates",
    "greenfast.recordings",
    "greenfast.album",
)
BOOTSTRAP = Path(__file__).with_name("bootstrap.py")
CHILD_DEADLINE_S = 300.0  # of all peers in one process, imports included
POLL_S = 0.05
TAIL_BYTES = 4000  # of the child's stderr, of which the last line is kept


@dataclass
class Replies:
    """A child's outcomes until it ended, and the (peer, workload) that it was running then."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    running: tuple[str, str] | None = None


def python() -> str:
    """The interpreter that runs peers: GREENFAST_PEERS_PYTHON, or this one."""
    return os.environ.get(PYTHON_VARIABLE) or sys.executable


def run_child(
    interpreter: str,
    request: Path,
    replies: Path,
    deadline_s: float = CHILD_DEADLINE_S,
    cancelled: Callable[[], bool] = lambda: False,
) -> str:
    """Run the child to its end. Returns a phrase on how it failed, empty when it did not.

    Fault when it cannot be started.
    """
    command = [interpreter, str(BOOTSTRAP), json.dumps(_packages()), str(request), str(replies)]
    with tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env=_environment(interpreter),
                cwd=request.parent,
                start_new_session=True,
            )
        except OSError as error:
            raise Fault(
                f"{interpreter} cannot be run: {error.strerror}",
                code="peers_child",
                mend=f"correct {PYTHON_VARIABLE}",
            ) from error
        end = time.monotonic() + deadline_s
        try:
            while process.poll() is None:
                if cancelled():
                    return "it was cancelled"
                if time.monotonic() > end:
                    return f"no answer within {deadline_s:g} s"
                time.sleep(POLL_S)
            code = process.returncode
        finally:
            kill_group(process)
        errors.seek(0)
        tail = errors.read()[-TAIL_BYTES:].decode(errors="replace")
    if code == 0:
        return ""
    message = last_line(tail)
    return f"exit code {code}" + (f": {message}" if message else "")


def _environment(interpreter: str) -> dict[str, str]:
    environment = child_environment({"HOME": os.path.expanduser("~")})
    if interpreter != sys.executable:
        # It names packages built for this Python, which another would find before its own.
        environment.pop("PYTHONPATH", None)
    return environment


def _packages() -> dict[str, str]:
    """The folder of each package that the child imports."""
    return {name: str(Path(next(iter(import_module(name).__path__)))) for name in PACKAGES}


def read_replies(lines: Iterable[str]) -> Replies:
    """The child's replies. A last line that was cut short is ignored."""
    replies = Replies()
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if row.get("begin"):
            replies.running = (row["peer"], row["workload"])
        elif "outcome" in row:
            replies.rows.append(row)
            replies.running = None
    return replies
