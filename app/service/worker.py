"""Running searches: claim one, resume it, release it when told to stop."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Any, TypeVar

from greenfast.app.views.ablation_after import ablate_after
from greenfast.app.views.ledger_memory import StoreMemory
from greenfast.app.wiring import Services
from greenfast.db.faults import LeaseLost
from greenfast.db.rows import Claim
from greenfast.search.cores import usable_cores
from greenfast.search.errors import Fault, GreenfastError, SpecError
from greenfast.search.loop.comparison import Confirmation, Peer
from greenfast.search.loop.evaluators import evaluators_for
from greenfast.search.loop.run import SearchRun
from greenfast.search.loop.sink import (
    Begun,
    Control,
    Ended,
    History,
    Record,
    RunResult,
    Sink,
)
from greenfast.search.loop.spending import Spent
from greenfast.search.loop.warm import warm
from greenfast.search.targets.base import Target
from greenfast.search.verdict import GateResult, Trial

HEARTBEAT_S = 0.5
T = TypeVar("T")
ALIVE_EVERY_S = 4.0  # between two signs of life of a worker
PREPARING = "prepare"  # name of the threads that build targets
LONGEST_PAUSE_S = 10.0  # between two attempts while the database cannot be used
LOCKED = ("database_locked", "database_timeout", "database_busy")  # worth waiting for
LOCKED_PAUSE_S = 0.1  # after a busy timeout, while another process has the lock
LOST = "database_unreachable"  # of a server: it may have cut this one connection, or restart
LOST_PAUSE_S, LONGEST_OUTAGE_S = 0.5, 30.0
# For an interrupted preparation to end: at most, and between two interrupts.
INTERRUPT_GRACE_S, INTERRUPT_AGAIN_S = 10.0, 0.05
EXIT_GRACE_S = 5.0  # after the supervisor is gone


class Stop:
    """A request to stop: first the trials in flight may finish; once forced, nothing is awaited."""

    def __init__(self, drain_s: float, on_force: Callable[[], None] = lambda: None) -> None:
        self._drain_s, self._on_force = drain_s, on_force
        self._requested, self._forced = threading.Event(), threading.Event()

    @property
    def requested(self) -> bool:
        return self._requested.is_set()

    @property
    def forced(self) -> bool:
        return self._forced.is_set()

    def ask(self) -> None:
        """Drain. A second request, or `drain_s` without an end, forces."""
        if self._requested.is_set():
            self.force()
            return
        self._requested.set()
        timer = threading.Timer(self._drain_s, self.force)
        timer.daemon = True
        timer.start()

    def force(self) -> None:
        self._requested.set()
        if not self._forced.is_set():
            self._forced.set()
            self._on_force()

    def wait(self, seconds: float) -> bool:
        return self._requested.wait(seconds)

    def on_signals(self) -> None:
        """Ctrl-C and SIGTERM ask; a second one forces."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: self.ask())


class Patience:
    """Repeats a transaction that a locked database refused, or whose connection was lost.

    Nobody can take the claim over while the database is locked, and an expired claim still holds
    until another worker takes it. So waiting loses nothing; giving up loses the trials in flight.
    A transaction whose answer was lost may have been committed: those of a sink can be repeated.
    """

    def __init__(
        self,
        stop: Stop,
        say: Callable[[str], None] = lambda text: None,
        outage_s: float = LONGEST_OUTAGE_S,
    ) -> None:
        self._stop, self._say, self._outage_s = stop, say, outage_s
        self._reported = False

    def __call__(self, transaction: Callable[..., T], *arguments: Any) -> T:
        """The result of `transaction`; its Fault if `stop` is forced or waiting cannot help.

        A lock is awaited without end, a server that does not answer for `outage_s`.
        """
        end = time.monotonic() + self._outage_s
        while True:
            try:
                result = transaction(*arguments)
            except Fault as fault:
                is_lost = fault.code == LOST and time.monotonic() < end
                if not (is_lost or fault.code in LOCKED) or self._stop.forced:
                    raise
                self._report(fault, is_lost)
                time.sleep(LOST_PAUSE_S if is_lost else LOCKED_PAUSE_S)
            else:
                self._reported = False
                return result

    def _report(self, fault: Fault, is_lost: bool) -> None:
        """Once for a wait."""
        if not self._reported:
            then = f"trying again for {self._outage_s:g} s"
            if not is_lost:
                then = "the search continues when the lock is released"
            self._say(f"{fault.message}; {then}")
        self._reported = True


class StoppableSink:
    """A sink whose control also obeys `stop`. `request` is the last request of the database."""

    def __init__(self, sink: Sink, stop: Stop, patience: Patience | None = None) -> None:
        self._sink, self._stop, self._patience = sink, stop, patience or Patience(stop)
        self.request = Control.RUN

    def begin(self, begun: Sequence[Begun]) -> None:
        self._patience(self._sink.begin, begun)

    def record(self, records: Sequence[Record]) -> None:
        self._patience(self._sink.record, records)

    def settle(self, number: int, result: GateResult) -> None:
        self._patience(self._sink.settle, number, result)

    def confirm(self, confirmation: Confirmation) -> None:
        self._patience(self._sink.confirm, confirmation)

    def beside(self, peer: Peer) -> None:
        self._patience(self._sink.beside, peer)

    def control(self, spent: Spent) -> Control:
        self.request = self._patience(self._sink.control, spent)
        if self.request is Control.CANCEL or self._stop.forced:
            return Control.CANCEL
        return Control.PAUSE if self._stop.requested else self.request


