"""Runs a search in this process, and follows one that another worker runs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from greenfast.app.cli.output import duration, microseconds, print_json
from greenfast.app.cli.search_report import show_search
from greenfast.app.service.worker import Left, RunReport, Stop, run_claim, worker_name
from greenfast.app.views.ablation_after import ablate_after
from greenfast.app.views.designs import Designs
from greenfast.app.views.progress import progress, search_detail
from greenfast.app.views.schemas import SearchDetailOut
from greenfast.app.views.terminal import say
from greenfast.app.views.trial_names import search_named
from greenfast.app.wiring import Services
from greenfast.db.rows import Claim, SearchRow, Silence
from greenfast.db.store import Store
from greenfast.search.errors import Fault, UsageError
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.kernels.workload_files import read_workloads
from greenfast.search.loop.plan import SearchRequest
from greenfast.search.loop.sink import Ended
from greenfast.search.oracle.judged_reference import weakness_sentence
from greenfast.search.status import SearchStatus
from greenfast.search.text import shortened
from greenfast.search.verdict import Rejected, Trial, verdict_name, weak_tests_of

EXIT_MISTAKE, EXIT_FAILED, EXIT_INTERRUPTED = 2, 3, 130
LOOK_S = 0.5
LONGEST_SENTENCE = 160  # of a rejected trial, in the progress


@dataclass(frozen=True)
class Continued:
    """A stored search to go on with, and how many more trials it gets."""

    search: str
    extend: int | None


def search_and_show(
    services: Services,
    start: SearchRequest | Continued,
    ablation_seconds: float | None,
    as_json: bool,
) -> int:
    """Run a new or a stored search in this process; the command's exit code."""
    stop = Stop(services.settings.drain_s, on_force=services.interrupt)
    stop.on_signals()
    claim: Claim | None = None
    if isinstance(start, Continued):
        search_id = resumed(services, start.search, start.extend)
    else:
        claim = submitted(services, start)
        search_id = claim.search_id
    report = run_here(services, search_id, stop, claim)
    ablate_after(
        services,
        search_id,
        report.ended,
        seconds=ablation_seconds,
        stopped=lambda: stop.requested,
        say=say,
    )
    detail, plan = search_detail(services.store, search_id), services.store.plan(search_id)
    designs = Designs(services.catalogue, plan.kernel, plan.compiled)
    if as_json:
        print_json(detail.model_dump())
    else:
        show_search(detail, designs)
    return exit_code(report, detail)


def with_file(request: SearchRequest, path: Path, catalogue: Catalogue) -> SearchRequest:
    """The request with the workloads of a file after its own."""
    rows = read_workloads(path, catalogue.kernel(request.kernel))
    own = request.workloads or ()
    return replace(
        request,
        workloads=(*own, *(row.workload.name for row in rows)),
        weights=(*(1.0 for _ in own), *(row.weight for row in rows)),
    )


def submitted(services: Services, request: SearchRequest) -> Claim:
    """The new search, held by this process: no worker takes it."""
    claim = services.submit_held(request, worker_name())
    row = services.store.search(claim.search_id)
    say(f"search {row.id}: {row.name} on {row.target}")
    return claim


def resumed(services: Services, search_id: str, extend: int | None = None) -> str:
    """The id of a search that can be claimed again, with `extend` more trials.

    UsageError when it has ended, or when the kernel's files that it ran with are lost.
    """
    store = services.store
    search_id = search_named(store, search_id)
    services.catalogue_of(search_id)
    if extend is not None:
        store.extend(search_id, extend)
    elif store.search(search_id).status not in (SearchStatus.QUEUED, SearchStatus.RUNNING):
        store.request_control(search_id, "resume")
    return search_id


def run_here(
    services: Services, search_id: str, stop: Stop, claim: Claim | None = None
) -> RunReport:
    """Run the search to its end, after claiming it where `claim` does not hold it yet.

    While another worker holds it, follow that worker's progress; when its lease ends, take over.
    Fault `lease_lost` when another worker takes the search from this process.
    """
    store, name = services.store, worker_name()
    claim = claim or store.claim(name, services.settings.lease_s, search_id)
    if claim is None:
        say_who_works(store.silence(search_id), search_id)
        followed = follow(services, search_id, name, stop)
        if isinstance(followed, RunReport):
            return followed
        claim = followed
        say(f"no worker runs {search_id} any more; it continues here")
    try:
        report = run_claim(
            services,
            claim,
            stop,
            TrialLines(services, search_id),
            lambda: say("timing the winner again, in fresh processes and beside its peers"),
            say,
        )
    except Fault:  # of the database: its end cannot be recorded
        say(f"the search ends here; `greenfast search --resume {search_id}` continues it")
        raise
    if report.left is Left.STOPPED:
        store.finish(claim, Ended.PAUSED, "interrupted")
        say(
            f"stopped; `greenfast search --resume {search_id}` continues here, "
            f"`greenfast resume {search_id}` in a worker"
        )
    if report.left is Left.LOST:
        raise lost(store, search_id)
    return report


