"""Is every preset of every kernel correct, in each group of options, on several seeds?

    python -m bench.correctness.presets OUT.json [--target cuda:0] [--seeds 3] [--minutes 8]
                                        [--kernels attention ...]

The correctness gate judges them on the lengths derived from their tiles, the hard inputs and
the strides. A group is a choice of compile-time values: all combinations of the options at D =
64 (or where there is no such dim), and for each other D the first and the last values of each
option. What a template or its constraints exclude is counted separately. Rows in OUT.json of
the target and of the kernel's present files are kept, and the next run continues. Exits 1 if a
preset fails.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from bench.command_line import script_parser
from bench.results import Row, read_json, write_json
from bench.session import Session, open_session
from greenfast.search.cores import usable_cores
from greenfast.search.digest import digest
from greenfast.search.gates.correctness import CorrectnessGate
from greenfast.search.kernels.expressions import Value
from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.kernels.workloads import Items
from greenfast.search.loop.evaluate import prepare
from greenfast.search.space.candidate import Candidate, preset_candidate
from greenfast.search.space.space import Space
from greenfast.search.targets.base import Target
from greenfast.search.verdict import Outcome, Rejected, Stage

KERNELS, COMMON_D = ("attention", "attention_fp8", "rmsnorm"), 64
FIRST_SEED, RUN_DEADLINE_S = 101, 60.0
ROWS_PER_SAVE = 50


@dataclass(frozen=True)
class Work:
    """One preset in one group on one seed."""

    kernel: KernelSpec
    template: str
    preset: str
    candidate: Candidate
    compiled: Items
    seed: int

    def row(self) -> Row:
        return {
            "kernel": self.kernel.name,
            "kernel_digest": digest(self.kernel)[:12],
            "template": self.template,
            "preset": self.preset,
            "group": dict(self.compiled),
            "seed": self.seed,
        }


def main() -> int:
    options = _options()
    end = time.monotonic() + 60.0 * options.minutes
    with open_session(options.target, prefix="presets", run_deadline_s=RUN_DEADLINE_S) as session:
        plan = Plan(options, session)
        rows = stored_rows(options.out, plan.works)
        done = {_key(row) for row in rows}
        left = [work for work in plan.works if _key(work.row()) not in done]
        for row in judged(left, session, end):
            rows.append(row)
            if row["outcome"] != "passed":
                print(json.dumps(row), flush=True)
            if len(rows) % ROWS_PER_SAVE == 0:
                plan.save(rows)
                print(f"{len(rows)} judged", flush=True)
        print(json.dumps(plan.save(rows)), flush=True)
    return 1 if any(row["outcome"] != "passed" for row in rows) else 0


def _options() -> argparse.Namespace:
    parser = script_parser(__doc__)
    parser.add_argument("out", type=Path, metavar="OUT.json")
    parser.add_argument("--target", default="cuda:0")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--kernels", nargs="+", choices=KERNELS, default=KERNELS)
    return parser.parse_args()


class Plan:
    """All that is to be judged, and the file that holds the verdicts."""

    def __init__(self, options: argparse.Namespace, session: Session) -> None:
        self._options, self._environment = options, session.environment()
        self.works: list[Work] = []
        self.excluded = 0
        for name in options.kernels:
            kernel = session.catalogue.kernel(name)
            kernel_works, excluded = works(kernel, session.target, options.seeds)
            self.works += kernel_works
            self.excluded += excluded

    def save(self, rows: list[Row]) -> Row:
        """Write the rows and return their summary."""
        summary = {
            "target": self._options.target,
            "checks": len(rows),
            "not judged yet": len(self.works) - len(rows),
            "excluded": self.excluded,
            "presets": len({(row["kernel"], row["template"], row["preset"]) for row in rows}),
            "not right": sum(row["outcome"] != "passed" for row in rows),
        }
        result = {"environment": self._environment, "found": summary, "rows": rows}
        write_json(self._options.out, result)
        return summary


def groups(kernel: KernelSpec) -> Iterator[dict[str, Value]]:
    """The groups of compile-time values: all options at the common D, two choices at each other."""
    options = [option.values for option in kernel.options]
    names = [option.name for option in kernel.options]
    depths = [dim for dim in kernel.dims if dim.time == "compile"]
    if not depths:
        yield from (dict(zip(names, values, strict=True)) for values in product(*options))
        return
    (depth,) = depths
    for size in depth.values:
        picked = (
            product(*options)
            if size == COMMON_D
            else ([option[0] for option in options], [option[-1] for option in options])
        )
        for values in picked:
            yield {depth.name: size, **dict(zip(names, values, strict=True))}


def works(kernel: KernelSpec, target: Target, seeds: int) -> tuple[list[Work], int]:
    """Every preset in every group that it serves, and the number of excluded combinations."""
    included, excluded = [], 0
    for template in kernel.templates:
        supported = dict(template.supports)
        for preset in template.presets:
            for group in groups(kernel):
                compiled = tuple(group.items())
                fits = all(
                    group[name] in values for name, values in supported.items() if name in group
                )
                candidate = preset_candidate(template, preset.name, compiled) if fits else None
                if (
                    candidate is None
                    or Space(template, compiled, target.device).why_not(candidate.parameters)
                    is not None
                ):
                    excluded += 1
                    continue
                included += [
                    Work(
                        kernel, template.name, preset.name, candidate, compiled, FIRST_SEED + number
                    )
                    for number in range(seeds)
                ]
    return included, excluded


def judged(left: list[Work], session: Session, end: float) -> Iterator[Row]:
    """Rows as they come, on all cores; works that the time does not allow are not begun."""

    def judge(work: Work) -> Row | None:
        if time.monotonic() > end:
            return None
        context = session.context(work.kernel, compiled=work.compiled, seed=work.seed)
        subject = prepare(work.candidate, context)
        if isinstance(subject, Rejected):
            outcome = "not rendered" if subject.stage is Stage.RENDER else "not compiled"
            return {**work.row(), "outcome": outcome, "sentence": subject.sentence}
        result = CorrectnessGate().judge(subject)
        if result.outcome is Outcome.PASSED:
            return {**work.row(), "outcome": "passed"}
        return {**work.row(), "outcome": result.outcome.value, "sentence": result.sentence}

    with ThreadPoolExecutor(usable_cores()) as pool:
        yield from (row for row in pool.map(judge, left) if row is not None)


def stored_rows(out: Path, planned: list[Work]) -> list[Row]:
    """Rows of an earlier run that are part of this one."""
    if not out.is_file():
        return []
    keys = {_key(work.row()) for work in planned}
    return [row for row in read_json(out)["rows"] if _key(row) in keys]


def _key(row: Row) -> str:
    names = ("kernel", "kernel_digest", "template", "preset", "group", "seed")
    return json.dumps([row[name] for name in names])


if __name__ == "__main__":
    raise SystemExit(main())
