"""Random correct candidates: points of the shipped templates and of the album's correct ones."""

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

from bench.command_line import add_save, script_parser
from bench.results import ROOT, Row
from greenfast.search.cores import usable_cores
from greenfast.search.devices.facts import device
from greenfast.search.errors import Fault
from greenfast.search.gates import Conditions, GateLimits, Subject
from greenfast.search.gates.safety import checked_problems
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue
from greenfast.search.kernels.expressions import Value
from greenfast.search.kernels.spec import KernelSpec, TemplateSpec
from greenfast.search.kernels.workloads import Items, Workload, complete_dims, complete_options
from greenfast.search.render import RenderedSource, render
from greenfast.search.space.candidate import Candidate, Origin, OriginKind, complete_parameters
from greenfast.search.space.space import Space, resolve
from greenfast.search.targets.base import Runner

DEVICE = "h200"
ALBUM = ROOT / "tests" / "kernels"
SHIPPED_SHARE = 0.7  # of the candidates are of shipped templates
Work = TypeVar("Work")


@dataclass(frozen=True)
class Draw:
    """A rendered candidate with a workload to check it on."""

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
        """For gates that need no cubin; `source` replaces the candidate's own."""
        conditions = Conditions(
            self.kernel, self.compiled, (self.workload,), target, GateLimits(), seed
        )
        return Subject(conditions, self.candidate, source or self.source, None)


def catalogue() -> Catalogue:
    return Catalogue([REPOSITORY_TEMPLATES, ALBUM])


def draws(kernels: Catalogue, seed: int, of: Sequence[str] = ("attention",)) -> Iterator[Draw]:
    """Different candidates without end, as long as the templates have more.

    Most are of the templates of kernels `of`, the others of the album's correct ones. Equal seeds
    give equal candidates.
    """
    rng = random.Random(seed)
    shipped = [(kernel, item) for kernel in map(kernels.kernel, of) for item in kernel.templates]
    album = [
        (kernel, kernel.template("right"))
        for kernel in map(kernels.kernel, kernels.names())
        if any(template.name == "right" for template in kernel.templates)
    ]
    seen: set[str] = set()
    while True:
        kernel, template = rng.choice(shipped if rng.random() < SHIPPED_SHARE else album)
        draw = _draw(kernel, template, kernels, rng)
        if draw is not None and draw.source.digest not in seen:
            seen.add(draw.source.digest)
            yield draw


def draws_of(kernels: Catalogue, kernel: str, template: str, seed: int) -> Iterator[Draw]:
    """Different candidates of one template, without end as long as it has more."""
    rng, seen = random.Random(seed), set[str]()
    spec = kernels.kernel(kernel)
    while True:
        draw = _draw(spec, spec.template(template), kernels, rng)
        if draw is not None and draw.source.digest not in seen:
            seen.add(draw.source.digest)
            yield draw


# Wrong kernels with correct results, each in another way. Checks that are silent about correct
# candidates must report these first.
CONTROLS = (
    ("histogram", "plain_add_in_shared"),
    ("lastblock", "no_fence"),
    ("reduce", "shared_value_not_set"),
    ("tile", "reads_while_copying"),
    ("stencil", "halo_read_before_the_array"),
)


def controls_found(kernels: Catalogue, target: Runner) -> tuple[str, ...]:
    """The kinds of findings in each of CONTROLS; Fault if the checks overlook one."""
    reports = []
    for kernel_name, defect in CONTROLS:
        kernel = kernels.kernel(kernel_name)
        template = kernel.template("broken")
        control = _rendered(kernel, template, {"defect": defect}, kernel.workloads[0], kernels)
        subject = control.subject(target)
        kinds = {
            finding.kind
            for run in target.check(subject.program, checked_problems(subject))
            for finding in run.findings
        }
        if not kinds:
            raise Fault(f"the checks overlook {defect} of {kernel_name}", code="checks_asleep")
        reports.append(f"{kernel_name} {defect}: {', '.join(sorted(kinds))}")
    return tuple(reports)


def random_options(doc: str | None, count: int) -> argparse.Namespace:
    """The options of a script that works through random candidates for a while."""
    return random_parser(doc, count).parse_args()


def random_parser(doc: str | None, count: int) -> argparse.ArgumentParser:
    """The same, for a script that adds options of its own."""
    parser = script_parser(doc)
    parser.add_argument("--count", type=int, default=count)
    parser.add_argument("--seconds", type=float, default=900.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--progress", type=Path, metavar="FILE", help="resume from these rows")
    parser.add_argument(
        "--share", type=share, default=(0, 1), metavar="I/N", help="every Nth work, from the Ith on"
    )
    add_save(parser)
    return parser


def share(text: str) -> tuple[int, int]:
    """`3/14` as (3, 14)."""
    index, _, of = text.partition("/")
    if not (index.isdigit() and of.isdigit() and int(index) < int(of)):
        raise argparse.ArgumentTypeError(f"a share is like 3/14, the last one 13/14; got {text}")
    return int(index), int(of)


def work_through(
    works: Mapping[object, Work],
    key: str,
    row_of: Callable[[Work], Row],
    remark: Callable[[Row], str],
    options: argparse.Namespace,
) -> list[Row]:
    """The row of each work, on all cores, as far as --seconds allow.

    A row holds its work's key under the name `key`. Rows are appended to --progress as they come,
    and those that an interrupted run left there are reused; of two with one key, the first.
    `remark` gives a line to print about a row, or nothing. With --share only that part of the works
    is begun.
    """
    log, lock, begin = options.progress, threading.Lock(), time.monotonic()
    lines = log.read_text().splitlines() if log and log.exists() else []
    stored = {row[key]: row for row in map(json.loads, reversed(lines)) if row[key] in works}
    rows = list(reversed(stored.values()))
    index, of = options.share
    mine = list(works.items())[index::of]

    def process(work: Work) -> None:
        if time.monotonic() - begin > options.seconds:
            return
        row = row_of(work)
        with lock:
            rows.append(row)
            if log:
                with log.open("a") as file:
                    file.write(json.dumps(row) + "\n")
            if remark(row) or len(rows) % 50 == 0:
                print(
                    f"{len(rows)} of {len(mine)}, {time.monotonic() - begin:.0f} s {remark(row)}",
                    file=sys.stderr,
                    flush=True,
                )

    with ThreadPoolExecutor(usable_cores()) as pool:
        for _ in pool.map(process, [work for name, work in mine if name not in stored]):
            pass
    return rows


def _draw(
    kernel: KernelSpec, template: TemplateSpec, kernels: Catalogue, rng: random.Random
) -> Draw | None:
    """None if the drawn values are no valid point."""
    workload = rng.choice(kernel.workloads)
    supported = dict(template.supports)
    options = {
        option.name: rng.choice(supported.get(option.name, option.values))
        for option in kernel.options
    }
    workload = Workload(
        workload.name,
        workload.title,
        complete_dims(dict(workload.dims), kernel.dims, kernel.name),
        complete_options(options, kernel.options, kernel.name),
    )
    compiled = dict(workload.compile_time(kernel))
    if any(compiled[name] not in values for name, values in supported.items()):
        return None
    given = {parameter.name: rng.choice(parameter.values) for parameter in template.parameters}
    return _rendered(kernel, template, given, workload, kernels)


def _rendered(
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
    point = resolve(template, parameters, compiled, device(DEVICE))
    source = render(kernel, template, point, kernels.include_dirs)
    if not isinstance(source, RenderedSource):
        raise RuntimeError(f"{kernel.name}/{template.name} does not render: {source.message}")
    return Draw(kernel, template, candidate, compiled, workload, source)
