"""The demo's service: started, waited for, and explained when it does not come up."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from greenfast.search.errors import GreenfastError, UsageError

TAIL_LINES = 20
LOOK_S = 0.2
TELL_EVERY_S = 15.0
DUMP_S = 5.0  # for the stacks of a service that is given up


def serve_command(port: int) -> list[str]:
    # With faulthandler a service that hangs can be made to print where it does.
    return [sys.executable, "-X", "faulthandler", "-m", "greenfast", "serve", "--port", str(port)]


def start(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """The service with all that it prints in `log`, in a process group of its own."""
    with log.open("wb") as file:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
        )


def await_ready(
    service: subprocess.Popen[bytes],
    log: Path,
    ask: Callable[[], None],
    deadline_s: float,
    tell: Callable[[str], None],
) -> None:
    """Return when `ask` no longer raises GreenfastError.

    UsageError with the end of the log: `service_ended` as soon as the service has ended, and
    `no_service` after `deadline_s`, with the stacks of its threads.
    """
    begin = told = time.monotonic()
    while True:
        code = service.poll()
        if code is not None:
            raise UsageError(
                f"the service ended with {ending(code)} before it answered\n{tail(log)}",
                code="service_ended",
                mend=f"the whole log is {log}",
            )
        try:
            ask()
            return
        except GreenfastError:
            pass
        now = time.monotonic()
        if now - begin > deadline_s:
            dump_stacks(service)
            raise UsageError(
                f"the service did not answer within {deadline_s:g} s\n{tail(log)}",
                code="no_service",
                mend=f"the whole log is {log}; its last lines show where the service was",
            )
        if now - told > TELL_EVERY_S:
            told = now
            tell(f"waiting for the service, {now - begin:.0f} s: {last_line(log)}")
        time.sleep(LOOK_S)


def ending(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def dump_stacks(service: subprocess.Popen[bytes]) -> None:
    """Make the service write its threads' stacks to its log, which ends it."""
    service.send_signal(signal.SIGABRT)
    with suppress(subprocess.TimeoutExpired):  # it is stopped with its group at the demo's end
        service.wait(DUMP_S)


def tail(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()[-TAIL_LINES:]
    return "\n".join(f"  | {line}" for line in lines) if lines else "  (its log is empty)"


def last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").split("\n")
    return next((line for line in reversed(lines) if line.strip()), "its log is empty")
