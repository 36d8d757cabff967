"""How far a ratio moves from one process to the next, and how many processes resolve 1 %.

    python -m bench.gpu.process_scatter [--save] [--workload mission] [--candidates 12]
                                        [--processes 8]

Every preset in the workload's space and random correct candidates are timed against the baseline in
several processes, twice in each, each time on a new seed, in another order and with another memory
layout. The first process has checked them before, as a search's has; the others are fresh. The
samples are kept. They give the movement of a median within a process and between processes, the
pairs of processes in which the interval of the difference contains 0, with the blocks and with the
process as the unit, and the processes that a claim of 1 % needs.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import secrets
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import combinations
from statistics import NormalDist

from bench.command_line import add_save, script_parser
from bench.results import Row, write_result
from bench.session import Session, open_session
from greenfast.search.acceptance import measured_decision
from greenfast.search.cores import usable_cores
from greenfast.search.errors import GreenfastError
from greenfast.search.gates import GateLimits
from greenfast.search.gates.correctness import CorrectnessGate
from greenfast.search.gates.ptxas import PtxasGate
from greenfast.search.loop.confirmation import prepared, timed_in_turns
from greenfast.search.loop.evaluate import EvaluationContext
from greenfast.search.space.candidate import Candidate, Origin, OriginKind, preset_candidate
from greenfast.search.space.space import Space
from greenfast.search.targets.base import Failure
from greenfast.search.timing import CONFIDENCE, PROCESS_FREEDOM, PROCESS_SIGMA, student
from greenfast.search.verdict import Outcome, Timing

PASSES = 2  # over all candidates in one process
CLAIM = math.log(1.01)
DRAWS = 400  # random points tried at most


def main() -> None:
    options = _options()
    with open_session("cuda:0", prefix="scatter") as session:
        context, baseline = context_of(session, options.workload)
        candidates = correct_candidates(context, baseline, options.candidates)
        rows = measured(context, baseline, candidates, options.processes)
        environment = session.environment()
    summary = analysed(rows)
    if options.save:
        result = {"environment": environment, "found": summary, "rows": rows}
        write_result("h200/confirm", result)
    print(json.dumps(summary, indent=1))


def _options() -> argparse.Namespace:
    parser = script_parser(__doc__)
    add_save(parser)
    parser.add_argument("--workload", default="mission")
    parser.add_argument("--candidates", type=int, default=12)
    parser.add_argument("--processes", type=int, default=8)
    return parser.parse_args()


def context_of(session: Session, workload: str) -> tuple[EvaluationContext, Candidate]:
    """Attention on one workload, and its default baseline."""
    kernel = session.catalogue.kernel("attention")
    context = session.context(kernel, kernel.workload(workload), limits=GateLimits())
    template, preset = kernel.preset(kernel.baseline)
    return context, preset_candidate(template, preset.name, context.compiled)


def correct_candidates(
    context: EvaluationContext, baseline: Candidate, count: int
) -> list[Candidate]:
    """Presets first, then random points, of those that compile without spills and are correct."""
    spaces = [
        space
        for template in context.kernel.templates
        if next(
            (space := Space(template, context.compiled, context.target.device)).each_point(), None
        )
        is not None
    ]
    drawn = [
        preset_candidate(space.template, preset.name, context.compiled)
        for space in spaces
        for preset in space.template.presets
    ]
    drawn = [
        candidate
        for candidate in drawn
        if _is_valid(candidate, spaces) and candidate.digest != baseline.digest
    ]
    rng, known = random.Random(5), {candidate.digest for candidate in (baseline, *drawn)}
    for _ in range(DRAWS):
        space = rng.choice(spaces)
        parameters = tuple(
            (parameter.name, rng.choice(parameter.values))
            for parameter in space.template.parameters
        )
        candidate = Candidate(
            context.kernel.name, space.template.name, parameters, Origin(OriginKind.SAMPLED)
        )
        if space.why_not(parameters) is None and candidate.digest not in known:
            known.add(candidate.digest)
            drawn.append(candidate)
        if len(drawn) >= 2 * count:
            break
    with ThreadPoolExecutor(usable_cores()) as pool:
        verdicts = list(pool.map(lambda candidate: _is_correct(context, candidate), drawn))
    return [candidate for candidate, ok in zip(drawn, verdicts, strict=True) if ok][:count]


def _is_valid(candidate: Candidate, spaces: list[Space]) -> bool:
    space = next(space for space in spaces if space.template.name == candidate.template)
    return space.why_not(candidate.parameters) is None


def _is_correct(context: EvaluationContext, candidate: Candidate) -> bool:
    try:
        subject = prepared(context, candidate)
    except GreenfastError:  # a candidate that does not compile is not measured here
        return False
    return all(
        gate.judge(subject).outcome is Outcome.PASSED for gate in (PtxasGate(), CorrectnessGate())
    )


def measured(
    context: EvaluationContext, baseline: Candidate, candidates: list[Candidate], processes: int
) -> list[Row]:
    """A row for each candidate, process and pass, with all samples."""
    rows = []
    for process in range(processes):
        if process:  # the first process has checked all candidates, as a search's has
            context.target.fresh()
        started = time.perf_counter()
        for again in range(PASSES):
            seed = secrets.randbelow(2**31)  # of inputs, the order, and where memory is laid out
            order, seeded = random.Random(seed), replace(context, seed=seed)
            against = prepared(seeded, baseline)
            subjects = [
                (number, prepared(seeded, candidate)) for number, candidate in enumerate(candidates)
            ]
            for number, subject in order.sample(subjects, len(subjects)):
                timings = timed_in_turns(subject, against)
                if isinstance(timings, Failure):
                    raise SystemExit(f"candidate {number} failed while timed: {timings.sentence}")
                rows.append(
                    {
                        "candidate": number,
                        "template": subject.template.name,
                        "parameters": subject.candidate.values(),
                        "process": process,
                        "pass": again,
                        "seed": seed,
                        **_timing_figures(timings),
                    }
                )
        print(
            f"process {process}: {time.perf_counter() - started:.1f} s", file=sys.stderr, flush=True
        )
    return rows


def _timing_figures(timings: Sequence[Timing]) -> Row:
    interval = measured_decision(timings)[1]
    return {
        "us": timings[0].time_median_us,
        "median": interval.median,
        "low": interval.low,
        "high": interval.high,
        "samples": [_short(sample) for sample in timings[0].samples],
        "baseline_samples": [_short(sample) for sample in timings[0].baseline_samples],
    }


def _short(value: float) -> float:
    return float(f"{value:.6g}")


def analysed(rows: list[Row]) -> Row:
    """The study's figures, which follow from its stored rows."""
    first = {(row["candidate"], row["process"]): row for row in rows if row["pass"] == 0}
    second = {(row["candidate"], row["process"]): row for row in rows if row["pass"] == 1}
    numbers, processes = sorted({key[0] for key in first}), sorted({key[1] for key in first})
    medians = {
        number: [first[number, process]["median"] for process in processes] for number in numbers
    }
    between = math.sqrt(sum(map(_variance, medians.values())) / len(medians))
    within = math.sqrt(
        sum((first[key]["median"] - row["median"]) ** 2 / 2 for key, row in second.items())
        / max(1, len(second))
    )
    freedom, power_90 = len(medians) * (len(processes) - 1), NormalDist().inv_cdf(0.9)
    return {
        "candidates": len(medians),
        "processes": len(processes),
        "within_a_process_sigma_percent": _percent(within),
        "between_processes_sigma_percent": _percent(between),
        "first_process_against_the_others_percent": [
            _percent(values[0] - sum(values[1:]) / (len(values) - 1)) for values in medians.values()
        ],
        "largest_difference_of_two_processes_percent": _percent(
            max(max(values) - min(values) for values in medians.values())
        ),
        "median_half_width_of_blocks_percent": _percent(
            _middle([(row["high"] - row["low"]) / 2 for row in rows])
        ),
        "difference_holds_0_blocks_as_unit": _share(_by_blocks(first, numbers, processes)),
        "difference_holds_0_process_as_unit": _share(_by_process(medians)),
        "same_process_difference_holds_0_blocks_as_unit": _share(
            [_overlap(first[key], second[key]) for key in second]
        ),
        "processes_for_an_interval_of_1_percent": _needed(between, freedom, 0.0),
        "processes_to_find_1_percent_in_90_of_100": _needed(between, freedom, power_90),
        "the_same_by_the_candidate_that_scatters_most": [
            _needed(math.sqrt(max(map(_variance, medians.values()))), freedom, extra)
            for extra in (0.0, power_90)
        ],
        "the_same_by_the_prior": [
            _needed(PROCESS_SIGMA, PROCESS_FREEDOM, extra) for extra in (0.0, power_90)
        ],
        "confidence": CONFIDENCE,
        "each": [_candidate_figures(number, medians[number]) for number in numbers],
    }