def lost(store: Store, search_id: str) -> Fault:
    """The Fault of a search that this process held, with what has become of it."""
    try:
        status = store.search(search_id).status
        now = "another worker runs it" if status == SearchStatus.RUNNING else f"it is {status}"
    except UsageError:
        now = "it was removed"
    return Fault(
        f"this process no longer holds search {search_id}: {now}",
        code="lease_lost",
        mend="see `greenfast searches`",
    )


def say_who_works(silence: Silence | None, search_id: str) -> None:
    """Print which worker holds the search, and when its lease ends if that worker has died."""
    if silence is None:
        say(
            f"another worker runs {search_id}; following it "
            "(Ctrl-C stops following, not the search)"
        )
        return
    until = time.strftime("%H:%M:%S", time.localtime(time.time() + silence.lease_left_s))
    say(
        f"worker {silence.worker} holds {search_id}; its last sign of life was "
        f"{silence.seconds:.0f} s ago. Without another, the search continues here at {until}, in "
        f"{silence.lease_left_s:.0f} s (Ctrl-C stops waiting, not the search)"
    )


def follow(services: Services, search_id: str, name: str, stop: Stop) -> RunReport | Claim:
    """Print another worker's progress until the search ends or `stop` is requested.

    Returns a claim instead as soon as the search is free.
    """
    seen = -1
    while not stop.requested:
        row = services.store.search(search_id)
        if row.status in [ended.value for ended in Ended]:
            return RunReport(Left.ENDED, Ended(row.status), row.why)
        if row.trials_done != seen:
            seen = row.trials_done
            say(
                f"{seen}/{row.trials_budget or '-'} trials, best "
                f"{microseconds(row.best_time_us, row.time_kind, row.time_mode)}"
            )
        stop.wait(LOOK_S)
        if (
            not stop.requested
            and (claim := services.store.claim(name, services.settings.lease_s, search_id))
            is not None
        ):
            return claim
    return RunReport(Left.STOPPED, why="stopped following")


class TrialLines:
    """One line a trial on stderr: its verdict.

    The last of those recorded together adds the best so far, the rate, and the time left.
    """

    def __init__(self, services: Services, search_id: str) -> None:
        self._services, self._id = services, search_id
        self._says_weak = True
        self._started = time.monotonic()

    def __call__(self, trials: Sequence[Trial]) -> None:
        """`trials` have just been recorded, in this order."""
        row = self._services.store.search(self._id)
        first = row.trials_done - len(trials) + 1
        for count, trial in enumerate(trials, first):
            self._warn(trial)
            so_far = self._so_far(row) if count == row.trials_done else ""
            budget = row.trials_budget or "-"
            say(f"{count}/{budget} {trial.candidate.template} {_verdict(trial)}{so_far}")
            if isinstance(trial.verdict, Rejected):
                say(
                    f"  {shortened(trial.verdict.sentence, LONGEST_SENTENCE)}; "
                    f"`greenfast show {self._id}/{trial.number}` has more"
                )

    def _warn(self, trial: Trial) -> None:
        if self._says_weak and (weak := weakness_sentence(weak_tests_of(trial.verdict))):
            self._says_weak = False  # once is enough: it is the kernel's test, not the candidate's
            say(f"warning: {weak}")

    @staticmethod
    def _so_far(row: SearchRow) -> str:
        figures = progress(row)
        rate = f", {figures.rate_per_minute:.0f} a minute" if figures.rate_per_minute else ""
        left = (
            f", {duration(figures.seconds_left)} left" if figures.seconds_left is not None else ""
        )
        best = microseconds(row.best_time_us, row.time_kind, row.time_mode)
        return f", best {best}{rate}{left}"


def _verdict(trial: Trial) -> str:
    verdict: str = verdict_name(trial.verdict)
    if isinstance(trial.verdict, Rejected):
        verdict += f" ({trial.verdict.stage}: {trial.verdict.reason})"
    return verdict


def exit_code(report: RunReport, detail: SearchDetailOut) -> int:
    """0 with a correct candidate, 1 without, 3 after a failure, 130 when interrupted."""
    if report.left is Left.STOPPED:
        return EXIT_INTERRUPTED
    if report.ended is Ended.FAILED:
        say(f"greenfast: the search failed: {detail.why}")
        return EXIT_MISTAKE if report.is_authors_mistake else EXIT_FAILED
    return 0 if detail.best is not None or report.ended is not Ended.COMPLETED else 1
