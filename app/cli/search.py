"""`greenfast search`: a search in this process, on the same database that the service uses."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from greenfast.app.cli.lists import opened_services
from greenfast.app.cli.output import (
    console,
    duration,
    microseconds,
    print_json,
    ratio_in_band,
    say,
    styled,
    table,
)
from greenfast.app.cli.tables import peers_table
from greenfast.app.cli.trial import AsJson, Seed, Target, Workloads
from greenfast.app.service.worker import Left, RunReport, Stop, run_claim, worker_name
from greenfast.app.views.progress import band_sentence, progress, queue_words, search_detail
from greenfast.app.views.schemas import SearchDetailOut
from greenfast.app.wiring import Services
from greenfast.db.rows import Claim, QueueState, Silence
from greenfast.search.errors import Fault, UsageError
from greenfast.search.loop.plan import SearchRequest
from greenfast.search.loop.run import Ended, failure_sentence
from greenfast.search.status import SearchStatus
from greenfast.search.verdict import Rejected, Trial, verdict_name

EXIT_INTERRUPTED = 130
LOOK_S = 0.5
NOT_FASTER = "The best is not shown to be faster than the baseline."
NOT_SAFE = "The best was measured faster than the baseline; its safety could not be judged here, so it is not accepted."


def add_search_commands(app: typer.Typer) -> None:
    app.command("search")(search)


def search(
    kernel: Annotated[str | None, typer.Argument(help="Name of a kernel.")] = None,
    workload: Workloads = None,
    template: Annotated[
        list[str] | None, typer.Option("--template", help="May be repeated.")
    ] = None,
    target: Target = None,
    strategy: Annotated[
        str | None, typer.Option("--strategy", help="What chooses candidates.")
    ] = None,
    trials: Annotated[int | None, typer.Option("--trials", help="Budget of trials.")] = None,
    seconds: Annotated[float | None, typer.Option("--seconds", help="Budget of seconds.")] = None,
    seed: Seed = None,
    name: Annotated[str | None, typer.Option("--name", help="What it is called in lists.")] = None,
    baseline: Annotated[
        str | None, typer.Option("--baseline", help="template:preset, champion, or none.")
    ] = None,
    min_gain: Annotated[
        float | None, typer.Option("--min-gain", help="Share that counts as faster.")
    ] = None,
    confirm: Annotated[
        bool,
        typer.Option(
            "--confirm/--no-confirm",
            help="Where times are measured, time the winner again in fresh processes.",
        ),
    ] = True,
    mode: Annotated[
        str | None,
        typer.Option(
            "--mode", help="Of measured times: auto, hot (data in L2) or cold (data in memory)."
        ),
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option("--resume", metavar="SEARCH_ID", help="Go on with a paused search here."),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Search for the fastest right candidate. Ctrl-C stops after the trials in flight; the search can be resumed."""
    if (kernel is None) == (resume is None):
        raise UsageError(
            "a kernel or --resume SEARCH_ID has to be named, and not both", code="bad_command_line"
        )
    request = (
        None
        if kernel is None
        else SearchRequest(
            kernel=kernel,
            name=name,
            workloads=tuple(workload) if workload else None,
            templates=tuple(template) if template else None,
            target=target,
            strategy=strategy,
            trials=trials,
            seconds=seconds,
            seed=seed,
            baseline=baseline,
            min_gain=min_gain,
            confirm=confirm,
            mode=mode,
        )
    )
    with opened_services() as services:
        stop = Stop(services.settings.drain_s, on_force=services.interrupt)
        stop.on_signals()
        search_id = submitted(services, request) if request else resumed(services, resume)
        report = run_here(services, search_id, stop)
        detail = search_detail(services.store, search_id)
    print_json(detail.model_dump()) if as_json else show_search(detail)
    return exit_code(report, detail)


def submitted(services: Services, request: SearchRequest) -> str:
    row = services.submit(request)
    say(f"search {row.id}: {row.name} on {row.target}")
    return row.id


def resumed(services: Services, search_id: str) -> str:
    """A search that can be claimed again; UsageError when it has ended, or ran with files that nobody has."""
    store = services.store
    services.catalogue_of(search_id)
    if store.search(search_id).status not in (SearchStatus.QUEUED, SearchStatus.RUNNING):
        store.request_control(search_id, "resume")
    return search_id


def run_here(services: Services, search_id: str, stop: Stop) -> RunReport:
    """Claim the search and run it. While another worker holds it, follow what that one does, and take over when its
    lease ends."""
    store, name = services.store, worker_name()
    claim = store.claim(name, services.settings.lease_s, search_id)
    if claim is None:
        say_who_works(store.silence(search_id), search_id)
        followed = follow(services, search_id, name, stop)
        if isinstance(followed, RunReport):
            return followed
        claim = followed
        say(f"nobody works on {search_id} any more: it goes on here")
    report = run_claim(
        services,
        claim,
        stop,
        TrialLines(services, search_id),
        lambda: say("the winner is timed again, in fresh processes and beside its peers"),
        say,
    )
    if report.left is Left.STOPPED:
        store.finish(claim, Ended.PAUSED, "interrupted")
        say(
            f"stopped; go on with `greenfast search --resume {search_id}`, or `greenfast resume {search_id}` "
            "for a worker"
        )
    if report.left is Left.LOST:
        raise Fault(
            report.why,
            code="lease_lost",
            mend=f"see `greenfast searches`; {search_id} goes on elsewhere",
        )
    return report


