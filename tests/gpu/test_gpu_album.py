"""The album's correct kernels on a GPU, with clusters, stmatrix, fp8 and tf32 fragments."""

from __future__ import annotations

import pytest

from greenfast.search.diagnose.album import Entry, catalogue_of, entries
from greenfast.search.gates import GateLimits, Subject
from greenfast.search.gates.correctness import CorrectnessGate
from greenfast.search.loop.evaluate import EvaluationContext, prepare
from greenfast.search.space.candidate import Candidate, Origin, OriginKind, complete_parameters
from greenfast.search.verdict import Outcome

RIGHT = [entry for entry in entries() if entry.kind == "right"]


@pytest.mark.parametrize("entry", RIGHT, ids=lambda entry: entry.id)
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
    subject = prepare(candidate, context)
    assert isinstance(subject, Subject), subject
    result = CorrectnessGate().judge(subject)
    assert result.outcome is Outcome.PASSED, result.sentence
