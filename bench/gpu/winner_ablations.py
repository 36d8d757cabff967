"""Ablations of the published attention winners: the effect of each of their values.

    python -m bench.gpu.winner_ablations OUT.json [--seconds-each 24] [--retune 2]

Each change of one value is compiled, checked for correctness and timed in turns with the winner
over all blocks, as `greenfast ablate` does. First all changes of all winners are measured, the
features before the numbers. In the time that is left, the other values are tuned again for changes
that matter, the smallest effects first, because tuning can turn those. The time of all winners
together is limited: what one does not need goes to the next. The gate `safety` is left to searches:
a change that proves faster here is a reason to search, and no new winner.

OUT.json is written after each change. The next run continues with what is missing, if the winner's
source, the GPU, its driver and the compiler are the same.
"""

from __future__ import annotations

import argparse
import json
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bench.command_line import script_parser
from bench.results import Row, find_result, finite, read_json, read_result, write_json
from bench.session import Session, open_session
from greenfast.db import convert
from greenfast.search.cores import usable_cores
from greenfast.search.diagnose.ablation import (
    Ablation,
    ArmResult,
    Effect,
    Scale,
    begin,
    judged,
    measured_arm,
)
from greenfast.search.diagnose.ablation_points import FEATURE, Arm, arms_of
from greenfast.search.errors import GreenfastError
from greenfast.search.kernels.workloads import Items
from greenfast.search.loop.confirmation import prepared
from greenfast.search.loop.evaluate import EvaluationContext
from greenfast.search.oracle.cases import LARGEST_SEED
from greenfast.search.render import RenderedSource
from greenfast.search.space.candidate import Candidate, Origin, OriginKind, complete_parameters
from greenfast.search.space.space import Space

MODE = "hot"
SAME = ("target", "gpu", "driver", "nvidia-cuda-nvrtc")  # of a run that another one continues
DIGITS = 7


@dataclass
class Subject:
    """A winner, its arms, and what is measured of them."""

    row: Row  # of attention_winners
    context: EvaluationContext
    space: Space
    winner: Candidate
    source_digest: str  # of the winner as it is rendered today
    arms: tuple[Arm, ...]
    earlier: tuple[Items, ...]  # correct candidates of its search, the fastest first
    results: dict[str, ArmResult]
    ablation: Ablation | None = None

    @property
    def scale(self) -> Scale:
        return Scale("measured", 1.0, sum(not arm.refused for arm in self.arms))

    def begun(self) -> Ablation:
        if self.ablation is None:
            self.ablation = begin(self.context, self.winner, self.space)
        return self.ablation

    def missing(self) -> list[Arm]:
        """Features before numbers: if time is short, numbers are left out."""
        arms = [arm for arm in self.arms if not self._is_measured(arm)]
        return sorted(arms, key=lambda arm: arm.kind != FEATURE)

    def _is_measured(self, arm: Arm) -> bool:
        result = self.results.get(arm.name)
        return result is not None and result.along == arm.along

    def stored(self) -> Row:
        return {
            "workload": self.row["workload"],
            "template": self.winner.template,
            "parameters": self.winner.values(),
            "source_digest": self.source_digest,
            "comparisons": self.scale.comparisons,
            "planned": len(self.arms),
            "arms": [
                json.loads(convert.value_json("arm", self.results[arm.name]))
                for arm in self.arms
                if arm.name in self.results
            ],
        }


def main() -> int:
    options = _options()
    with open_session("cuda:0", prefix="winner-ablations") as session:
        measured_all(session, options, read_result("h200/attention_winners")["rows"])
    return 0


def _options() -> argparse.Namespace:
    parser = script_parser(__doc__)
    parser.add_argument("out", type=Path, metavar="OUT.json")
    parser.add_argument("--seconds-each", type=float, default=24.0, metavar="S")
    parser.add_argument("--retune", type=int, default=2, metavar="N")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORKLOAD")
    return parser.parse_args()


def measured_all(
    session: Session, options: argparse.Namespace, winners: Sequence[Row], kernel: str = "attention"
) -> None:
    """All arms of all winners, then those that matter once more; saved after each."""
    begun, environment = time.monotonic(), session.environment()
    stored = _continued(options.out, environment)
    selected = [row for row in winners if row["workload"] in options.only or not options.only]
    subjects = [subject_of(session, kernel, row, stored) for row in selected]

    def save() -> None:
        rows = [subject.stored() for subject in subjects]
        others = [row for row in stored.values() if row["workload"] not in _names(subjects)]
        write_json(options.out, finite({"environment": environment, "rows": rows + others}, DIGITS))

    with _compiled_ahead(subjects):
        for number, subject in enumerate(subjects):
            end = begun + options.seconds_each * (number + 1)
            _measure_arms(subject, end, save)
        end = begun + options.seconds_each * len(subjects)
        for subject, result in _to_retune(subjects):
            if time.monotonic() > end or not options.retune:
                break
            _retune(subject, result, options.retune, save)
    save()
    planned = sum(len(subject.arms) for subject in subjects)
    done = sum(len(subject.results) for subject in subjects)
    print(f"{done} of {planned} changes in {time.monotonic() - begun:.0f} s", flush=True)


