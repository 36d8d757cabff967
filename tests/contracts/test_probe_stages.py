"""Every template can show each stage of its kernel, and each stage is correct."""

from __future__ import annotations

from dataclasses import replace

import pytest
from front_end import refusals

from greenfast.search.devices.facts import device
from greenfast.search.diagnose.probes import probe_candidate
from greenfast.search.gates import GateLimits
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.loop.evaluate import EvaluationContext
from greenfast.search.render import RenderedSource, render
from greenfast.search.space.candidate import preset_candidate
from greenfast.search.space.space import Space, resolve
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.toolchain import Cubin

CATALOGUE = Catalogue.from_environment()
KERNELS = [CATALOGUE.kernel(name) for name in CATALOGUE.names()]
TEMPLATES = [(kernel, template) for kernel in KERNELS for template in kernel.templates]
# Planted faults of these are probed in tests/unit, stage by stage.
PROBED_ELSEWHERE = {
    ("attention", "scalar"),
    ("attention", "wmma"),
    ("attention_fp8", "mma"),
    ("rmsnorm", "row"),
    ("rmsnorm", "split"),
}
# Their stages are those of gemm/wgmma and of templates above, which take a fraction of the time.
ALIKE = {
    ("attention", "decode"),
    ("attention", "mma"),
    ("attention", "wgmma"),
    ("attention_fp8", "wgmma"),
    ("gemm", "mma"),
    ("gemm_fp8", "wgmma"),
}
SLOW = PROBED_ELSEWHERE | ALIKE
MARKED = [
    pytest.param(
        kernel,
        template,
        marks=pytest.mark.slow if (kernel.name, template.name) in SLOW else (),
    )
    for kernel, template in TEMPLATES
]


def _name(value) -> str:
    return getattr(value, "name", "")


@pytest.fixture(scope="module")
def emulator(artifacts):
    return open_target(
        "emulator:h200", TargetSettings(artifacts, CATALOGUE.include_dirs, 2, run_deadline_s=20.0)
    )


def _served(kernel, template):
    """The first and the last preset, each on the first workload that it can serve."""
    served = []
    for preset in dict.fromkeys((template.presets[0], template.presets[-1])):
        for workload in kernel.workloads:
            values = {**dict(workload.dims), **dict(workload.options)}
            compiled = workload.compile_time(kernel)
            if any(values[name] not in allowed for name, allowed in template.supports):
                continue
            candidate = preset_candidate(template, preset.name, compiled)
            if Space(template, compiled, device("h200")).why_not(candidate.parameters) is None:
                served.append((workload, compiled, candidate))
                break
    return served


@pytest.mark.parametrize(("kernel", "template"), TEMPLATES, ids=_name)
def test_a_template_has_every_probe_of_its_kernel(kernel, template):
    assert kernel.probes and {probe.name for probe in template.probes} == {
        probe.name for probe in kernel.probes
    }


# NVRTC's front end reads the text of each probe. What its machine code may lack (shared memory,
# registers) is asked of the first one; slow tests ask it of all.
@pytest.mark.parametrize("assembled", [1, pytest.param(None, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("kernel", "template"), MARKED, ids=_name)
def test_what_a_probe_adds_is_not_in_the_text_without_it_and_compiles_with_it(
    kernel, template, assembled, toolchain
):
    for _, compiled, candidate in _served(kernel, template)[:1]:
        point = resolve(template, candidate.parameters, compiled, device("h200"))
        assert "probe" not in render(kernel, template, point, CATALOGUE.include_dirs).text
        sources = []
        for probe in template.probes:
            if probe.when is not None and not probe.when(point.values):
                continue
            source = render(kernel, template, point, CATALOGUE.include_dirs, probe.name)
            assert isinstance(source, RenderedSource), source
            sources.append(source)
        arch = device("h200").compiled_arch(specific=template.arch_specific)
        assert refusals(toolchain, sources, arch) == []
        for source in sources[:assembled]:
            cubin = toolchain.compile(source, arch)
            assert isinstance(cubin, Cubin), cubin


def test_the_front_end_refuses_what_is_no_cuda(toolchain):
    kernel = CATALOGUE.kernel("rmsnorm")
    _, compiled, candidate = _served(kernel, kernel.templates[0])[0]
    point = resolve(kernel.templates[0], candidate.parameters, compiled, device("h200"))
    source = render(kernel, kernel.templates[0], point, CATALOGUE.include_dirs)
    wrong = replace(source, text=source.text + "\n__device__ int seven() { return __seven(); }\n")
    (message,) = refusals(toolchain, [source, wrong], "sm_90")
    assert 'identifier "__seven" is undefined' in message


# The second and third case of the first preset; slow tests run all cases of two presets. In fp8 the
# bounds of one case take seconds.
@pytest.mark.parametrize(("kernel", "template"), MARKED, ids=_name)
@pytest.mark.parametrize(
    ("presets", "cases"), [(1, slice(1, 3)), pytest.param(2, slice(None), marks=pytest.mark.slow)]
)
def test_every_stage_of_a_right_template_is_right(
    kernel, template, presets, cases, emulator, toolchain
):
    for workload, compiled, candidate in _served(kernel, template)[:presets]:
        context = EvaluationContext(
            replace(kernel, probe_cases=kernel.probe_cases[cases]),
            compiled,
            (workload,),
            emulator,
            toolchain,
            CATALOGUE.include_dirs,
            GateLimits(),
            0,
        )
        reports = probe_candidate(context, candidate)
        wrong = [
            (report.probe, report.sentence)
            for report in reports
            if report.outcome not in ("right", "missing")
        ]
        assert not wrong, (candidate.origin.preset, wrong)
