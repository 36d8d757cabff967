"""Random right candidates: points of the shipped templates and of the album's right ones, ready to be run."""

from __future__ import annotations

import argparse
import json
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from greenfast.search.cores import usable_cores
from greenfast.search.devices.facts import device
from greenfast.search.errors import Fault
from greenfast.search.gates import Conditions, GateLimits, Subject
from greenfast.search.gates.safety import checked_problems
from greenfast.search.kernels.catalogue import (
    REPOSITORY_TEMPLATES,
    Catalogue,
    complete_dims,
    complete_options,
)
from greenfast.search.kernels.expressions import Value
from greenfast.search.kernels.spec import Items, KernelSpec, TemplateSpec, Workload
from greenfast.search.render import RenderedSource, render
from greenfast.search.space.candidate import Candidate, Origin, OriginKind, complete_parameters
from greenfast.search.space.space import Space, resolve
from greenfast.search.targets.base import Runner

DEVICE = "h200"
ALBUM = Path(__file__).resolve().parents[2] / "tests" / "kernels"
SHIPPED_SHARE = 0.7  # of the candidates are of shipped templates
Work = TypeVar("Work")


@dataclass(frozen=True)
class Draw:
    """One candidate. `digest` tells two draws of the same text apart from different ones."""

    kernel: KernelSpec
    template: TemplateSpec
    candidate: Candidate
    compiled: Items
    workload: Workload
    source: RenderedSource

    @property
    def name(self) -> str:
        values = {**dict(self.compiled), **self.candidate.values()}
        return f"{self.kernel.name}/{self.template.name} " + " ".join(
            f"{key}={value}" for key, value in values.items()
        )

    def subject(
        self, target: Runner, source: RenderedSource | None = None, seed: int = 0
    ) -> Subject:
        """For gates that need no cubin; `source` takes the place of the candidate's own."""
        conditions = Conditions(
            self.kernel, self.compiled, (self.workload,), target, GateLimits(), seed
        )
        return Subject(conditions, self.candidate, source or self.source, None)


def catalogue() -> Catalogue:
    return Catalogue([REPOSITORY_TEMPLATES, ALBUM])


def draws(kernels: Catalogue, seed: int, of: Sequence[str] = ("attention",)) -> Iterator[Draw]:
    """Different candidates without end (well before the templates run out); the same for the same seed.

    Most are of the templates of kernels `of`, the others of the album's right ones.
    """
    rng = random.Random(seed)
    shipped = [(kernel, one) for kernel in map(kernels.kernel, of) for one in kernel.templates]
    album = [
        (kernel, kernel.template("right"))
        for kernel in map(kernels.kernel, kernels.names())
        if any(one.name == "right" for one in kernel.templates)
    ]
    seen: set[str] = set()
    while True:
        kernel, template = rng.choice(shipped if rng.random() < SHIPPED_SHARE else album)
        found = _draw(kernel, template, kernels, rng)
        if found is not None and found.source.digest not in seen:
            seen.add(found.source.digest)
            yield found


# Right by luck, each in another way: whoever runs checks on right candidates must see these first.
CONTROLS = (
    ("histogram", "plain_add_in_shared"),
    ("lastblock", "no_fence"),
    ("reduce", "shared_value_not_set"),
    ("tile", "reads_while_copying"),
    ("stencil", "halo_read_before_the_array"),
)


def controls_found(kernels: Catalogue, target: Runner) -> tuple[str, ...]:
    """The kinds found in each of CONTROLS; Fault when the checks overlook one: their silence would prove nothing."""
    found = []
    for kernel_name, defect in CONTROLS:
        kernel = kernels.kernel(kernel_name)
        template = kernel.template("broken")
        drawn = _made(kernel, template, {"defect": defect}, kernel.workloads[0], kernels)
        subject = drawn.subject(target)
        kinds = {
            finding.kind
            for run in target.check(subject.program, checked_problems(subject))
            for finding in run.findings
        }
        if not kinds:
            raise Fault(f"the checks overlook {defect} of {kernel_name}", code="checks_asleep")
        found.append(f"{kernel_name} {defect}: {', '.join(sorted(kinds))}")
    return tuple(found)


def parsed_options(doc: str | None, count: int) -> argparse.Namespace:
    """Of a bench that works through random candidates for a while."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=count)
    parser.add_argument("--seconds", type=float, default=900.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--progress", type=Path)
    parser.add_argument("--save", action="store_true")
    return parser.parse_args()


def work_through(
    works: Mapping[object, Work],
    key: str,
    row: Callable[[Work], dict],
    remark: Callable[[dict], str],
    options: argparse.Namespace,
) -> list[dict]:
    """The row of each work, on all cores, of as many as the time allows; `key`: what a row calls the work's key.

    Rows go to --progress as they are made, and those that an interrupted run left there are taken over. `remark` says
    what is worth a line about a row, or nothing.
    """
    log, lock, begin = options.progress, threading.Lock(), time.monotonic()
    rows = (
        [json.loads(line) for line in log.read_text().splitlines()] if log and log.exists() else []
    )
    rows = [one for one in rows if one[key] in works]
    done = {one[key] for one in rows}

    def one(work: Work) -> None:
        if time.monotonic() - begin > options.seconds:
            return
        made = row(work)
        with lock:
            rows.append(made)
            if log:
                with open(log, "a") as file:
                    file.write(json.dumps(made) + "\n")
            if remark(made) or len(rows) % 50 == 0:
                print(
                    f"{len(rows)} of {len(works)}, {time.monotonic() - begin:.0f} s {remark(made)}",
                    file=sys.stderr,
                    flush=True,
                )

    with ThreadPoolExecutor(usable_cores()) as pool:
        for _ in pool.map(one, [work for name, work in works.items() if name not in done]):
            pass
    return rows


def _draw(
    kernel: KernelSpec, template: TemplateSpec, kernels: Catalogue, rng: random.Random
) -> Draw | None:
    """None when the drawn values are no valid point."""
    workload = rng.choice(kernel.workloads)
    options = {option.name: rng.choice(option.values) for option in kernel.options}
    workload = Workload(
        workload.name,
        workload.title,
        complete_dims(dict(workload.dims), kernel.dims, kernel.name),
        complete_options(options, kernel.options, kernel.name),
    )
    given = {parameter.name: rng.choice(parameter.values) for parameter in template.parameters}
    return _made(kernel, template, given, workload, kernels)


def _made(
    kernel: KernelSpec,
    template: TemplateSpec,
    given: dict[str, Value],
    workload: Workload,
    kernels: Catalogue,
) -> Draw | None:
    compiled = workload.compile_time(kernel)
    parameters = complete_parameters(template, given, compiled)
    if Space(template, compiled, device(DEVICE)).why_not(parameters) is not None:
        return None
    candidate = Candidate(kernel.name, template.name, parameters, Origin(OriginKind.SAMPLED))
    point = resolve(template, parameters, compiled)
    source = render(kernel, template, candidate, point, kernels.include_dirs)
    if not isinstance(source, RenderedSource):
        raise RuntimeError(f"{kernel.name}/{template.name} does not render: {source.message}")
    return Draw(kernel, template, candidate, compiled, workload, source)
