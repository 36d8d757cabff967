"""The `greenfast` command, also as `python -m greenfast`."""

from __future__ import annotations

import signal


def main() -> None:
    """Run the command. Ctrl-C while its modules are loaded ends it without a traceback."""
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if ours:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from greenfast.app.cli.main import main as command

    if ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    command()


if __name__ == "__main__":
    main()
