"""Candidates rendered twice, with the templates of two folders."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from greenfast.search.devices.facts import Device
from greenfast.search.digest import digest
from greenfast.search.errors import GreenfastError
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.kernels.spec import KernelSpec, TemplateSpec
from greenfast.search.kernels.workloads import Items
from greenfast.search.render import RenderedSource, render
from greenfast.search.space.candidate import Candidate, Origin, OriginKind, preset_candidate
from greenfast.search.space.space import Space, resolve

PROBED_SHARE = 0.3  # of the random candidates are rendered with one of the kernel's probes
DRAWS_PER_POINT = 20  # before a template's space counts as exhausted


@dataclass(frozen=True)
class Point:
    """A candidate with all that its text depends on."""

    candidate: Candidate
    compiled: Items
    device: Device
    probe: str = ""

    @property
    def template(self) -> str:
        return f"{self.candidate.kernel}/{self.candidate.template}"

    @property
    def name(self) -> str:
        values = {**dict(self.compiled), **self.candidate.values()}
        return " ".join(
            (
                self.template,
                *(f"{key}={value}" for key, value in values.items()),
                *([f"probe={self.probe}"] if self.probe else []),
            )
        )

    @property
    def digest(self) -> str:
        return digest((self.candidate, self.compiled, self.device.name, self.probe))


@dataclass(frozen=True)
class Pair:
    """The texts of a point before and after a change of the templates."""

    point: Point
    before: RenderedSource
    after: RenderedSource

    @property
    def is_same_text(self) -> bool:
        return self.before.text == self.after.text


def templates_of(path: Path) -> Path:
    """The folder of templates in a checkout, or `path` if it is that folder."""
    inside = path / "kernel_templates"
    return (inside if inside.is_dir() else path).resolve()


def catalogue_of(folder: Path) -> Catalogue:
    """The kernels of a folder, with no headers but those in it."""
    return Catalogue([folder], headers=[folder / "include"])


def changed_templates(before: Path, after: Path) -> tuple[str, ...]:
    """`kernel/template` of every template whose text or headers differ between the folders."""
    old, new = catalogue_of(before), catalogue_of(after)
    names = []
    for name in old.names():
        if name not in new.names():
            continue
        theirs = {template.name: template for template in new.kernel(name).templates}
        names += [
            f"{name}/{template.name}"
            for template in old.kernel(name).templates
            if template.name in theirs and template.text != theirs[template.name].text
        ]
    return tuple(names)


def rendered_pair(before: Catalogue, after: Catalogue, point: Point) -> Pair:
    """Both texts of a point. ValueError if a template refuses it."""
    return Pair(point, rendered_source(before, point), rendered_source(after, point))


def rendered_source(catalogue: Catalogue, point: Point) -> RenderedSource:
    """The text of a point. ValueError if its template refuses it."""
    candidate = point.candidate
    kernel = catalogue.kernel(candidate.kernel)
    template = kernel.template(candidate.template)
    resolved = resolve(template, candidate.parameters, point.compiled, point.device)
    source = render(kernel, template, resolved, catalogue.include_dirs, point.probe)
    if not isinstance(source, RenderedSource):
        raise ValueError(f"{point.name} does not render: {source.message}")
    return source


def groups(kernel: KernelSpec, template: TemplateSpec) -> list[Items]:
    """Every combination of compile-time dims and options that the template supports."""
    supported, values = dict(template.supports), {}
    for dim in kernel.dims:
        if dim.time == "compile":
            drawn = {dict(workload.compile_time(kernel))[dim.name] for workload in kernel.workloads}
            values[dim.name] = supported.get(dim.name, tuple(sorted(drawn)))
    for option in kernel.options:
        values[option.name] = supported.get(option.name, option.values)
    order = [name for name, _ in kernel.workloads[0].compile_time(kernel)]
    return [
        tuple(zip(order, point, strict=True))
        for point in itertools.product(*(values[name] for name in order))
    ]


def probes(kernel: KernelSpec) -> tuple[str, ...]:
    return tuple(probe.name for probe in kernel.probes)


def preset_points(kernel: KernelSpec, template: TemplateSpec, device: Device) -> Iterator[Point]:
    """Each preset in each group of options that it fits, without a probe and with each one."""
    for compiled, preset in itertools.product(groups(kernel, template), template.presets):
        candidate = _preset(template, preset.name, compiled)
        space = Space(template, compiled, device)
        if candidate is None or space.why_not(candidate.parameters) is not None:
            continue
        for probe in ("", *probes(kernel)):
            yield Point(candidate, compiled, device, probe)


def _preset(template: TemplateSpec, name: str, compiled: Items) -> Candidate | None:
    try:
        return preset_candidate(template, name, compiled)
    except GreenfastError:
        return None  # its parameters depend on values of another group


def random_points(
    kernel: KernelSpec, template: TemplateSpec, device: Device, seed: int, count: int
) -> Iterator[Point]:
    """Different valid points, `count` at most. Equal seeds give equal points."""
    rng, seen = random.Random(f"{kernel.name}/{template.name} {seed}"), set[str]()
    spaces = {compiled: Space(template, compiled, device) for compiled in groups(kernel, template)}
    for _ in range(count * DRAWS_PER_POINT):
        if len(seen) == count or not spaces:
            return
        compiled = rng.choice(list(spaces))
        try:
            parameters = spaces[compiled].drawn(rng)
        except GreenfastError:
            del spaces[compiled]  # it has no valid point
            continue
        probe = rng.choice(probes(kernel) or ("",)) if rng.random() < PROBED_SHARE else ""
        candidate = Candidate(kernel.name, template.name, parameters, Origin(OriginKind.SAMPLED))
        point = Point(candidate, compiled, device, probe)
        if point.digest not in seen:
            seen.add(point.digest)
            yield point


def select(names: Sequence[str], catalogue: Catalogue) -> list[tuple[KernelSpec, TemplateSpec]]:
    """The kernel and template of each `kernel/template`."""
    chosen = []
    for name in names:
        kernel_name, _, template_name = name.partition("/")
        kernel = catalogue.kernel(kernel_name)
        chosen.append((kernel, kernel.template(template_name)))
    return chosen
