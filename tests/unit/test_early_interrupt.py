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
    # A shell's background jobs ignore SIGINT, and so would the command.
    as_in_a_terminal = (
        "import os, signal, sys\nsignal.signal(signal.SIGINT, signal.SIG_DFL)\n"
        "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    )
    command = [sys.executable, "-c", as_in_a_terminal, "-m", "greenfast", "--help"]
    ended = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == -signal.SIGINT, "a shell shows 130"
    assert ended.stdout == ended.stderr == ""


def test_an_interrupt_ends_the_process_while_a_command_s_own_modules_are_loaded():
    """Python's handler would raise there, and its import system can drop the exception."""
    script = (
        "import signal, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, *more):\n"
        "        if name == 'greenfast.app.cli.completion':\n"
        "            print(signal.getsignal(signal.SIGINT) is signal.SIG_DFL)\n"
        "sys.meta_path.insert(0, Finder())\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from greenfast.app.cli.main import run\n"
        "run(['completion', 'fish'])\n"
        "print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)\n"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    assert (lines[0], lines[-1], done.stderr) == ("True", "True", "")