def _names(subjects: Sequence[Subject]) -> set[str]:
    return {subject.row["workload"] for subject in subjects}


def _continued(path: Path, environment: Row) -> dict[str, Row]:
    """Stored rows by workload; none where they were measured under other conditions."""
    if not path.is_file():
        return {}
    value = read_json(path)
    before = value["environment"]
    if any(before.get(name) != environment.get(name) for name in SAME):
        return {}
    return {row["workload"]: row for row in value["rows"]}


def subject_of(session: Session, kernel_name: str, row: Row, stored: dict[str, Row]) -> Subject:
    """The winner with the arms that are measured already. Spilling changes are timed, too."""
    kernel = session.catalogue.kernel(kernel_name)
    context = session.context(
        kernel,
        kernel.workload(row["workload"]),
        seed=secrets.randbelow(LARGEST_SEED),
        mode=MODE,
    )
    template = kernel.template(row["template"])
    parameters = complete_parameters(template, row["parameters"], context.compiled)
    space = context.target.space(template, context.compiled)
    winner = Candidate(kernel.name, template.name, parameters, Origin(OriginKind.SEEDED))
    source = context.render(winner)
    assert isinstance(source, RenderedSource), source
    old = stored.get(row["workload"], {})
    return Subject(
        row,
        context,
        space,
        winner,
        source.digest,
        arms_of(space, parameters),
        earlier_points(row["workload"], space),
        results_of(old) if old.get("source_digest") == source.digest else {},
    )


def results_of(row: Row) -> dict[str, ArmResult]:
    """The stored arms of one winner, by name."""
    results = (
        convert.value_of("arm", ArmResult, json.dumps(document)) for document in row.get("arms", [])
    )
    return {result.name: result for result in results}


def earlier_points(workload: str, space: Space) -> tuple[Items, ...]:
    """The correct candidates of the workload's stored search, the fastest first."""
    return tuple(parameters for _, parameters in timed_points(workload, space))


def timed_points(workload: str, space: Space) -> list[tuple[float, Items]]:
    """(time, parameters) of the stored search's correct candidates, the fastest first."""
    template, points = space.template, []
    for search in find_result(f"h200/attention_searches/{workload}").get("rows", []):
        for trial in search["trials"]:
            if trial["template"] != template.name or not trial.get("us"):
                continue
            try:
                point = complete_parameters(template, trial["parameters"], space.compiled)
            except GreenfastError:  # a value that the template no longer has
                continue
            points.append((float(trial["us"]), point))
    return sorted(points, key=lambda item: item[0])


@contextmanager
def _compiled_ahead(subjects: Sequence[Subject]) -> Iterator[None]:
    """Compile all arms in threads, in the order of measuring, while others are measured."""
    pool = ThreadPoolExecutor(usable_cores())
    try:
        for subject in subjects:
            for arm in subject.missing():
                if not arm.refused:
                    pool.submit(_compiled, subject, arm)
        yield
    finally:
        pool.shutdown(cancel_futures=True)


def _compiled(subject: Subject, arm: Arm) -> None:
    """Into the toolchain's cache. What fails here fails again, with its reason, when measured."""
    candidate = replace(subject.winner, parameters=arm.parameters)
    prepared(subject.context, candidate)


def _measure_arms(subject: Subject, end: float, save: Callable[[], None]) -> None:
    name = subject.row["workload"]
    if not subject.missing():
        print(f"{name}: complete", flush=True)
        return
    try:
        ablation = subject.begun()
        for arm in subject.missing():
            if time.monotonic() > end:
                print(f"{name}: out of time, {len(subject.missing())} changes are left", flush=True)
                break
            result = measured_arm(ablation, arm, subject.scale, retune=0)
            subject.results[arm.name] = result
            save()
            print(f"{name}: {judged(result, subject.scale).sentence}", flush=True)
    except GreenfastError as error:
        print(f"{name}: {error}", flush=True)


def _to_retune(subjects: Sequence[Subject]) -> list[tuple[Subject, ArmResult]]:
    """Changes that matter and were not tuned again, the smallest effects first."""
    mattering = []
    for subject in subjects:
        for result in subject.results.values():
            finding = judged(result, subject.scale)
            if finding.effect in (Effect.HELPS, Effect.HURTS) and not result.retuned:
                mattering.append((finding.ratio or 1.0, subject, result))
    mattering.sort(key=lambda item: item[0])
    return [(subject, result) for _, subject, result in mattering]


def _retune(subject: Subject, result: ArmResult, count: int, save: Callable[[], None]) -> None:
    """The arm as it was measured, and the other values tuned again."""
    arm = next(arm for arm in subject.arms if arm.name == result.name)
    try:
        ablation = subject.begun()
        subject.results[result.name] = measured_arm(
            ablation,
            arm,
            subject.scale,
            subject.earlier,
            count,
            lambda point: (
                result.alone
                if point == arm.parameters and result.alone is not None
                else ablation.measure(point)
            ),
        )
    except GreenfastError as error:
        print(f"{subject.row['workload']}: {result.name}: {error}", flush=True)
        return
    save()
    sentence = judged(subject.results[result.name], subject.scale).sentence
    print(f"{subject.row['workload']}: tuned again: {sentence}", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
