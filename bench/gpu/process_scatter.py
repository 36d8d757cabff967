"""Winners measured again in other processes: does the interval of the difference hold, and how many processes tell
1 % apart?

    python -m bench.gpu.confirm [--save] [--workload mission] [--candidates 12] [--processes 8]

Every preset that the workload's space holds and random right candidates are timed against the baseline in several
processes, twice in each, each time on a new seed, in another order and with memory laid out elsewhere; the first
process has checked them before, as a search's has, the others are fresh. From the samples, which are kept: how far a
median moves within a process and from one process to the next; in how many pairs of processes the interval of the
difference holds 0, with the blocks and with the process as the unit; how many processes a claim of 1 % needs.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import random
import secrets
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from statistics import NormalDist

ROOT = Path(__file__).resolve().parents[2]

from greenfast.search.acceptance import measured_decision
from greenfast.search.cores import usable_cores
from greenfast.search.gates import GateLimits
from greenfast.search.gates.correctness import CorrectnessGate
from greenfast.search.gates.ptxas import PtxasGate
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue
from greenfast.search.loop.confirmation import prepared, timed_in_turns
from greenfast.search.loop.evaluate import EvaluationContext
from greenfast.search.space.candidate import Candidate, Origin, OriginKind, preset_candidate
from greenfast.search.space.space import Space
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.targets.base import Failure
from greenfast.search.timing import CONFIDENCE, PROCESS_FREEDOM, PROCESS_SIGMA, student
from greenfast.search.toolchain import Toolchain
from greenfast.search.verdict import Outcome

OUT = ROOT / "bench" / "results" / "h200" / "confirm.json"
PASSES = 2  # of all candidates in one process
CLAIM = math.log(1.01)
DRAWS = 400  # random points looked at for the right ones that are missing


def main() -> None:
    chosen = _arguments()
    folder = Path(tempfile.mkdtemp(prefix="greenfast-confirm-"))
    catalogue = Catalogue([REPOSITORY_TEMPLATES])
    toolchain = Toolchain(folder, usable_cores())
    target = open_target("cuda:0", TargetSettings(folder, catalogue.include_dirs, 1))
    target.prepare()
    try:
        context, baseline = bench_of(catalogue, toolchain, target, chosen.workload)
        candidates = right_candidates(context, baseline, chosen.candidates)
        rows = measured(context, baseline, candidates, chosen.processes)
        found = analysed(rows)
        environment = {
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "cores": usable_cores(),
            "python": platform.python_version(),
            **dict(toolchain.identity),
            **dict(target.identity()),
        }
    finally:
        target.close()
        toolchain.close()
    if chosen.save:
        OUT.parent.mkdir(parents=True, exist_ok=True)
        OUT.write_text(
            json.dumps({"environment": environment, "found": found, "rows": rows}) + "\n"
        )
    print(json.dumps(found, indent=1))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--workload", default="mission")
    parser.add_argument("--candidates", type=int, default=12)
    parser.add_argument("--processes", type=int, default=8)
    return parser.parse_args()


def bench_of(
    catalogue: Catalogue,
    toolchain: Toolchain,
    target,
    workload: str,
    kernel_name: str = "attention",
) -> tuple[EvaluationContext, Candidate]:
    kernel = catalogue.kernel(kernel_name)
    one = kernel.workload(workload)
    context = EvaluationContext(
        kernel,
        one.compile_time(kernel),
        (one,),
        target,
        toolchain,
        catalogue.include_dirs,
        GateLimits(),
        0,
    )
    template, preset = kernel.preset(kernel.baseline)
    return context, preset_candidate(template, preset.name, context.compiled)


def right_candidates(
    context: EvaluationContext, baseline: Candidate, wanted: int
) -> list[Candidate]:
    """Presets first, then random points, as long as they compile without spills and are right."""
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
    drawn = [one for one in drawn if _valid(one, spaces) and one.digest != baseline.digest]
    rng = random.Random(5)
    for _ in range(DRAWS):
        space = rng.choice(spaces)
        parameters = tuple(
            (parameter.name, rng.choice(parameter.values))
            for parameter in space.template.parameters
        )
        one = Candidate(
            context.kernel.name, space.template.name, parameters, Origin(OriginKind.SAMPLED)
        )
        if space.why_not(parameters) is None and one.digest not in {
            other.digest for other in (baseline, *drawn)
        }:
            drawn.append(one)
        if len(drawn) >= 2 * wanted:
            break
    with ThreadPoolExecutor(usable_cores()) as pool:
        right = list(pool.map(lambda one: _is_right(context, one), drawn))
    return [one for one, is_right in zip(drawn, right) if is_right][:wanted]


def _valid(candidate: Candidate, spaces: list[Space]) -> bool:
    space = next(one for one in spaces if one.template.name == candidate.template)
    return space.why_not(candidate.parameters) is None


def _is_right(context: EvaluationContext, candidate: Candidate) -> bool:
    try:
        subject = prepared(context, candidate)
    except Exception:  # what does not compile is not measured here
        return False
    return all(
        gate.judge(subject).outcome is Outcome.PASSED for gate in (PtxasGate(), CorrectnessGate())
    )


def measured(
    context: EvaluationContext, baseline: Candidate, candidates: list[Candidate], processes: int
) -> list[dict]:
    """One row a candidate, process and pass, with all samples."""
    rows = []
    for process in range(processes):
        if process:  # the first one has checked all candidates, as a search's has
            context.target.fresh()
        started = time.perf_counter()
        for again in range(PASSES):
            seed = secrets.randbelow(2**31)  # of inputs, the order, and where memory is laid out
            order, seeded = random.Random(seed), replace(context, seed=seed)
            against = prepared(seeded, baseline)
            subjects = [(number, prepared(seeded, one)) for number, one in enumerate(candidates)]
            for number, subject in order.sample(subjects, len(subjects)):
                timings = timed_in_turns(subject, against)
                if isinstance(timings, Failure):
                    raise SystemExit(
                        f"candidate {number} failed where it is timed: {timings.sentence}"
                    )
                low, middle, high = _interval(timings)
                rows.append(
                    {
                        "candidate": number,
                        "template": subject.template.name,
                        "parameters": subject.candidate.values(),
                        "process": process,
                        "pass": again,
                        "seed": seed,
                        "us": timings[0].time_median_us,
                        "median": middle,
                        "low": low,
                        "high": high,
                        "samples": [_short(sample) for sample in timings[0].samples],
                        "baseline_samples": [
                            _short(sample) for sample in timings[0].baseline_samples
                        ],
                    }
                )
        print(
            f"process {process}: {time.perf_counter() - started:.1f} s", file=sys.stderr, flush=True
        )
    return rows


def _interval(timings) -> tuple[float, float, float]:
    found = measured_decision(timings)[1]
    return found.low, found.median, found.high


def _short(value: float) -> float:
    return float(f"{value:.6g}")


def analysed(rows: list[dict]) -> dict:
    """What the rows say; anybody can compute it again."""
    first = {(row["candidate"], row["process"]): row for row in rows if row["pass"] == 0}
    second = {(row["candidate"], row["process"]): row for row in rows if row["pass"] == 1}
    numbers, processes = sorted({key[0] for key in first}), sorted({key[1] for key in first})
    of = {number: [first[number, process]["median"] for process in processes] for number in numbers}
    between = math.sqrt(sum(map(_variance, of.values())) / len(of))
    within = math.sqrt(
        sum((first[key]["median"] - one["median"]) ** 2 / 2 for key, one in second.items())
        / max(1, len(second))
    )
    freedom = len(of) * (len(processes) - 1)
    return {
        "candidates": len(of),
        "processes": len(processes),
        "within_a_process_sigma_percent": _percent(within),
        "between_processes_sigma_percent": _percent(between),
        "first_process_against_the_others_percent": [
            _percent(one[0] - sum(one[1:]) / (len(one) - 1)) for one in of.values()
        ],
        "largest_difference_of_two_processes_percent": _percent(
            max(max(one) - min(one) for one in of.values())
        ),
        "median_half_width_of_blocks_percent": _percent(
            _middle([(row["high"] - row["low"]) / 2 for row in rows])
        ),
        "difference_holds_0_blocks_as_unit": _share(_by_blocks(first, numbers, processes)),
        "difference_holds_0_process_as_unit": _share(_by_process(of)),
        "same_process_difference_holds_0_blocks_as_unit": _share(
            [_overlap(first[key], second[key]) for key in second]
        ),
        "processes_for_an_interval_of_1_percent": _needed(between, freedom, 0.0),
        "processes_to_find_1_percent_in_90_of_100": _needed(
            between, freedom, NormalDist().inv_cdf(0.9)
        ),
        "the_same_by_the_candidate_that_scatters_most": [
            _needed(math.sqrt(max(map(_variance, of.values()))), freedom, extra)
            for extra in (0.0, NormalDist().inv_cdf(0.9))
        ],
        "the_same_by_the_prior": [
            _needed(PROCESS_SIGMA, PROCESS_FREEDOM, extra)
            for extra in (0.0, NormalDist().inv_cdf(0.9))
        ],
        "confidence": CONFIDENCE,
        "each": [
            {
                "candidate": number,
                "ratio": round(math.exp(sum(of[number]) / len(processes)), 5),
                "sigma_percent": _percent(math.sqrt(_variance(of[number]))),
                "medians_percent": [
                    _percent(one - sum(of[number]) / len(processes)) for one in of[number]
                ],
            }
            for number in numbers
        ],
    }


def _by_blocks(first: dict, numbers: list[int], processes: list[int]) -> list[bool]:
    return [
        _overlap(first[number, one], first[number, other])
        for number in numbers
        for one, other in combinations(processes, 2)
    ]


def _overlap(one: dict, other: dict) -> bool:
    """Whether the interval of the difference of two medians, each with its own interval, holds 0."""
    apart = abs(one["median"] - other["median"])
    return apart <= math.hypot((one["high"] - one["low"]) / 2, (other["high"] - other["low"]) / 2)


def _by_process(of: dict[int, list[float]]) -> list[bool]:
    """The same with the scatter of processes, taken from the other candidates."""
    found = []
    for number, medians in of.items():
        others = [one for other, one in of.items() if other != number]
        sigma = math.sqrt(sum(map(_variance, others)) / len(others))
        half = (
            student((1 - CONFIDENCE) / 2, len(others) * (len(medians) - 1)) * sigma * math.sqrt(2)
        )
        found += [abs(one - other) <= half for one, other in combinations(medians, 2)]
    return found


def _needed(sigma: float, freedom: int, extra: float) -> int:
    """Processes whose mean has an interval within +-1 %; with `extra`, that also tells 1 % from 0 that often."""
    return max(
        1, math.ceil(((student((1 - CONFIDENCE) / 2, freedom) + extra) * sigma / CLAIM) ** 2)
    )


def _variance(values: list[float]) -> float:
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values) / (len(values) - 1)


def _middle(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def _share(held: list[bool]) -> dict:
    return {"held": sum(held), "of": len(held), "share": round(sum(held) / max(1, len(held)), 4)}


def _percent(value: float) -> float:
    return round(100 * value, 4)


if __name__ == "__main__":
    main()
