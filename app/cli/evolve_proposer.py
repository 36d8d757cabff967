"""The proposer of `greenfast evolve`: any program that reads a JSON prompt and prints a source.

It is the user's own program and runs with the user's rights, in a process group of its own, under
a deadline and a limit on what it prints. It learns no secret of greenfast. Its failures are no
verdicts.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any

from greenfast.search.children import kill_group
from greenfast.search.errors import UsageError
from greenfast.search.text import last_line, one_line, shortened

LARGEST_REPLY_BYTES = 2_000_000
LOOK_S = 0.05
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
        """UsageError for a command that is none."""
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
        ):
            asked.write(json.dumps(prompt).encode())
            asked.seek(0)
            try:
                process = subprocess.Popen(
                    self._words,
                    stdin=asked,
                    stdout=reply,
                    stderr=log,
                    env={name: os.environ[name] for name in os.environ if name not in SECRETS},
                    start_new_session=True,
                )
            except OSError as error:
                raise UsageError(
                    f"the proposer {self._words[0]} cannot be started: {error.strerror}",
                    code="bad_command_line",
                ) from error
            try:
                failure = self._failure(process, reply, log)
            finally:
                kill_group(process)  # also what it left behind
            if failure:
                return NotProposed(failure)
            return _read(_head(reply))

    def _failure(self, process: subprocess.Popen[bytes], reply: IO[bytes], log: IO[bytes]) -> str:
        """Wait for the command to end; why its reply does not count, or empty."""
        end = time.monotonic() + self._deadline_s
        while process.poll() is None:
            if self._is_stopped():
                return "stopped"
            if time.monotonic() > end:
                return f"no proposal within {self._deadline_s:g} s"
            if any(_size(file) > LARGEST_REPLY_BYTES for file in (reply, log)):
                return f"more than {LARGEST_REPLY_BYTES:,} bytes"
            time.sleep(LOOK_S)
        if process.returncode:
            words = last_line(_head(log).decode("utf-8", "replace"))
            return one_line(f"exit code {process.returncode}: {words}")
        if _size(reply) > LARGEST_REPLY_BYTES:
            return f"more than {LARGEST_REPLY_BYTES:,} bytes"
        return ""


def _size(file: IO[bytes]) -> int:
    return os.fstat(file.fileno()).st_size


def _head(file: IO[bytes]) -> bytes:
    return os.pread(file.fileno(), LARGEST_REPLY_BYTES, 0)


def _read(reply: bytes) -> Proposed | NotProposed:
    """A source as it is, or a JSON object with one."""
    try:
        text = reply.decode("utf-8")
    except UnicodeDecodeError:
        return NotProposed("the reply is no UTF-8 text")
    if not text.strip():
        return NotProposed("the reply is empty")
    if not text.lstrip().startswith("{"):
        return Proposed(text)
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        return NotProposed(shortened(f"the reply is no JSON: {error}"))
    known = {name: given[name] for name in FIELDS if name in given}
    if "source" not in known or not all(isinstance(value, str) for value in known.values()):
        return NotProposed("the reply is JSON without the text `source`")
    return Proposed(**known)
