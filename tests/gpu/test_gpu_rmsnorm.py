"""rmsnorm on a GPU: every preset is correct; PyTorch's two operations are timed beside it."""

from __future__ import annotations

import importlib.util

import pytest

from greenfast.search.gates import GateLimits
from greenfast.search.loop.evaluate import EvaluationContext, evaluate, prepare
from greenfast.search.peers.compare import compare_peers
from greenfast.search.space.candidate import preset_candidate
from greenfast.search.verdict import Outcome, Stage, gate_result

PRESETS = (
    "row:plain",
    "row:warps",
    "row:twice",
    "row:shared",
    "split:cluster",
    "split:two_kernels",
)


def bench_on(gpu, catalogue, toolchain, workload) -> EvaluationContext:
    kernel = catalogue.kernel("rmsnorm")
    workload_spec = kernel.workload(workload)
    return EvaluationContext(
        kernel,
        workload_spec.compile_time(kernel),
        (workload_spec,),
        gpu,
        toolchain,
        catalogue.include_dirs,
        GateLimits(),
        0,
    )


@pytest.mark.parametrize("workload", ["prompt", "one_row", "decode_bf16"])
@pytest.mark.parametrize("preset", PRESETS)
def test_presets_are_right(preset, workload, gpu, catalogue, toolchain):
    context = bench_on(gpu, catalogue, toolchain, workload)
    template, point = context.kernel.preset(preset)
    verdict = evaluate(preset_candidate(template, point.name, context.compiled), context).verdict
    result = gate_result(verdict, Stage.CORRECTNESS)
    assert result is not None and result.outcome is Outcome.PASSED, verdict


@pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="TORCH IS NOT INSTALLED: no peer was timed"
)
def test_pytorchs_two_operations_are_right_and_timed_and_what_works_in_place_is_refused(
    gpu, catalogue, toolchain
):
    context = bench_on(gpu, catalogue, toolchain, "decode")
    template, point = context.kernel.preset("row:plain")
    candidate = preset_candidate(template, point.name, context.compiled)
    subject = prepare(candidate, context)
    peers = {peer.name: peer for peer in compare_peers(subject, processes=1)}
    assert (
        peers["torch-rms-norm"].outcome == "timed"
        and "two operations" in peers["torch-rms-norm"].version
    )
    assert peers["torch-compile"].outcome in ("timed", "unavailable"), peers[
        "torch-compile"
    ].sentence
    assert (
        peers["flashinfer"].outcome == "not_comparable"
        and "writes y over x" in peers["flashinfer"].sentence
    )