class Left(StrEnum):
    """How a worker left a claimed search."""

    ENDED = "ended"  # by itself or by request: its end is recorded
    STOPPED = "stopped"  # this process was told to stop: the claim is still held
    LOST = "lost"  # another worker has it now


@dataclass(frozen=True)
class RunReport:
    left: Left
    ended: Ended | None = None
    why: str = ""
    is_authors_mistake: bool = False


def run_claim(
    services: Services,
    claim: Claim,
    stop: Stop,
    on_trials: Callable[[Sequence[Trial]], None] = lambda trials: None,
    on_closing: Callable[[], None] = lambda: None,
    say: Callable[[str], None] = lambda text: None,
) -> RunReport:
    """Run a claimed search until it ends or `stop` is requested.

    A search that cannot start ends as failed. A locked database is awaited; its other faults are
    raised, because nothing can be recorded. The claim then holds until another worker takes it.
    """
    patience = Patience(stop, say)
    sink = StoppableSink(services.sink(claim), stop, patience)
    try:
        result = _run(services, claim, sink, stop, patience, on_trials, on_closing, say)
        if _is_stopped(sink, stop, result):
            return RunReport(Left.STOPPED, why="stopped")
        return _finished(services, claim, result, patience)
    except GreenfastError as error:
        if error.code == "lease_lost":
            return RunReport(Left.LOST, why=str(error))
        if error.code.startswith(("database_", "disk_")):
            raise
        if stop.requested:  # the stop itself may have made it fail
            return RunReport(Left.STOPPED, why="stopped")
        result = RunResult(Ended.FAILED, str(error))
        if isinstance(error, SpecError):
            report = _finished(services, claim, result, patience)
            return replace(report, is_authors_mistake=True)
    except Exception as error:  # a search never stays "running" after a bug
        if services.settings.debug:
            traceback.print_exc()
        result = RunResult(Ended.FAILED, f"a bug of greenfast: {type(error).__name__}: {error}")
    return _finished(services, claim, result, patience)


def _finished(services: Services, claim: Claim, result: RunResult, patience: Patience) -> RunReport:
    """Record the end of the search."""
    finish = services.store.finish
    patience(finish, claim, result.ended, result.why, result.closing, result.spent)
    why = "; ".join(filter(None, (result.why, result.closing)))
    return RunReport(Left.ENDED, result.ended, why)


def _is_stopped(sink: StoppableSink, stop: Stop, result: RunResult) -> bool:
    """Whether the run ended because this process was told to stop."""
    return (
        stop.requested
        and sink.request is Control.RUN
        and result.ended in (Ended.PAUSED, Ended.CANCELLED, Ended.FAILED)
    )


def _run(
    services: Services,
    claim: Claim,
    sink: StoppableSink,
    stop: Stop,
    patience: Patience,
    on_trials: Callable[[Sequence[Trial]], None],
    on_closing: Callable[[], None],
    say: Callable[[str], None],
) -> RunResult:
    memory = StoreMemory(services.store, claim.search_id)
    history = patience(services.store.history, claim)
    run = _with_heartbeat(
        lambda: _prepared(
            services,
            claim.search_id,
            sink,
            history,
            lambda trials: patience(on_trials, trials),  # it may read the store
            on_closing,
            memory,
            say,
        ),
        sink,
        history,
        stop,
        services.interrupt,
    )
    if isinstance(run, RunResult):
        return run
    patience(services.store.describe, claim, services.environment(run.context))
    patience(
        lambda: memory.open(
            run.launch_of, run.twins.launches_of, measures=run.context.target.measures
        )
    )
    if memory.opening:
        say(memory.opening)
    try:
        return run.run()
    finally:
        if memory.closing:
            say(memory.closing)
        services.give_back_gpus()


def _prepared(
    services: Services,
    search_id: str,
    sink: Sink,
    history: History,
    on_trials: Callable[[Sequence[Trial]], None],
    on_closing: Callable[[], None],
    memory: StoreMemory,
    say: Callable[[str], None],
) -> SearchRun:
    """The run with its target built, which takes a while the first time on a machine.

    Meanwhile the checker is built, and the processes start that evaluate candidates.
    """
    plan, context = services.search_context(search_id)
    if context.checker is not None:  # the safety gate needs it later than the target
        _in_background(partial(_prepare_quietly, context.checker))
    if not evaluators_for(context.target, plan.trials):  # evaluators have their own
        _in_background(partial(warm, context, usable_cores(), plan.trials))
    run = SearchRun(plan, context, sink, history, on_trials, on_closing, memory, say)
    context.target.prepare()
    return run