def _candidate_figures(number: int, medians: list[float]) -> Row:
    mean = sum(medians) / len(medians)
    return {
        "candidate": number,
        "ratio": round(math.exp(mean), 5),
        "sigma_percent": _percent(math.sqrt(_variance(medians))),
        "medians_percent": [_percent(median - mean) for median in medians],
    }


def _by_blocks(
    first: dict[tuple[int, int], Row], numbers: list[int], processes: list[int]
) -> list[bool]:
    """For each candidate and pair of processes, whether their difference contains 0."""
    return [
        _overlap(first[number, earlier], first[number, later])
        for number in numbers
        for earlier, later in combinations(processes, 2)
    ]


def _overlap(first: Row, second: Row) -> bool:
    """Whether the difference of two medians, each with its own interval, contains 0."""
    difference = abs(first["median"] - second["median"])
    halves = ((row["high"] - row["low"]) / 2 for row in (first, second))
    return difference <= math.hypot(*halves)


def _by_process(medians_of: dict[int, list[float]]) -> list[bool]:
    """As `_by_blocks`, with the scatter of processes, taken from the other candidates."""
    contained = []
    for number, medians in medians_of.items():
        others = [values for other, values in medians_of.items() if other != number]
        sigma = math.sqrt(sum(map(_variance, others)) / len(others))
        half = (
            student((1 - CONFIDENCE) / 2, len(others) * (len(medians) - 1)) * sigma * math.sqrt(2)
        )
        contained += [abs(first - second) <= half for first, second in combinations(medians, 2)]
    return contained


def _needed(sigma: float, freedom: int, extra: float) -> int:
    """Processes whose mean has an interval within +-1 %.

    `extra` is a normal quantile: with that probability they also resolve a difference of 1 %.
    """
    return max(
        1, math.ceil(((student((1 - CONFIDENCE) / 2, freedom) + extra) * sigma / CLAIM) ** 2)
    )


def _variance(values: list[float]) -> float:
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values) / (len(values) - 1)


def _middle(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def _share(held: list[bool]) -> Row:
    return {"held": sum(held), "of": len(held), "share": round(sum(held) / max(1, len(held)), 4)}


def _percent(value: float) -> float:
    return round(100 * value, 4)


if __name__ == "__main__":
    main()
