"""Processes that evaluate the candidates of a search on several GPUs.

Python's lock lets one thread of a process run at a time. Evaluating a candidate takes 11 to 15 ms
of it, besides what compilers and judges do in processes of their own, so that one process cannot
keep several GPUs busy with kernels of microseconds. Evaluators take this work away. The search's
process keeps the strategy, the records and the GPUs: it passes requests of evaluators on.

A process that is lost takes its candidates with it. They are evaluated once more by another. One
that hangs as a whole is silent; it is killed, and lost as any other.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing import Pipe
from queue import SimpleQueue
from typing import BinaryIO, ClassVar

from greenfast.search.children import KILL_WAIT_S, child_environment, kill_group
from greenfast.search.cores import usable_cores
from greenfast.search.errors import Fault
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
from greenfast.search.loop.evaluate import Evaluated, EvaluationContext
from greenfast.search.loop.twins import Find
from greenfast.search.oracle.reference import guard_deadline_s
from greenfast.search.render import RenderedSource
from greenfast.search.scratch import scratch_of
from greenfast.search.targets.base import Runner, Target
from greenfast.search.targets.emulator.host_compiler import OVERRIDE
from greenfast.search.text import last_line
from greenfast.search.toolchain.cache_room import VARIABLE as CACHE_VARIABLE
from greenfast.search.toolchain.toolkit import TOOLKIT_VARIABLE
from greenfast.search.verdict import Faulted, Stage, Verdict

MODULE = "greenfast.search.loop.evaluator_child"
LEAST_CORES = 8  # with fewer the compilers limit a search
LEAST_TRIALS = 32  # fewer are over soon after the processes have started
LOSSES = 2  # of evaluators, after which a candidate is not tried again
SILENT_BEATS = 30  # signs of life that did not come, after which a process counts as hanging
MOST_STARTS = 16  # of processes in place of lost ones; then the machine is broken

Heard = Callable[[Verdict], None]  # of the verdict before the safety check


def evaluators_for(target: Target, trials: int | None) -> int:
    """The number of evaluators for a search of so many trials at most (None: no limit).

    0: the search's own process evaluates.
    """
    if not isinstance(target, Runner) or not target.takes_descriptions or target.gpu_count < 2:
        return 0
    is_short = trials is not None and trials < LEAST_TRIALS
    return 0 if is_short or usable_cores() < LEAST_CORES else target.gpu_count


def assignment_of(context: EvaluationContext, width: int, evaluators: int) -> Assignment:
    """The context of a search on GPUs, for `evaluators` processes.

    Each takes `width` candidates at a time.
    """
    target = context.target
    assert isinstance(target, Runner), "it measures"
    return Assignment(
        context.kernel,
        context.compiled,
        context.workloads,
        context.toolchain,
        context.include_dirs,
        context.limits,
        context.seed,
        context.baseline,
        context.min_gain,
        context.checker,
        context.mode,
        context.sizes_secret,
        context.weights,
        target.name,
        target.device,
        target.run_deadline_s,
        guard_deadline_s(),
        context.siblings is not None,
        width,
        max(1, usable_cores() // evaluators),
    )


@dataclass(eq=False)
class _Flight:
    """An order and what becomes of it."""

    order: Order
    future: Future[Evaluated]
    on_timed: Heard
    find_twin: Find
    losses: int = 0


class Evaluators:
    """`count` processes, for one search. They end with this one."""

    def __init__(self, context: EvaluationContext, width: int, count: int) -> None:
        """`width`: candidates in flight at most, over all of them."""
        assert isinstance(context.target, Runner), "it measures"
        self.assignment = assignment_of(context, width, count)
        self._target = context.target
        self._news: News | None = None
        self._is_ended, self._starts = False, 0
        self._lock = threading.Lock()  # of the fields above, and of every process's flights
        self._answering = ThreadPoolExecutor(width, thread_name_prefix="relay")
        self.processes: list[_Process] = []
        with self._lock:  # one that ends at once is noted when all are there
            for _ in range(count):
                self.processes.append(_process_for(self))

    def submit(self, order: Order, on_timed: Heard, find_twin: Find) -> Future[Evaluated]:
        """Give the order to the evaluator that has the fewest."""
        future: Future[Evaluated] = Future()
        future.set_running_or_notify_cancel()  # no later `cancel` ends it
        self._give(_Flight(order, future, on_timed, find_twin))
        return future

    def tell(self, news: News) -> None:
        """What the search has learnt: the baseline's times, or a better best time."""
        with self._lock:
            if news == self._news:
                return
            self._news = news
            for process in self.processes:
                process.send(news)

    def rest(self) -> None:
        """Keep the processes, which have no orders any more, for the next search."""
        with self._lock:
            self._is_ended = True
            processes = tuple(self.processes)
        for process in processes:
            if process.flights:
                process.end()
            else:
                process.rest()
        self._answering.shutdown(wait=False)

    def end(self) -> None:
        """End the processes and what they work on, which ends as a fault."""
        with self._lock:
            self._is_ended = True
            processes = tuple(self.processes)
        for process in processes:
            process.end()
        self._answering.shutdown(wait=False, cancel_futures=True)

    def find(self, process: _Process, compiled: Compiled) -> None:
        """Ask for an order's twin, and let its evaluator have the answer once there is one."""
        flight = process.flights.get(compiled.number)

        def ask() -> None:
            try:
                assert flight is not None, "an evaluator asks about its own orders"
                found = flight.find_twin(compiled.work)
            except Exception:  # the store cannot be read, so the candidate runs
                process.send(Known(compiled.number, None))
            else:
                found.add_done_callback(
                    lambda done: process.send(Known(compiled.number, done.result()))
                )

        with suppress(RuntimeError):  # the search has ended
            self._answering.submit(ask)

    def answer(self, process: _Process, asked: Asked) -> None:
        """Pass a request on, and let its evaluator have the reply."""

        def pass_on() -> None:
            try:
                reply = self._target.relayed(asked.request)
            except Exception as error:
                process.send(Answered(asked.number, None, error))
            else:
                process.send(Answered(asked.number, reply))

        with suppress(RuntimeError):  # the search has ended
            self._answering.submit(pass_on)

    def lost(self, process: _Process, why: str) -> None:
        """Give the orders of a process that has ended to another."""
        with self._lock:
            self.processes.remove(process)
            if not self._is_ended and self._starts < MOST_STARTS:
                self._replace()
            flights = tuple(process.flights.values())
            process.flights.clear()
        for flight in flights:
            flight.losses += 1
            if self._is_ended:
                _end(flight, "interrupted", "interrupted while it was evaluated")
            elif flight.losses >= LOSSES:
                _end(flight, "evaluator_lost", f"the process that evaluated it was lost: {why}")
            else:
                self._give(flight)

    def _replace(self) -> None:
        self._starts += 1
        with suppress(Fault):  # the others go on
            self.processes.append(_process_for(self))
            if self._news is not None:
                self.processes[-1].send(self._news)

    def _give(self, flight: _Flight) -> None:
        with self._lock:
            if self.processes and not self._is_ended:
                process = min(self.processes, key=lambda each: len(each.flights))
                process.flights[flight.order.number] = flight
                process.send(flight.order)
                return
        if self._is_ended:
            _end(flight, "interrupted", "interrupted before it was evaluated")
        else:
            _end(flight, "evaluator_lost", "no process that evaluates candidates runs any more")


