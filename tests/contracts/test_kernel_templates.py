"""The contract of kernels and templates, for every folder of kernel_templates/."""

from __future__ import annotations

import random
import re
from functools import cache

import numpy as np
import pytest

from greenfast.search.devices.facts import device
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.oracle.cases import derived_cases, workload_case
from greenfast.search.oracle.reference import case_data
from greenfast.search.render import RenderedSource, render
from greenfast.search.space.candidate import Candidate, Origin, OriginKind, preset_candidate
from greenfast.search.space.space import Space, resolve
from greenfast.search.toolchain import Cubin

CATALOGUE = Catalogue.from_environment()
KERNELS = [CATALOGUE.kernel(name) for name in CATALOGUE.names()]
TEMPLATES = [(kernel, template) for kernel in KERNELS for template in kernel.templates]
PRESETS = [
    (kernel, template, preset) for kernel, template in TEMPLATES for preset in template.presets
]

# Slow: attention_fp8/wgmma, attention/mma and gemm/mma are made of the same parts.
ALIKE = {
    ("attention", "wgmma"),
    ("attention_fp8", "mma"),
    ("gemm", "wgmma"),
    ("gemm_fp8", "wgmma"),
}


def _name(value) -> str:
    return getattr(value, "name", "")


@cache
def _space(template, compiled, on):
    """The same space for every test: to list half a million points takes a third of a second."""
    return Space(template, compiled, device(on))


def _compile_times(kernel, template):
    """Bindings of workloads that the template supports, enough to cover every value."""
    bindings, met = [], set()
    for workload in kernel.workloads:
        values, compiled = (
            {**dict(workload.dims), **dict(workload.options)},
            workload.compile_time(kernel),
        )
        if all(
            values[name] in allowed for name, allowed in template.supports
        ) and not met.issuperset(compiled):
            bindings.append(compiled)
            met.update(compiled)
    return bindings


def _render(kernel, template, candidate, compiled):
    return render(
        kernel,
        template,
        resolve(template, candidate.parameters, compiled, device("h200")),
        CATALOGUE.include_dirs,
    )


def test_there_are_kernels_templates_and_presets():
    assert KERNELS and len(TEMPLATES) >= 2 and len(PRESETS) >= 4


@pytest.mark.parametrize(("kernel", "template"), TEMPLATES, ids=_name)
def test_a_template_uses_what_it_declares_and_documents_it(kernel, template):
    expressions = [local for _, local in template.locals] + [
        constraint.expression for constraint in template.constraints
    ]
    expressions += [
        size
        for launch in template.launches
        for size in (*launch.grid, *launch.block, *launch.cluster, launch.smem_dynamic_bytes)
    ]
    expressions += [
        size for item in template.tensor_maps for size in (*item.box, item.swizzle_bytes)
    ]
    expressions += [item.l2_promotion_bytes for item in template.tensor_maps]
    names = set().union(*(expression.names for expression in expressions)) | set(
        re.findall(r"\w+", template.text)
    )
    for parameter in template.parameters:
        assert parameter.name in names, f"{parameter.name} has no effect"
        assert parameter.doc, f"{parameter.name} is not documented"
    assert template.idea and template.text.startswith("// ")
    assert not re.search(r"\basm\b|__CUDA_ARCH__|EMULAT", template.text)


# A template's first two presets compile, each for a binding of its own; slow tests run all pairs.
@pytest.mark.parametrize(
    ("kernel", "template", "preset"),
    [
        pytest.param(
            kernel,
            template,
            preset,
            marks=()
            if preset in template.presets[:1] and (kernel.name, template.name) not in ALIKE
            else pytest.mark.slow,
        )
        for kernel, template, preset in PRESETS
    ],
    ids=_name,
)
@pytest.mark.parametrize(
    ("on", "bindings"),
    [
        ("h200", 1),
        pytest.param("h200", None, marks=pytest.mark.slow),
        pytest.param("l4", None, marks=pytest.mark.slow),
    ],
)
def test_a_preset_compiles_without_spills_for_each_compile_time_binding(
    kernel, template, preset, on, bindings, toolchain
):
    if template.arch_specific and device(on).sm != template.minimum_sm:
        pytest.skip(f"{template.name} runs on no {on}")
    each, first = _compile_times(kernel, template), template.presets.index(preset)
    for compiled in (each * 2)[first % len(each) :][: bindings or len(each)]:
        space = _space(template, compiled, on)
        candidate = preset_candidate(template, preset.name, compiled)
        if refusal := space.why_not(candidate.parameters):
            what = (
                "registers|shared memory|where it is turned|only without a mask|only with heads of"
            )
            assert re.search(what if on == "h200" else f"{what}|cluster", refusal), (
                "only large heads, turned operands, masks and small devices may refuse a preset"
            )
            continue
        source = _render(kernel, template, candidate, compiled)
        assert isinstance(source, RenderedSource)
        arch = device(on).compiled_arch(specific=template.arch_specific)
        cubin = toolchain.compile(source, arch)
        assert isinstance(cubin, Cubin), cubin
        assert sorted(entry.entry for entry in cubin.entries) == sorted(source.entries)
        assert sum(entry.spill_bytes for entry in cubin.entries) == 0