def _in_background(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name=PREPARING, daemon=True).start()


def _prepare_quietly(checker: Target) -> None:
    """Build the checker. Its faults are raised where it is used first."""
    with suppress(GreenfastError):
        checker.prepare()


def _with_heartbeat(
    work: Callable[[], SearchRun],
    sink: Sink,
    history: History,
    stop: Stop,
    interrupt: Callable[[], None],
) -> SearchRun | RunResult:
    """Do `work` in another thread and keep the lease meanwhile.

    A pause or cancel interrupts it and is the result. Fault `stopped` once `stop` is requested.
    """
    future: Future[SearchRun] = Future()

    def do() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=do, name=PREPARING, daemon=True).start()
    while not stop.requested:
        if wait((future,), HEARTBEAT_S).done:
            return future.result()
        control = sink.control(Spent(history.spent_s, history.gpu_spent_s))
        if control is not Control.RUN and not stop.requested:
            # One that was between two compilers starts the next, which would outlive it.
            end = time.monotonic() + INTERRUPT_GRACE_S
            while not future.done() and time.monotonic() < end:
                interrupt()
                wait((future,), INTERRUPT_AGAIN_S)
            ended = Ended.CANCELLED if control is Control.CANCEL else Ended.PAUSED
            return RunResult(ended, f"{ended} while its target was prepared")
    raise Fault("stopped before the first trial", code="stopped")


class Worker:
    """Claims searches, the oldest first, until told to stop."""

    def __init__(self, services: Services, stop: Stop, say: Callable[[str], None]) -> None:
        self._services, self._stop, self._say = services, stop, say
        self.name = worker_name()
        self._kept: Claim | None = None  # of a search that a fault of the database interrupted

    def run(self, *, once: bool = False) -> None:
        """Until stopped; with `once`, until no search is waiting."""
        pause_s = self._services.settings.poll_s
        done = threading.Event()
        threading.Thread(target=self._tell_alive, args=(done,), name="alive", daemon=True).start()
        try:
            self._take_searches(pause_s, once)
        finally:
            done.set()
            with suppress(Fault):
                self._services.store.worker_gone(self.name)

    def _tell_alive(self, done: threading.Event) -> None:
        """Renew this worker's row. Lists show with queued searches whether a worker runs."""
        while not done.is_set():
            with suppress(GreenfastError):
                self._services.store.worker_seen(self.name)
            done.wait(ALIVE_EVERY_S)

    def _take_searches(self, pause_s: float, once: bool) -> None:
        while not self._stop.requested:
            try:
                worked = self._run_next()
                pause_s = self._services.settings.poll_s
            except Fault as fault:
                self._say(f"worker {self.name}: {fault}")
                pause_s, worked = min(2 * pause_s, LONGEST_PAUSE_S), False
                if once:
                    raise
            if not worked:
                if once:
                    return
                self._stop.wait(pause_s)
        if self._kept is not None:
            with suppress(Fault):  # otherwise the lease runs out
                self._services.store.release(self._kept)

    def _run_next(self) -> bool:
        """Run one search; False when none is waiting."""
        store, lease_s = self._services.store, self._services.settings.lease_s
        claim = self._still_held() or store.claim(self.name, lease_s)
        if claim is None:
            return False
        self._say(f"worker {self.name}: search {claim.search_id} begins")
        try:
            report = run_claim(
                self._services,
                claim,
                self._stop,
                say=lambda text: self._say(f"worker {self.name}: {text}"),
            )
        except Fault:
            self._kept = claim
            raise
        except Exception as error:  # a bug must not make workers claim the search for ever
            why = f"a bug of greenfast: {type(error).__name__}: {error}"
            report = RunReport(Left.ENDED, Ended.FAILED, why)
            store.finish(claim, Ended.FAILED, why)
        if report.left is Left.STOPPED:
            Patience(self._stop, self._say)(store.release, claim)
        if report.left is Left.ENDED:
            ablate_after(
                self._services,
                claim.search_id,
                report.ended,
                stopped=lambda: self._stop.requested,
                say=lambda text: self._say(f"worker {self.name}: {text}"),
            )
        outcome = report.ended or report.left
        self._say(f"worker {self.name}: search {claim.search_id} {outcome}: {report.why}")
        return True

    def _still_held(self) -> Claim | None:
        """The claim that a database fault interrupted, renewed; None when it was lost."""
        if self._kept is None:
            return None
        try:
            self._services.store.renew_lease(self._kept, self._services.settings.lease_s)
        except LeaseLost:
            self._kept = None
            return None
        claim, self._kept = self._kept, None
        return claim


def worker_name() -> str:
    """Host, process id, and random digits, because process ids are reused."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(2)}"


def end_with(lifeline: int, stop: Stop) -> None:
    """Stop when the other end of the pipe `lifeline` closes, which its owner's end does."""

    def watch() -> None:
        while os.read(lifeline, 1):
            pass
        stop.force()
        threading.Event().wait(EXIT_GRACE_S)
        os._exit(0)

    threading.Thread(target=watch, name="lifeline", daemon=True).start()
