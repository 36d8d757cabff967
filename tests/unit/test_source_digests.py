"""Probes add nothing to a text without one: sources of the shipped presets stay byte for byte."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from greenfast.search.devices.facts import device
from greenfast.search.digest import digest
from greenfast.search.kernels.spec import KernelSpec, TemplateSpec
from greenfast.search.kernels.workloads import Items
from greenfast.search.render import render
from greenfast.search.space.candidate import preset_candidate
from greenfast.search.space.space import Space, resolve

PINNED = Path(__file__).parents[1] / "data" / "source_digests.json"
TEMPLATES = (
    "attention/wgmma",
    "attention_fp8/wgmma",
    "gemm/mma",
    "gemm/wgmma",
    "gemm_fp8/wgmma",
)
# Of a preset's groups of options, every so many in the default run. It shares no factor with the
# numbers of values, so the sample meets every value of each option.
SAMPLE = 7
WIDTHS = (64, 96, 128, 256)  # of attention/wgmma's heads; the others only differ in numbers


def groups(kernel: KernelSpec, template: TemplateSpec) -> list[Items]:
    """Every combination of compile-time values that the template supports, without fp8 inputs."""
    supported = dict(template.supports)
    if kernel.name == "attention":
        supported["D"] = tuple(width for width in supported["D"] if width in WIDTHS)
    names = [dim.name for dim in kernel.dims if dim.time == "compile"]
    names += [option.name for option in kernel.options]
    values = [
        [value for value in supported.get(name, ()) if name != "dtype" or not _is_fp8(value)]
        for name in names
    ]
    return [
        tuple(zip(names, point, strict=True))
        for point in itertools.product(*values)
        if ("operands", "dtype") in zip(names, point, strict=True) or "operands" not in names
    ]


def _is_fp8(value: object) -> bool:
    return value in ("e4m3", "e5m2")


def sources_digest(catalogue, name: str, preset: str, step: int) -> str:
    """Of the preset's sources in every `step`-th group of options that it can serve."""
    kernel_name, _, template_name = name.partition("/")
    kernel = catalogue.kernel(kernel_name)
    template = kernel.template(template_name)
    sources = []
    for compiled in groups(kernel, template)[::step]:
        candidate = preset_candidate(template, preset, compiled)
        if Space(template, compiled, device("h200")).why_not(candidate.parameters) is None:
            point = resolve(template, candidate.parameters, compiled, device("h200"))
            source = render(kernel, template, point, catalogue.include_dirs)
            sources.append(source.digest)
    return digest(sources)[:16]


def pinned() -> dict[str, dict[str, dict[str, str]]]:
    return json.loads(PINNED.read_text())


CASES = [(name, preset) for name, presets in pinned().items() for preset in presets]


def test_every_preset_that_was_pinned_is_looked_at():
    assert set(pinned()) == set(TEMPLATES) and len(CASES) > 30


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_sample_meets_every_value_of_each_option(catalogue, name):
    kernel_name, _, template_name = name.partition("/")
    kernel = catalogue.kernel(kernel_name)
    every = groups(kernel, kernel.template(template_name))
    assert set(itertools.chain(*every)) == set(itertools.chain(*every[::SAMPLE]))


@pytest.mark.parametrize(("name", "preset"), CASES)
def test_the_sources_of_a_preset_stay_in_some_groups_of_options(catalogue, name, preset):
    assert sources_digest(catalogue, name, preset, SAMPLE) == pinned()[name][preset]["some"]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "preset"), CASES)
def test_the_sources_of_a_preset_stay_in_every_group_of_options(catalogue, name, preset):
    assert sources_digest(catalogue, name, preset, 1) == pinned()[name][preset]["all"]
