"""The result of a search on a terminal."""

from __future__ import annotations

from collections.abc import Mapping

from greenfast.app.cli.output import (
    console,
    duration,
    microseconds,
    ratio_in_band,
    styled,
    table,
)
from greenfast.app.cli.tables import peers_table, workloads_table
from greenfast.app.views.designs import Designs
from greenfast.app.views.progress import band_sentence, queue_words, rejected_baseline
from greenfast.app.views.schemas import SearchDetailOut, TrialOut
from greenfast.app.views.ties import ties_sentence
from greenfast.db.rows import QueueState
from greenfast.search.status import SearchStatus
from greenfast.search.text import one_line, written
from greenfast.search.verdict import VerdictName

NOT_FASTER = "The best candidate has not been shown to be faster than the baseline."
NOT_SAFE = (
    "The best was measured faster than the baseline. Its safety could not be checked here, so it "
    "is not accepted."
)


def _took(detail: SearchDetailOut) -> str:
    """The time of a search, and that on its GPUs where it has a budget of GPU seconds."""
    on_gpus = (
        f", {duration(detail.gpu_spent_s or 0.0)} on GPUs" if detail.gpu_seconds_budget else ""
    )
    return duration(detail.spent_s) + on_gpus


def show_search(detail: SearchDetailOut, designs: Designs | None = None) -> None:
    """Print the result of a search: its end, the baseline and the best, peers, and counts.

    With `designs`, a candidate is written as its nearest preset and what differs from it.
    """
    out = console()
    is_completed = detail.status == SearchStatus.COMPLETED
    cause = detail.cause if is_completed else detail.why
    queue = queue_words(detail, QueueState(detail.queued, detail.workers_alive))
    out.print(
        table(
            ("search", "status", "trials", "took", "start", ""),
            [
                (
                    detail.id,
                    styled(detail.status),
                    detail.trials_done,
                    _took(detail),
                    detail.start.partition(":")[0],
                    queue or cause,
                )
            ],
        )
    )
    trials = (("baseline", detail.baseline_trial), ("best", detail.best))
    out.print(
        table(
            ("", "trial", "candidate", "time", "ratio to baseline", "source"),
            [
                (
                    label,
                    trial.number,
                    _design(trial, designs),
                    microseconds(trial.time_median_us, trial.time_kind, trial.time_mode),
                    ratio_in_band(trial.ratio_to_baseline, trial.time_kind, trial.time_band),
                    (trial.source_digest or "-")[:16],
                )
                for label, trial in trials
                if trial is not None
            ],
        )
    )
    if detail.by_workload:
        out.print(workloads_table(detail.by_workload))
    for sentence in _remarks(detail, detail.closing if is_completed else ""):
        out.print(sentence)
    if detail.peers:
        out.print(peers_table(detail.peers))
    counts = detail.counts
    out.print(
        table(
            ("verdicts", "rejected at", "reasons"),
            [(_tally(counts.by_verdict), _tally(counts.by_stage), _tally(counts.by_reason))],
        )
    )


def _remarks(detail: SearchDetailOut, closing: str) -> list[str]:
    """Remarks beside the figures; `closing` is the sentence of the confirmation, if any."""
    best, remarks = detail.best, [_without_baseline(detail)]
    compared = detail.baseline_trial is not None
    if best is not None and compared and not best.is_baseline and not best.beats_baseline:
        unsafe = best.verdict == VerdictName.GREEN and best.time_kind == "measured"
        remarks.append(NOT_SAFE if unsafe else NOT_FASTER)
    if best is not None:
        remarks.append(band_sentence(best, best.not_told_apart))
        remarks.append(ties_sentence(best.ties, f"Trial {best.number}"))
    if detail.expectation is not None:
        remarks.append(one_line(detail.expectation.sentence))
    if closing:
        remarks.append(f"{closing[0].upper()}{closing[1:]}.")
    return [remark for remark in remarks if remark]


def _without_baseline(detail: SearchDetailOut) -> str:
    """That nothing or the baseline was not correct, and which command shows why."""
    failure = rejected_baseline(detail.baseline_trial)
    is_in_vain = detail.status == SearchStatus.COMPLETED and detail.best is None
    if not failure and not (is_in_vain and detail.trials_done):
        return ""
    sentences = ("No candidate was correct." if is_in_vain else "", failure)
    why = (
        f"show {detail.id}/0` shows the whole message"
        if failure
        else f"trials {detail.id}` shows why"
    )
    return " ".join(filter(None, sentences)) + f"\n`greenfast {why}."


def _design(trial: TrialOut, designs: Designs | None) -> str:
    if designs is not None:
        return str(designs.of(trial.template, trial.parameters))
    preset = f":{trial.preset}" if trial.preset else ""
    values = " ".join(f"{name}={written(value)}" for name, value in trial.parameters.items())
    return f"{trial.template}{preset} {values}"


def _tally(counts: Mapping[str, int]) -> str:
    return "\n".join(f"{number} {name}" for name, number in counts.items()) or "-"