def _source_of(order: Order) -> RenderedSource | None:
    return order.rendered if isinstance(order.rendered, RenderedSource) else None


def _variables() -> dict[str, str]:
    """The variables that find compilers, and that limit their cache."""
    names = (OVERRIDE, TOOLKIT_VARIABLE, CACHE_VARIABLE)
    return {name: os.environ[name] for name in names if name in os.environ}


def _end(flight: _Flight, code: str, sentence: str) -> None:
    verdict = Faulted(Stage.COMPILE, code, sentence)
    flight.future.set_result(Evaluated(verdict, None, 0.0))


class _Process:
    """One evaluator. A thread sends and another receives, so that no caller waits for a pipe.

    A third one kills the process when it hangs.
    """

    def __init__(self) -> None:
        self.flights: dict[int, _Flight] = {}  # by the order's number
        self._owner: Evaluators | None = None  # None: it rests
        self._has_ended = False
        self._changing = threading.Lock()  # of the two
        self._messages: SimpleQueue[object] = SimpleQueue()
        self._errors: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115  `_receive` closes it
        self._folder, self._remove_folder = scratch_of(self, "evaluator")
        self._connection, other = Pipe()
        self._why = ""  # it was ended for a reason of ours
        self._missing = 0  # signs of life since it was last heard
        self._is_over = threading.Event()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-B", "-m", MODULE, str(other.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                pass_fds=(other.fileno(),),
                env=child_environment({**_variables(), "TMPDIR": str(self._folder)}),
                start_new_session=True,
            )
        except OSError as error:
            raise Fault(
                f"a process that evaluates candidates cannot be started: {error.strerror}",
                code="child_start",
            ) from error
        finally:
            other.close()
        self.pid = self._process.pid
        self._receiver = threading.Thread(target=self._receive, name="evaluator", daemon=True)
        self._receiver.start()
        for task in (self._send, self._watch):
            threading.Thread(target=task, name="evaluator", daemon=True).start()

    def work_for(self, owner: Evaluators) -> bool:
        """Take the search's orders from now on; False if the process has ended."""
        with self._changing:
            if self._has_ended:
                return False
            self._owner = owner
        self.send(owner.assignment)
        return True

    def rest(self) -> None:
        """Wait for another search."""
        with self._changing:
            self._owner = None
        self.send(Rest())
        with _Resting.lock:
            _Resting.processes.append(self)

    def send(self, message: object) -> None:
        """Let it have a message, later than all earlier ones."""
        self._messages.put(message)

    def end(self) -> None:
        """End the process and its children, and wait until its candidates are given up."""
        kill_group(self._process)
        self._messages.put(None)
        self._receiver.join(KILL_WAIT_S)

    def _send(self) -> None:
        try:
            while (message := self._messages.get()) is not None:
                self._connection.send(message)
        except OSError:
            pass  # it has ended, which `_receive` notes
        except Exception as error:
            self._fail(error)

    def _receive(self) -> None:
        try:
            while True:
                message = self._connection.recv()
                self._missing = 0
                self._take(message)
        except (EOFError, OSError):
            pass
        except Exception as error:
            self._fail(error)
        self._is_over.set()
        kill_group(self._process)
        self._messages.put(None)
        self._errors.seek(0)
        tail = self._errors.read()[-4000:].decode(errors="replace")
        self._errors.close()
        self._remove_folder()
        ended = f"it ended with {self._process.returncode}"
        with self._changing:
            self._has_ended, owner = True, self._owner
        if owner is not None:
            owner.lost(self, self._why or last_line(tail) or ended)

    def _watch(self) -> None:
        """Kill the process once `SILENT_BEATS` in a row are missing, however long each took.

        Times of a clock would be wrong where both processes were suspended.
        """
        while not self._is_over.wait(BEAT_S):
            self._missing += 1
            if self._missing >= SILENT_BEATS:
                self._why = f"it did not respond for {SILENT_BEATS * BEAT_S:g} s"
                kill_group(self._process)
                return

    def _fail(self, error: Exception) -> None:
        """End the process because of an error here."""
        self._why = f"{type(error).__name__}: {error}"
        kill_group(self._process)

    def _take(self, message: object) -> None:
        match message:
            case Alive():
                pass
            case Asked():
                assert self._owner is not None, "it works for a search"
                self._owner.answer(self, message)
            case Compiled():
                assert self._owner is not None, "it works for a search"
                self._owner.find(self, message)
            case Timed():
                if (flight := self.flights.get(message.number)) is not None:
                    flight.on_timed(message.verdict)
            case Done():
                flight = self.flights.pop(message.number)
                if message.evaluated is not None:
                    flight.future.set_result(
                        replace(message.evaluated, source=_source_of(flight.order))
                    )
                else:
                    assert message.error is not None, "one of both is there"
                    flight.future.set_exception(message.error)


class _Resting:
    """Processes of earlier searches, which wait for another one. Their judges and compilers run."""

    lock = threading.Lock()
    processes: ClassVar[list[_Process]] = []


def _process_for(owner: Evaluators) -> _Process:
    while True:
        with _Resting.lock:
            process = _Resting.processes.pop() if _Resting.processes else None
        if process is None:
            process = _Process()
        if process.work_for(owner):
            return process


def end_resting() -> None:
    """End the processes that wait for another search."""
    with _Resting.lock:
        processes = tuple(_Resting.processes)
        _Resting.processes.clear()
    for process in processes:
        process.end()


def _forget() -> None:
    _Resting.lock = threading.Lock()
    _Resting.processes.clear()


# A forked process starts its own: its parent's processes answer the parent.
os.register_at_fork(after_in_child=_forget)
