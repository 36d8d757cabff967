"""The proposer of `greenfast evolve`: any program that reads a JSON prompt and prints a source.

It is the user's own program and runs with the user's rights, under a deadline and a limit on what
it prints. It ends with all processes that it started (evolve_keeper.py). It learns no secret of
greenfast. Its failures are no verdicts.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from greenfast.search.children import kill_group
from greenfast.search.errors import UsageError
from greenfast.search.text import last_line, one_line, shortened

LARGEST_REPLY_BYTES = 2_000_000
LOOK_S = 0.05
KEEPER = Path(__file__).with_name("evolve_keeper.py")
END_WAIT_S = 8.0  # the keeper itself gives up after 5
SECRETS = ("GREENFAST_TOKEN", "GREENFAST_SUBMIT_TOKEN", "GREENFAST_DATABASE_URL")
FIELDS = ("source", "entry", "launch", "hypothesis", "model")


@dataclass(frozen=True)
class Proposed:
    """A proposal; empty fields are those of the first parent."""

    source: str
    entry: str = ""
    launch: str = ""
    hypothesis: str = ""
    model: str = ""


@dataclass(frozen=True)
class NotProposed:
    """Why there is no proposal."""

    reason: str


class Proposer:
    """A command that is run once for each proposal."""

    def __init__(
        self, command: str, deadline_s: float, is_stopped: Callable[[], bool] = lambda: False
    ) -> None:
        """UsageError for an invalid command."""
        try:
            self._words = shlex.split(command)
        except ValueError as error:
            raise UsageError(
                f"--propose cannot be read as a command: {error}", code="bad_command_line"
            ) from error
        if not self._words:
            raise UsageError("--propose is empty", code="bad_command_line")
        self._deadline_s, self._is_stopped = deadline_s, is_stopped

    def propose(self, prompt: dict[str, Any]) -> Proposed | NotProposed:
        """The command's proposal for a prompt; UsageError when there is no such command."""
        with (
            tempfile.TemporaryFile() as asked,
            tempfile.TemporaryFile() as reply,
            tempfile.TemporaryFile() as log,
            tempfile.TemporaryFile() as outcome,
        ):
            asked.write(json.dumps(prompt).encode())
            asked.seek(0)
            number = outcome.fileno()
            try:
                process = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(KEEPER), str(number), *self._words],
                    stdin=asked,
                    stdout=reply,
                    stderr=log,
                    pass_fds=(number,),
                    env={name: os.environ[name] for name in os.environ if name not in SECRETS},
                    start_new_session=True,
                )
            except OSError as error:
                raise self._not_started(error.errno or 0) from error
            try:
                failure = self._late_or_large(process, reply, log)
            finally:
                _end(process)
            return NotProposed(failure) if failure else self._outcome(outcome, reply, log)

    def _late_or_large(
        self, process: subprocess.Popen[bytes], reply: IO[bytes], log: IO[bytes]
    ) -> str:
        """Wait for the command and all that it started to end; why they may not go on, or empty."""
        end = time.monotonic() + self._deadline_s
        while process.poll() is None:
            if self._is_stopped():
                return "stopped"
            if time.monotonic() > end:
                return f"no proposal within {self._deadline_s:g} s"
            if any(_size(file) > LARGEST_REPLY_BYTES for file in (reply, log)):
                return f"more than {LARGEST_REPLY_BYTES:,} bytes"
            time.sleep(LOOK_S)
        if any(_size(file) > LARGEST_REPLY_BYTES for file in (reply, log)):
            return f"more than {LARGEST_REPLY_BYTES:,} bytes"
        return ""

    def _not_started(self, errno: int) -> UsageError:
        return UsageError(
            f"the proposer {self._words[0]} cannot be started: {os.strerror(errno)}",
            code="bad_command_line",
        )

    def _outcome(
        self, outcome: IO[bytes], reply: IO[bytes], log: IO[bytes]
    ) -> Proposed | NotProposed:
        """The keeper's report on the command, and the command's source."""
        try:
            ended = json.loads(_head(outcome))
        except ValueError:
            return NotProposed("the process that watches over it was ended")
        if "errno" in ended:
            raise self._not_started(ended["errno"])
        if ended["exit"] == 0:
            return _read(_head(reply))
        signal_number = max(0, -ended["exit"])
        how = f"ended by signal {signal_number}" if signal_number else f"exit code {ended['exit']}"
        words = last_line(_head(log).decode("utf-8", "replace"))
        return NotProposed(one_line(f"{how}: {words}" if words else how))


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the keeper, and with it everything that the command started."""
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_WAIT_S)
    kill_group(process)


def _size(file: IO[bytes]) -> int:
    return os.fstat(file.fileno()).st_size


def _head(file: IO[bytes]) -> bytes:
    return os.pread(file.fileno(), LARGEST_REPLY_BYTES, 0)


def _read(reply: bytes) -> Proposed | NotProposed:
    """A source as it is, or a JSON object with one."""
    try:
        text = reply.decode("utf-8")
    except UnicodeDecodeError:
        return NotProposed("the reply is not UTF-8 text")
    if not text.strip():
        return NotProposed("the reply is empty")
    if not text.lstrip().startswith("{"):
        return Proposed(text)
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        return NotProposed(shortened(f"the reply is not JSON: {error}"))
    if not isinstance(given, dict):
        return NotProposed("the reply is JSON, but no object")
    known = {name: given[name] for name in FIELDS if name in given}
    if "source" not in known or not all(isinstance(value, str) for value in known.values()):
        return NotProposed("the reply is JSON without the text `source`")
    return Proposed(**known)
