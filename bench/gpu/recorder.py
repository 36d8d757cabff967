"""A search's sink in memory, and its trials as rows of a result."""

from __future__ import annotations

import time

from bench.results import Row
from greenfast.search.loop.comparison import Confirmation, Peer
from greenfast.search.loop.sink import Control
from greenfast.search.loop.spending import Spent
from greenfast.search.render import RenderedSource
from greenfast.search.strategies.base import Proposal
from greenfast.search.verdict import GateResult, Trial, performance_of, verdict_name


class Recorder:
    """Keeps trials with the time at which each was recorded, and confirmations."""

    def __init__(self) -> None:
        self.trials: list[Trial] = []
        self.at_s: list[float] = []
        self.confirmations: list[Confirmation] = []

    def begin(self, number: int, proposal: Proposal) -> None: ...

    def record(self, trial: Trial, source: RenderedSource | None) -> None:
        self.trials.append(trial)
        self.at_s.append(time.perf_counter())

    def confirm(self, confirmation: Confirmation) -> None:
        self.confirmations.append(confirmation)

    def settle(self, number: int, result: GateResult) -> None: ...

    def beside(self, peer: Peer) -> None: ...

    def control(self, spent: Spent) -> Control:
        return Control.RUN


def trial_row(trial: Trial) -> Row:
    """A trial with its verdict, time, ratio and all samples."""
    evidence = performance_of(trial.verdict)
    timing = evidence.timings[0] if evidence else None
    return {
        "number": trial.number,
        "template": trial.candidate.template,
        "parameters": trial.candidate.values(),
        "verdict": verdict_name(trial.verdict),
        "reason": getattr(trial.verdict, "reason", None),
        "us": timing.time_median_us if timing else None,
        "ratio": evidence.ratio_to_baseline if evidence else None,
        "interval": evidence.ratio_interval if evidence else None,
        "duration_s": round(trial.duration_s, 3),
        "samples": timing.samples if timing else (),
        "baseline_samples": timing.baseline_samples if timing else (),
    }


def verdict_and_reason(trial: Trial) -> str:
    """`rejected slower`, `green`."""
    return f"{verdict_name(trial.verdict)} {getattr(trial.verdict, 'reason', None) or ''}".strip()
