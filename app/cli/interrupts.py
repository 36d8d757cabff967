"""Ctrl-C while a command's modules are loaded."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ended_by_interrupts() -> Iterator[None]:
    """A block in which Ctrl-C ends the process at once. Nothing is open in it.

    Python's own handler raises an exception instead. Where that happens in a callback of the import
    system, Python prints it, drops it, and continues.
    """
    python_handles = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not python_handles or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
