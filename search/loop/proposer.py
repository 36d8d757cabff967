"""The strategy in a thread of its own, so that the loop never waits for its model.

Requests are answered in the order in which the loop makes them. What the strategy knows at each
question is therefore the same in every run of a plan, however long an answer takes.

Where times are measured and cores are free, the model is in a process of its own, and works on the
next proposal while a second thread renders this one. What it knows then depends on time, as
everything does in a search that measures.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from greenfast.search.errors import Fault
from greenfast.search.loop.near_negatives import NearNegativesLast
from greenfast.search.render import RenderedSource, RenderFailed
from greenfast.search.space.candidate import Candidate
from greenfast.search.space.launching import Launch
from greenfast.search.strategies.apart import Apart, Chooser, apart
from greenfast.search.strategies.base import ModelledTime, Proposal, Strategy, Told

Rendered = RenderedSource | RenderFailed
MANY_WAITING = 16  # questions; then the strategy is what a search waits for
_Answer = Future["Proposed | None"]
_Work = tuple[str, Launch]  # the digest of a text, and what its launches depend on


@dataclass(frozen=True)
class Proposed:
    """A proposal with its text; None: the rendering child was lost, so the trial renders again."""

    proposal: Proposal
    rendered: Rendered | None
    render_s: float = 0.0


class Proposer:
    """Asks a strategy for proposals, renders them, and reports outcomes to it."""

    def __init__(
        self,
        strategy: Strategy,
        render: Callable[[Candidate], Rendered],
        launch_of: Callable[[Candidate], Launch],
        *,
        discourages: Callable[[Candidate], bool] = lambda _: False,
        may_move: bool = False,
    ) -> None:
        """A proposal whose text was tried with the same `launch_of` is replaced.

        `discourages`: whether a candidate is so near to known negatives that others come first.
        `may_move`: the strategy may answer from a process of its own.
        """
        self._strategy: Chooser = strategy
        self._apart: Apart | None = None
        self._own, self._may_move = strategy, may_move
        self._render, self._launch_of = render, launch_of
        # `_strategy` changes, so its method is looked up at each question.
        self._next = NearNegativesLast(lambda: self._strategy.ask(), discourages)  # noqa: PLW0108
        self._done: dict[_Work, Told | None] = {}  # None while the result is not known
        self._failure: BaseException | None = None  # of telling, for the next question
        self._waiting = 0  # questions that the loop has asked and this has not begun
        self._counting = threading.Lock()
        # Questions whose answer had a known text, with that proposal and its outcome.
        self._repeated: deque[tuple[_Answer, Proposal, Told | None]] = deque()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="propose")
        self._renderer = ThreadPoolExecutor(1, thread_name_prefix="render")

    def __enter__(self) -> Proposer:
        self._apart = apart(self._own) if self._may_move else None
        self._strategy = self._apart or self._own
        return self

    def __exit__(self, *error: object) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)
        self._renderer.shutdown(wait=True, cancel_futures=True)
        if self._apart is not None:
            self._apart.close()

    def ask(self) -> _Answer:
        """The next candidate; None when no valid point is left."""
        with self._counting:
            self._waiting += 1
        answer: _Answer = Future()
        self._thread.submit(self._begin, answer)
        return answer

    def render(self, proposal: Proposal) -> _Answer:
        """A proposal that is not the strategy's: the baseline, or one begun before."""
        thread = self._thread if self._apart is None else self._renderer
        return thread.submit(self._noted, proposal)

    def tell(self, proposal: Proposal, source_digest: str | None, told: Told | None) -> None:
        """Report a trial's outcome; None for a fault, which the strategy does not hear of."""
        self._thread.submit(self._told, proposal, source_digest, told)

    def correct(self, proposal: Proposal, source_digest: str | None, told: Told | None) -> None:
        """Replace the reported outcome of a trial, for example if it proved unsafe."""
        self._thread.submit(self._corrected, proposal, source_digest, told)

    def hear_modelled(self, times: Sequence[ModelledTime]) -> None:
        """Pass modelled times on to the strategy."""
        self._thread.submit(self._heard_modelled, times)

    def remember(self, candidate: Candidate, source_digest: str, told: Told | None) -> None:
        """Note a stored trial's outcome, before the first question."""
        self._done[self._work(candidate, source_digest)] = told

    def _work(self, candidate: Candidate, source_digest: str) -> _Work:
        return source_digest, self._launch_of(candidate)

    def _begin(self, answer: _Answer) -> None:
        with self._counting:
            self._waiting -= 1
            if self._may_move:
                self._strategy.in_haste = self._waiting >= MANY_WAITING
        self._repeat()
        self._propose(answer)
        self._repeat()

    def _repeat(self) -> None:
        """Ask again where the text was known; the strategy hears what came of it."""
        while self._repeated:
            answer, proposal, told = self._repeated.popleft()
            try:
                if told is not None:
                    self._strategy.tell(proposal, told)
            except BaseException as error:
                answer.set_exception(error)
            else:
                self._propose(answer)

    def _propose(self, answer: _Answer) -> None:
        try:
            if self._failure is not None:
                raise self._failure
            proposal = self._next()
        except BaseException as error:
            answer.set_exception(error)
            return
        if proposal is None:
            answer.set_result(None)
        elif self._apart is None:
            self._finish(answer, proposal)
        else:
            if self._waiting:
                self._apart.ask_ahead()
            self._renderer.submit(self._finish, answer, proposal)

    def _finish(self, answer: _Answer, proposal: Proposal) -> None:
        """Answer with the proposal and its text, unless that text was tried."""
        try:
            rendered, render_s = self._text(proposal.candidate)
            work = (
                self._work(proposal.candidate, rendered.digest)
                if isinstance(rendered, RenderedSource)
                else None
            )
            if work is None or work not in self._done:
                answer.set_result(self._kept(proposal, rendered, render_s))
                return
            told = self._done[work]
        except BaseException as error:
            answer.set_exception(error)
            return
        self._repeated.append((answer, proposal, told))
        if self._apart is not None:
            with suppress(RuntimeError):  # the search is over
                self._thread.submit(self._repeat)

    def _noted(self, proposal: Proposal) -> Proposed:
        return self._kept(proposal, *self._text(proposal.candidate))

    def _kept(self, proposal: Proposal, rendered: Rendered | None, render_s: float) -> Proposed:
        if isinstance(rendered, RenderedSource):
            self._done[self._work(proposal.candidate, rendered.digest)] = None
        return Proposed(proposal, rendered, render_s)

    def _heard_modelled(self, times: Sequence[ModelledTime]) -> None:
        try:
            self._strategy.hear_modelled(times)
        except BaseException as error:
            self._failure = error

    def _told(self, proposal: Proposal, source_digest: str | None, told: Told | None) -> None:
        self._heard(proposal, source_digest, told, self._strategy.tell)

    def _corrected(self, proposal: Proposal, source_digest: str | None, told: Told | None) -> None:
        self._heard(proposal, source_digest, told, self._strategy.correct)

    def _heard(
        self,
        proposal: Proposal,
        source_digest: str | None,
        told: Told | None,
        pass_on: Callable[[Proposal, Told], None],
    ) -> None:
        try:
            if source_digest is not None:
                self._done[self._work(proposal.candidate, source_digest)] = told
            if told is not None:
                pass_on(proposal, told)
        except BaseException as error:
            self._failure = error

    def _text(self, candidate: Candidate) -> tuple[Rendered | None, float]:
        """The text and the seconds that it took."""
        started = time.monotonic()
        try:
            return self._render(candidate), time.monotonic() - started
        except Fault:
            return None, time.monotonic() - started
