"""A strategy in a process of its own, where there are cores to spare.

Its model needs milliseconds of Python and NumPy for each proposal. In the process of a search they
would hold Python's global lock, which limits the rate of a search on several GPUs.
"""

from __future__ import annotations

import base64
import pickle
import tempfile
from collections import deque
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol

from greenfast.search.children import Child, ChildDied, ChildTimeout, Limits, encoded
from greenfast.search.cores import usable_cores
from greenfast.search.errors import Fault
from greenfast.search.strategies.base import ModelledTime, Past, Proposal, Strategy, Told

MODULE = "greenfast.search.strategies.apart_child"
LEAST_CORES = 8  # below it every core compiles
DEADLINE_S = 300.0  # of a question; a process that takes longer is stuck
MEMORY_BYTES = 8 * 2**30
MOST_SENT = 32  # calls without a reply: neither side ever waits for the other to read
MOST_BYTES = 2**28  # of a strategy with its listed spaces


class Chooser(Protocol):
    """The part of a strategy that a running search uses."""

    in_haste: bool

    def ask(self) -> Proposal | None: ...
    def tell(self, proposal: Proposal, told: Told) -> None: ...
    def correct(self, proposal: Proposal, told: Told) -> None: ...
    def hear_modelled(self, times: Sequence[ModelledTime]) -> None: ...


class Apart:
    """Asks a strategy here until a process for it has started, and a copy in the process then.

    A process that dies, is stuck or fails says nothing about the search: the strategy here learns
    what it has missed, as in a resumed search, and answers from then on.
    """

    def __init__(self, strategy: Strategy) -> None:
        self._strategy = strategy
        self.in_haste = False
        # What the strategy here does not know: by candidate, in the order of the proposals, and
        # of candidates that the process did not propose the calls with their outcomes.
        self._missed: dict[str, Past] = {}
        self._outcomes: dict[str, tuple[str, Proposal, Told]] = {}
        self._child: Child | None = None
        self._sent: deque[str] = deque()  # calls without a reply yet, in their order
        self._answers: deque[Any] = deque()  # to questions that were sent ahead
        self._booting: Child | None = None
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="start-strategy")
        self._starting: Future[Child] | None = self._starter.submit(self._started)

    def ask(self) -> Proposal | None:
        if self._starting is not None and self._starting.done():
            self._move()
        passed, answer = self._answered()
        if not passed:
            return self._strategy.ask()
        proposal: Proposal | None = answer
        if proposal is not None:
            past = Past(proposal.candidate, proposal.sampler, None)
            self._missed[proposal.candidate.digest] = past
        return proposal

    def ask_ahead(self) -> None:
        """Let the process begin its answer to the next `ask`, which does not know what is told
        until then."""
        if not self._answers and "ask" not in self._sent:
            self._send("ask", self.in_haste)

    def tell(self, proposal: Proposal, told: Told) -> None:
        if self._send("tell", (proposal, told)):
            self._note("tell", proposal, told)
        else:
            self._strategy.tell(proposal, told)

    def correct(self, proposal: Proposal, told: Told) -> None:
        if self._send("correct", (proposal, told)):
            self._note("correct", proposal, told)
        else:
            self._strategy.correct(proposal, told)

    def hear_modelled(self, times: Sequence[ModelledTime]) -> None:
        if not self._send("hear_modelled", (times,)):
            self._strategy.hear_modelled(times)

    def close(self) -> None:
        """End the process."""
        starting, self._starting = self._starting, None
        if starting is not None:
            starting.cancel()
            if self._booting is not None:
                self._booting.kill()
            self._starter.shutdown(wait=True)
            with suppress(CancelledError, Fault, ChildDied, ChildTimeout):
                starting.result().close()
        if self._child is not None:
            self._child.close()
            self._child = None

    def _started(self) -> Child:
        """A process that has imported what strategies need."""
        self._booting = Child(MODULE, Limits(memory_bytes=MEMORY_BYTES))
        self._booting.call({"do": "hello", "value": _packed(None)}, DEADLINE_S)
        return self._booting

    def _note(self, call: str, proposal: Proposal, told: Told) -> None:
        name = proposal.candidate.digest
        if name in self._missed:
            self._missed[name] = replace(self._missed[name], told=told)
        else:
            first, *_ = self._outcomes.get(name, (call,))
            self._outcomes[name] = first, proposal, told

    def _move(self) -> None:
        """Copy the strategy to the process, unless it is too large or cannot be copied."""
        assert self._starting is not None
        starting, self._starting = self._starting, None
        try:
            child = starting.result()
        except (Fault, ChildDied, ChildTimeout):
            return
        try:
            copy = pickle.dumps(self._strategy)
        except Exception:  # of any object of an author's expressions, or of Optuna
            copy = b""
        if not 0 < len(copy) <= MOST_BYTES:
            child.close()
            return
        self._child = child
        with tempfile.NamedTemporaryFile(prefix="greenfast-strategy-") as file:
            file.write(copy)
            file.flush()
            self._send("begin", file.name)
            while self._child is not None and self._sent:
                self._receive()

    def _send(self, do: str, value: Any = None) -> bool:
        """Send a call whose reply is read later; False if there is no process."""
        while self._child is not None and len(self._sent) >= MOST_SENT:
            self._receive()
        if self._child is None:
            return False
        try:
            self._child.send(encoded({"do": do, "value": _packed(value)}))
        except OSError:
            self._lose()
            return False
        self._sent.append(do)
        return True

    def _answered(self) -> tuple[bool, Any]:
        """Whether the process has answered a question, and its answer."""
        if not self._answers and "ask" not in self._sent:
            self._send("ask", self.in_haste)
        while self._child is not None and not self._answers:
            self._receive()
        return (True, self._answers.popleft()) if self._answers else (False, None)

    def _receive(self) -> None:
        """Take the reply to the first call that has none."""
        assert self._child is not None
        try:
            reply = self._child.receive(DEADLINE_S)
        except (ChildDied, ChildTimeout):
            reply = {"failed": "the process was lost"}
        if "failed" in reply:
            self._lose()
        elif self._sent.popleft() == "ask":
            self._answers.append(pickle.loads(base64.b64decode(reply["answer"])))

    def _lose(self) -> None:
        """Go on without the process: the strategy here learns what it has missed."""
        assert self._child is not None
        self._child.close()
        self._child = None
        self._sent.clear()
        self._answers.clear()
        self._strategy.restore(list(self._missed.values()))
        for call, proposal, told in self._outcomes.values():
            getattr(self._strategy, call)(proposal, told)


def _packed(value: Any) -> str:
    return base64.b64encode(pickle.dumps(value)).decode()


def apart(strategy: Strategy) -> Apart | None:
    """The strategy in a process of its own; None if there is no core for it."""
    return Apart(strategy) if usable_cores() >= LEAST_CORES else None
