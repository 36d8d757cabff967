"""Values for tests of the store: plans, candidates, sources, verdicts, confirmations."""

from __future__ import annotations

import hashlib

from sqlalchemy import text as sql

from greenfast.search.digest import text_digest
from greenfast.search.gates import GateLimits
from greenfast.search.loop.comparison import Comparison, Confirmation, Peer, ProcessTimes
from greenfast.search.loop.plan import SearchPlan
from greenfast.search.render import RenderedSource
from greenfast.search.space.candidate import Candidate, Origin, OriginKind
from greenfast.search.strategies.base import Proposal
from greenfast.search.verdict import (
    Accepted,
    CheckEvidence,
    CorrectnessEvidence,
    Failed,
    Faulted,
    GateResult,
    Green,
    Passed,
    PerformanceEvidence,
    PtxasEvidence,
    Reason,
    Rejected,
    SafetyEvidence,
    Skipped,
    Stage,
    TimeKind,
    Timing,
    Trial,
    Unavailable,
    Verdict,
)

BASELINE = "wmma:flashcore_a"
LEASE_S = 30.0


def plan(**changes) -> SearchPlan:
    values = {
        "name": "attention mission",
        "kernel": "attention",
        "kernel_digest": "0" * 64,
        "workloads": ("mission",),
        "templates": ("scalar", "wmma"),
        "target": "emulator:h200",
        "strategy": "tpe",
        "trials": 40,
        "seconds": None,
        "seed": 7,
        "baseline": BASELINE,
        "min_gain": 0.01,
        "limits": GateLimits(max_registers=255),
        "window": 2,
    }
    return SearchPlan(**{**values, **changes})


def candidate(number: int, template: str = "wmma") -> Candidate:
    """The baseline is number 0; every number has parameters of its own."""
    origin = (
        Origin(OriginKind.SAMPLED) if number else Origin(OriginKind.PRESET, preset="flashcore_a")
    )
    if number % 5 == 4:
        origin = Origin(OriginKind.CROSSED, parents=("a" * 64, "b" * 64))
    return Candidate(
        "attention",
        template,
        (
            ("tile_m", 16 + 16 * number),
            ("padding", bool(number % 2)),
            ("softmax", "online"),
            ("scale", 0.5),
        ),
        origin,
    )


def proposal(number: int, template: str = "wmma") -> Proposal:
    sampler = {"nsga2:generation": number, "tree": [1, 2.5, None, {"x": True}]}
    return Proposal(candidate(number, template), sampler)


def source(number: int) -> RenderedSource:
    text = (
        f"// candidate {number}\n" + "__global__ void attention(const half* q, half* o) {}\n" * 80
    )
    return RenderedSource(text, text_digest(text), (), text, ("attention",), False)


def check(number: int, passed: bool = True) -> CheckEvidence:
    return CheckEvidence(
        workload=f"tile_plus_{number}",
        shape=f"B=1 H=2 H_kv=1 S_q={17 + number} S_kv={33 + number} D=64",
        inputs="normal",
        layout="padded",
        seed=1234567 + number,
        order="forward",
        output="o",
        passed=passed,
        max_abs_error=0.00012207031250001 * (number + 1),
        mean_abs_error=1.23456789e-5,
        share_out_of_bound=0.0,
        sign_bias=-0.0123456789,
        frobenius_error=0.000345678912,
        frobenius_allowed=None,
        worst_index=(0, 1, number, 3),
        worst_value="0.123456",
        worst_expected="0.123457",
        output_digest=hashlib.sha256(str(number).encode()).hexdigest(),
        sentence="" if passed else "o is wrong",
    )


