"""The `greenfast` command, also as `python -m greenfast`."""

from __future__ import annotations

import os
import signal
import sys


def main() -> None:
    """Run the command. Ctrl-C while its modules are loaded ends it without a traceback."""
    _open_streams()
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if ours:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from greenfast.app.cli.main import main as command

    if ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    command()


def _open_streams() -> None:
    """Open the standard streams that the caller has closed; a database would get their numbers."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w"))


if __name__ == "__main__":
    main()