@pytest.mark.parametrize(("kernel", "template"), TEMPLATES, ids=_name)
@pytest.mark.parametrize("on", ["h200", "l4"])
def test_some_preset_fits_each_compile_time_binding(kernel, template, on):
    if template.arch_specific and device(on).sm != template.minimum_sm:
        pytest.skip(f"{template.name} runs on no {on}")
    for compiled in _compile_times(kernel, template):
        space = _space(template, compiled, on)
        assert any(
            space.why_not(preset_candidate(template, preset.name, compiled).parameters) is None
            for preset in template.presets
        ), (compiled, on)


@pytest.mark.parametrize(
    ("kernel", "template"),
    [
        pytest.param(
            kernel,
            template,
            marks=pytest.mark.slow if (kernel.name, template.name) in ALIKE else (),
        )
        for kernel, template in TEMPLATES
    ],
    ids=_name,
)
def test_random_points_render_to_sources_of_their_own(kernel, template):
    compiled = kernel.workloads[0].compile_time(kernel)
    points = random.Random(1).sample(_space(template, compiled, "h200").points, 10)
    texts = set()
    for point in points:
        source = _render(
            kernel,
            template,
            Candidate(kernel.name, template.name, point, Origin(OriginKind.SAMPLED)),
            compiled,
        )
        assert isinstance(source, RenderedSource), source
        texts.add(source.digest)
    # A few spellings may coincide; more would mean a parameter without effect.
    assert len(texts) >= 9


@pytest.mark.parametrize("kernel", KERNELS, ids=_name)
@pytest.mark.parametrize("count", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_checks_are_small_finite_and_differ_by_seed(kernel, count):
    for _, template in [served for served in TEMPLATES if served[0] is kernel]:
        every = _compile_times(kernel, template)
        for compiled in every if count > 1 else every[:1]:
            points = _space(template, compiled, "h200").points
            for point in random.Random(2).sample(points, count):
                resolved = resolve(template, point, compiled, device("h200"))
                cases = derived_cases(kernel, compiled, resolved.tiles, 0)
                assert cases
                first_of = {
                    (case.dims, case.options, case.inputs, case.layout): case
                    for case in reversed(cases)
                }
                for case in cases:
                    # A check covers a tile or two, and the largest tile has 8 MFLOP at D = 64.
                    # Where blocks share the keys, each of up to eight gets some. All heads that
                    # take turns need a tile each.
                    allowed = 25e6 * max(1, dict(compiled).get("D", 64) / 64)
                    allowed *= 2 if resolved.values.get("split_kv", 1) > 1 else 1
                    allowed *= 10 if case.name == "heads_after_heads" else 1
                    assert kernel.work_flop(case.values(kernel)) <= allowed, (
                        case.name,
                        template.name,
                        point,
                    )
                for case in first_of.values():  # other seeds ask the same with other numbers
                    for output in case_data(kernel, case).outputs.values():
                        assert (output.bound >= 0).all()


@pytest.mark.parametrize("kernel", KERNELS, ids=_name)
def test_another_seed_is_another_input_and_the_same_seed_the_same(kernel):
    cases = {each: workload_case(each, 0) for each in kernel.workloads}
    workload = min(cases, key=lambda each: kernel.work_flop(cases[each].values(kernel)))
    first, again, other = (
        case_data(kernel, workload_case(workload, seed)).inputs for seed in (3, 3, 4)
    )
    for name in first:
        assert np.array_equal(first[name].view(np.uint8), again[name].view(np.uint8))
        assert not np.array_equal(first[name].view(np.uint8), other[name].view(np.uint8))
