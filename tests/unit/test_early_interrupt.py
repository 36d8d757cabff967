"""Ctrl-C before the command has loaded its modules."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

# Stands for the first third-party module of the command, and for somebody who is quick.
INTERRUPTED = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"


def test_ctrl_c_while_modules_are_loaded_shows_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text(INTERRUPTED)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "greenfast", "--help"]
    ended = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == -signal.SIGINT, "a shell shows 130"
    assert ended.stdout == ended.stderr == ""
