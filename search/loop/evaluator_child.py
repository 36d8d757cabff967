"""A process that evaluates candidates for a search on several GPUs (evaluators.py).

Started as `python -m greenfast.search.loop.evaluator_child FD`. It compiles, judges and checks as
the search's own process would, in children of its own. GPUs it asks for through that process.
"""

from __future__ import annotations

import itertools
import math
import os
import shutil
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, TypeVar, cast

from greenfast.search.errors import Fault, GreenfastError
from greenfast.search.gates.judges import use_judges, workers_for
from greenfast.search.gates.promises import Siblings
from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.loop.assignment import (
    BEAT_S,
    Alive,
    Answered,
    Asked,
    Assignment,
    Compiled,
    Done,
    Known,
    News,
    Order,
    Rest,
    Timed,
)
from greenfast.search.loop.check_order import CheckOrder, checks_at_once
from greenfast.search.loop.evaluate import EvaluationContext, evaluate
from greenfast.search.loop.garbage import rare_collections
from greenfast.search.loop.twins import Twin
from greenfast.search.loop.warm import warm
from greenfast.search.loop.work import Work
from greenfast.search.oracle.reference import guard_references, use_children
from greenfast.search.oracle.reference_children import children_for
from greenfast.search.space.candidate import Candidate
from greenfast.search.targets.cuda.relayed import RelayedGpus
from greenfast.search.verdict import Timing, Verdict

T = TypeVar("T")


class _Siblings(Siblings):
    """Knows the first correct sibling of each candidate at work. The search compares outputs."""

    def __init__(self, kernel: KernelSpec) -> None:
        super().__init__(kernel)
        self.firsts: dict[Candidate, Candidate | None] = {}

    def first(self, candidate: Candidate) -> Candidate | None:
        return self.firsts.get(candidate)


class Evaluator:
    """Evaluates what comes through the connection, `width` candidates at a time."""

    def __init__(
        self, connection: Connection, sending: threading.Lock, assignment: Assignment
    ) -> None:
        """`sending`: held while a message is written to the connection."""
        self._connection, self._sending = connection, sending
        self._numbers = itertools.count()
        self._answers: dict[int, Future[dict[str, Any]]] = {}
        self._twins: dict[int, Future[Twin | None]] = {}
        self._news = News(False, None, math.inf)
        self._baseline_known = threading.Event()
        self._siblings = _Siblings(assignment.kernel)
        self._context = self._prepared(assignment)
        self._pool = ThreadPoolExecutor(assignment.width, thread_name_prefix="evaluate")
        warming = (self._context, assignment.cores, None)
        threading.Thread(target=warm, args=warming, daemon=True).start()

    def serve(self) -> None:
        """Work until the search is over. EOFError when its process is, whatever is at work."""
        with rare_collections():
            while True:
                match self._connection.recv():
                    case Order() as order:
                        self._pool.submit(self._evaluate, order)
                    case Answered() as answered:
                        self._hear(answered)
                    case Known() as known:
                        self._twins.pop(known.number).set_result(known.twin)
                    case News() as news:
                        self._news = news
                        if news.is_baseline_known:
                            self._baseline_known.set()
                    case Rest():
                        break
        self._pool.shutdown()
        self._context.target.close()

    def _prepared(self, given: Assignment) -> EvaluationContext:
        use_judges(workers_for(given.cores))
        use_children(children_for(given.cores))
        if given.reference_deadline_s is not None:
            guard_references(given.reference_deadline_s)
        return EvaluationContext(
            given.kernel,
            given.compiled,
            given.workloads,
            RelayedGpus(given.target, given.device, given.run_deadline_s, self._ask),
            _kept(given.toolchain),
            given.include_dirs,
            given.limits,
            given.seed,
            baseline=given.baseline,
            min_gain=given.min_gain,
            checker=_kept(given.checker) if given.checker is not None else None,
            mode=given.mode,
            best_time_us=lambda: self._news.best_time_us,
            check_order=CheckOrder(checks_at_once(given.cores)),
            siblings=self._siblings if given.keeps_promises else None,
            sizes_secret=given.sizes_secret,
            weights=given.weights,
        )

    def _evaluate(self, order: Order) -> None:
        def hear(verdict: Verdict) -> None:
            self._send(Timed(order.number, verdict))

        self._siblings.firsts[order.candidate] = order.sibling
        try:
            evaluated = evaluate(
                order.candidate,
                self._context,
                self._baseline_times,
                order.rendered,
                hear,
                order.render_s,
                partial(self._find_twin, order.number),
            )
        except Exception as error:
            self._send(Done(order.number, None, _portable(error)))
        else:
            self._send(Done(order.number, replace(evaluated, source=None)))
        finally:
            self._siblings.firsts.pop(order.candidate, None)

    def _find_twin(self, number: int, work: Work) -> Twin | None:
        answer: Future[Twin | None] = Future()
        self._twins[number] = answer
        self._send(Compiled(number, work))
        return answer.result()

    def _baseline_times(self) -> tuple[Timing, ...] | None:
        self._baseline_known.wait()
        return self._news.baseline

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        answer: Future[dict[str, Any]] = Future()
        number = next(self._numbers)
        self._answers[number] = answer
        self._send(Asked(number, request))
        return answer.result()

    def _hear(self, answered: Answered) -> None:
        answer = self._answers.pop(answered.number)
        if answered.reply is not None:
            answer.set_result(answered.reply)
        else:
            answer.set_exception(answered.error or Fault("no reply", code="gpu_error"))

    def _send(self, message: object) -> None:
        with self._sending:
            self._connection.send(message)


_KEPT: dict[type, Any] = {}  # the toolchain and the checker of the last search


def _kept(part: T) -> T:
    """The one of the last search if it has the same settings: its children run already."""
    last = _KEPT.get(type(part))
    if last is not None and last.__reduce__()[1] == part.__reduce__()[1]:
        return cast(T, last)
    if last is not None:
        last.close()
    _KEPT[type(part)] = part
    return part


def _portable(error: Exception) -> Exception:
    """The error if it is one of greenfast; of another, what its traceback says."""
    if isinstance(error, GreenfastError):
        return error
    return RuntimeError("".join(traceback.format_exception(error)))


def _beat(connection: Connection, sending: threading.Lock) -> None:
    """Show that this process runs, for as long as the search's process does."""
    with suppress(OSError):
        while True:
            with sending:
                connection.send(Alive())
            time.sleep(BEAT_S)


def main() -> None:
    connection, sending = Connection(int(sys.argv[1])), threading.Lock()
    threading.Thread(target=_beat, args=(connection, sending), daemon=True).start()
    try:
        while True:
            Evaluator(connection, sending, connection.recv()).serve()
    except (EOFError, OSError):
        # The search is over, or its process. Threads at work are not waited for.
        shutil.rmtree(tempfile.gettempdir(), ignore_errors=True)  # a folder of this process alone
        os._exit(0)


if __name__ == "__main__":
    main()