def gates(
    number: int = 0, time_us: float = 100.0, checks: int = 4, measured: bool = False
) -> tuple[GateResult, ...]:
    kind = TimeKind.MEASURED if measured else TimeKind.MODELLED
    result = Passed if measured else Unavailable
    detail = (("issue_us", 1.5), ("hbm_us", 0.25))
    return (
        Passed(
            "ptxas",
            "96 registers",
            PtxasEvidence(
                96 + number % 7, 0, 0, 1024, 2048 + 16 * (number % 11), 128, 5, 0.3125, "registers"
            ),
        ),
        Passed(
            "correctness",
            "within both bounds",
            CorrectnessEvidence(tuple(check(index) for index in range(checks))),
        ),
        result(
            "performance",
            f"{kind}: {time_us} us",
            PerformanceEvidence(
                (Timing("mission", time_us, kind, "tensor cores", detail, "a note"),),
                None if number == 0 else time_us / 100.0,
                1.25,
            ),
        ),
        result("safety", "nothing is claimed", SafetyEvidence(("a", "b"))),
    )


def green(number: int = 0, time_us: float = 100.0, **more) -> Green:
    return Green(gates(number, time_us, **more))


def accepted(number: int, time_us: float) -> Accepted:
    return Accepted(gates(number, time_us, measured=True))


def rejected(
    stage: Stage = Stage.CORRECTNESS, reason: Reason = Reason.WRONG_VALUES, log: str = ""
) -> Rejected:
    """A rejection at any stage, with the evidence up to it."""
    names = ("ptxas", "correctness", "performance", "safety")
    if stage not in names:
        return Rejected(stage, reason, f"{stage} said no", log=log)
    at = names.index(stage)
    failed = Failed(stage, f"{stage} said no", reason, gates()[at].evidence)
    skipped = tuple(Skipped(name, "not reached") for name in names[at + 1 :])
    return Rejected(stage, reason, f"{stage} said no", (*gates()[:at], failed, *skipped), log)


def faulted(code: str = "toolchain_missing") -> Faulted:
    return Faulted(Stage.COMPILE, code, "the compiler is missing")


def trial(number: int, verdict: Verdict | None = None, template: str = "wmma") -> Trial:
    proposed = proposal(number, template)
    return Trial(
        number,
        proposed.candidate,
        verdict or green(number, 100.0 - number),
        source(number).digest,
        0.25 + number,
        proposed.sampler,
    )


def run_trial(
    store, claim, number: int, verdict: Verdict | None = None, template: str = "wmma"
) -> Trial:
    """Begin and record one trial."""
    completed = trial(number, verdict, template)
    store.begin(claim, number, Proposal(completed.candidate, completed.sampler))
    store.record(claim, completed, source(number))
    return completed


def comparison(
    against: str = "baseline", other_trial: int | None = 0, ratio: float = 0.9
) -> Comparison:
    """Three processes of two blocks."""
    processes = tuple(
        ProcessTimes(
            seed,
            (
                Timing(
                    "mission",
                    100.0 * ratio,
                    TimeKind.MEASURED,
                    "",
                    samples=(90.0, 90.125, 89.9, 90.2),
                    baseline_samples=(100.0, 100.1, 99.9, 100.2),
                ),
            ),
        )
        for seed in (11, 12, 13)
    )
    return Comparison(
        against, other_trial, "faster", ratio, ratio - 0.005, ratio + 0.005, processes
    )


def confirmation(number: int, confirmed: bool = True) -> Confirmation:
    return Confirmation(
        number,
        confirmed,
        "faster than the baseline by 10 % in 3 fresh processes",
        (comparison(), comparison("runner-up", 2, 0.97)),
    )


def peer(name: str = "torch-flash", outcome: str = "timed", ratio: float = 0.8) -> Peer:
    timed = outcome == "timed"
    return Peer(
        name,
        "2.11.0",
        "mission",
        outcome,
        "the winner is faster" if timed else "it is not installed",
        90.0 / ratio if timed else None,
        comparison(name, None, ratio) if timed else None,
    )


def expire(store, claim, silent_s=LEASE_S + 1) -> None:
    """Let the worker of `claim` have been silent for longer than its lease."""
    with store._database.writing() as session:
        session.execute(
            sql("UPDATE searches SET renewed_at = renewed_at - :silent_s WHERE id = :id"),
            {"id": claim.search_id, "silent_s": silent_s},
        )
