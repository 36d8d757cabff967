"""The album's correct kernels on a GPU, with clusters, stmatrix, fp8 and tf32 fragments."""

from __future__ import annotations

import pytest

from greenfast.search.diagnose.album import Entry, catalogue_of, entries
from greenfast.search.gates import GateLimits
from greenfast.search.gates.correctness import CorrectnessGate
from greenfast.search.loop.evaluate import EvaluationContext
from greenfast.search.render import RenderedSource
from greenfast.search.space.candidate import Candidate, Origin, OriginKind, complete_parameters
from greenfast.search.toolchain import Cubin
from greenfast.search.verdict import Outcome

RIGHT = [one for one in entries() if one.kind == "right"]


@pytest.mark.parametrize("entry", RIGHT, ids=lambda one: one.id)
def test_a_right_kernel_of_the_album_is_right_here(entry: Entry, gpu, toolchain, tmp_path):
    catalogue = catalogue_of(entry, tmp_path)
    kernel = catalogue.kernel(entry.kernel)
    workload = kernel.workload(entry.workload)
    compiled = workload.compile_time(kernel)
    context = EvaluationContext(
        kernel, compiled, (workload,), gpu, toolchain, catalogue.include_dirs, GateLimits(), 0
    )
    template = kernel.template(entry.template)
    candidate = Candidate(
        kernel.name,
        template.name,
        complete_parameters(template, entry.parameters, compiled),
        Origin(OriginKind.SEEDED),
    )
    source = context.render(candidate)
    assert isinstance(source, RenderedSource)
    cubin = toolchain.compile(source, gpu.device.arch)
    assert isinstance(cubin, Cubin), cubin
    result = CorrectnessGate().judge(context.subject(candidate, source, cubin))
    assert result.outcome is Outcome.PASSED, result.sentence