def say_who_works(silence: Silence | None, search_id: str) -> None:
    """Who has the search, and until when a worker that has died would keep it."""
    if silence is None:
        say(
            f"another worker runs {search_id}; following it (Ctrl-C stops following, not the search)"
        )
        return
    until = time.strftime("%H:%M:%S", time.localtime(time.time() + silence.lease_left_s))
    say(
        f"worker {silence.worker} holds {search_id}, its last sign of life {silence.seconds:.0f} s ago; if none follows, "
        f"the search goes on here at {until}, in {silence.lease_left_s:.0f} s (Ctrl-C stops waiting, not the search)"
    )


def follow(services: Services, search_id: str, name: str, stop: Stop) -> RunReport | Claim:
    """Until the search ends or `stop` is asked for; the claim, as soon as nobody else holds the search."""
    seen = -1
    while not stop.asked:
        row = services.store.search(search_id)
        if row.status in [one.value for one in Ended]:
            return RunReport(Left.ENDED, Ended(row.status), row.why)
        if row.trials_done != seen:
            seen = row.trials_done
            say(
                f"{seen}/{row.trials_budget or '-'} trials, best "
                f"{microseconds(row.best_time_us, row.time_kind, row.time_mode)}"
            )
        stop.wait(LOOK_S)
        if (
            not stop.asked
            and (claim := services.store.claim(name, services.settings.lease_s, search_id))
            is not None
        ):
            return claim
    return RunReport(Left.STOPPED, why="stopped following")


class TrialLines:
    """One line a trial on stderr: what came out, the best so far, the rate, the time left."""

    def __init__(self, services: Services, search_id: str) -> None:
        self._services, self._id = services, search_id
        self._started = time.monotonic()

    def __call__(self, trial: Trial) -> None:
        row = self._services.store.search(self._id)
        figures = progress(row)
        budget = row.trials_budget or "-"
        what = verdict_name(trial.verdict)
        if isinstance(trial.verdict, Rejected):
            what += f" ({trial.verdict.stage}: {trial.verdict.reason})"
        rate = f", {figures.rate_per_minute:.0f} a minute" if figures.rate_per_minute else ""
        left = (
            f", {duration(figures.seconds_left)} left" if figures.seconds_left is not None else ""
        )
        say(
            f"{row.trials_done}/{budget} {trial.candidate.template} {what}, best "
            f"{microseconds(row.best_time_us, row.time_kind, row.time_mode)}{rate}{left}"
        )


def exit_code(report: RunReport, detail: SearchDetailOut) -> int:
    """0 with a right candidate, 1 with none, 3 after a failure, 130 when interrupted."""
    if report.left is Left.STOPPED:
        return EXIT_INTERRUPTED
    if report.ended is Ended.FAILED:
        say(f"greenfast: {failure_sentence(detail.why)}")
        return 3
    return 0 if detail.best is not None or report.ended is not Ended.COMPLETED else 1


def show_search(detail: SearchDetailOut) -> None:
    """What came out, for a person."""
    out = console()
    is_completed = detail.status == SearchStatus.COMPLETED
    cause = detail.cause if is_completed else detail.why
    queue = queue_words(detail, QueueState(detail.queued, detail.workers_alive))
    out.print(
        table(
            ("search", "status", "trials", "took", ""),
            [
                (
                    detail.id,
                    styled(detail.status),
                    detail.trials_done,
                    duration(detail.spent_s),
                    queue or cause,
                )
            ],
        )
    )
    rows = [("baseline", detail.baseline_trial), ("best", detail.best)]
    out.print(
        table(
            ("", "trial", "candidate", "time", "ratio", "source"),
            [
                (
                    label,
                    one.number,
                    _design(one),
                    microseconds(one.time_median_us, one.time_kind, one.time_mode),
                    ratio_in_band(one.ratio_to_baseline, one.time_kind, one.time_band),
                    (one.source_digest or "-")[:16],
                )
                for label, one in rows
                if one is not None
            ],
        )
    )
    if detail.best is not None and not detail.best.is_baseline and not detail.best.beats_baseline:
        out.print(
            NOT_SAFE
            if detail.best.verdict == "green" and detail.best.time_kind == "measured"
            else NOT_FASTER
        )
    if detail.best is not None and (said := band_sentence(detail.best, detail.best.not_told_apart)):
        out.print(said)
    if is_completed and detail.closing:
        out.print(detail.closing[0].upper() + detail.closing[1:] + ".")
    if detail.peers:
        out.print(peers_table(detail.peers))
    counts = detail.counts
    out.print(
        table(
            ("verdicts", "stages", "reasons"),
            [(_tally(counts.by_verdict), _tally(counts.by_stage), _tally(counts.by_reason))],
        )
    )


def _design(one: Any) -> str:
    return (
        one.template
        + (f":{one.preset}" if one.preset else "")
        + " "
        + " ".join(f"{name}={value}" for name, value in one.parameters.items())
    )


def _tally(counts: dict[str, int]) -> str:
    return "\n".join(f"{number} {name}" for name, number in counts.items()) or "-"
