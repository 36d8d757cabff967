"""Random right candidates: points of the shipped templates and of the album's right ones, ready to be run."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from search.candidate import Candidate, Origin, OriginKind, complete_parameters
from search.catalogue import REPOSITORY_TEMPLATES, Catalogue, complete_dims, complete_options
from search.devices import device
from search.errors import Fault
from search.expressions import Value
from search.gates import GateLimits, Subject
from search.gates.safety import checked_problems
from search.render import RenderedSource, render
from search.space import Space, resolve
from search.spec import Items, KernelSpec, TemplateSpec, Workload
from search.targets.base import Target

DEVICE = "h200"
ALBUM = Path(__file__).resolve().parent.parent / "tests" / "kernels"
SHIPPED_SHARE = 0.7                  # of the candidates are of shipped templates


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
        return f"{self.kernel.name}/{self.template.name} " + " ".join(f"{key}={value}" for key, value in values.items())

    def subject(self, target: Target, source: RenderedSource | None = None, seed: int = 0) -> Subject:
        """For gates that need no cubin; `source` takes the place of the candidate's own."""
        point = resolve(self.template, self.candidate.parameters, self.compiled)
        return Subject(self.kernel, self.template, self.candidate, self.compiled, point, source or self.source, None,
                       target, (self.workload,), GateLimits(), seed, None)


def catalogue() -> Catalogue:
    return Catalogue([REPOSITORY_TEMPLATES, ALBUM])


def draws(kernels: Catalogue, seed: int) -> Iterator[Draw]:
    """Different candidates without end (well before the templates run out); the same for the same seed."""
    rng = random.Random(seed)
    shipped = [(kernel, one) for kernel in (kernels.kernel("attention"),) for one in kernel.templates]
    album = [(kernel, kernel.template("right")) for kernel in map(kernels.kernel, kernels.names())
             if any(one.name == "right" for one in kernel.templates)]
    seen: set[str] = set()
    while True:
        kernel, template = rng.choice(shipped if rng.random() < SHIPPED_SHARE else album)
        found = _draw(kernel, template, kernels, rng)
        if found is not None and found.source.digest not in seen:
            seen.add(found.source.digest)
            yield found


# Right by luck, each in another way: whoever runs checks on right candidates must see these first.
CONTROLS = (("histogram", "plain_add_in_shared"), ("lastblock", "no_fence"), ("reduce", "shared_value_not_set"),
            ("tile", "reads_while_copying"), ("stencil", "halo_read_before_the_array"))


def controls_found(kernels: Catalogue, target: Target) -> tuple[str, ...]:
    """The kinds found in each of CONTROLS; Fault when the checks overlook one: their silence would prove nothing."""
    found = []
    for kernel_name, defect in CONTROLS:
        kernel = kernels.kernel(kernel_name)
        template = kernel.template("broken")
        drawn = _made(kernel, template, {"defect": defect}, kernel.workloads[0], kernels)
        subject = drawn.subject(target)
        kinds = {one.kind for run in target.check(subject.program, checked_problems(subject)) for one in run.findings}
        if not kinds:
            raise Fault(f"the checks overlook {defect} of {kernel_name}", code="checks_asleep")
        found.append(f"{kernel_name} {defect}: {', '.join(sorted(kinds))}")
    return tuple(found)


def _draw(kernel: KernelSpec, template: TemplateSpec, kernels: Catalogue, rng: random.Random) -> Draw | None:
    """None when the drawn values are no valid point."""
    workload = rng.choice(kernel.workloads)
    options = {one.name: rng.choice(one.values) for one in kernel.options}
    workload = Workload(workload.name, workload.title, complete_dims(dict(workload.dims), kernel.dims, kernel.name),
                        complete_options(options, kernel.options, kernel.name))
    given = {one.name: rng.choice(one.values) for one in template.parameters}
    return _made(kernel, template, given, workload, kernels)


def _made(kernel: KernelSpec, template: TemplateSpec, given: dict[str, Value], workload: Workload,
          kernels: Catalogue) -> Draw | None:
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
