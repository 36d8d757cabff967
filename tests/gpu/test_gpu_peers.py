"""Peers on a GPU: correct ones are timed, wrong ones rejected, a crash stays its own."""

from __future__ import annotations

import importlib.util
from dataclasses import replace

import pytest

from greenfast.search.gates import GateLimits
from greenfast.search.loop.evaluate import EvaluationContext, prepare
from greenfast.search.peers.compare import compare_peers
from greenfast.search.space.candidate import preset_candidate

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="TORCH IS NOT INSTALLED: no peer was timed"
)
PEERS = """
import os
import torch
NAMES = ("right", "crash", "wrong", "other", "refuses")

def offer(name, dims, options, scalars):
    if name == "other":
        raise ValueError("another mask")
    def run(tensors):
        if name == "crash":
            os._exit(7)
        if name == "refuses":
            raise RuntimeError("no kernel for this")
        q, k, v = (tensors[name] for name in "qkv")
        o = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        return {"o": o * 1.5 if name == "wrong" else o}
    return {"version": "1", "run": run}
"""


@pytest.fixture
def winner(gpu, catalogue, toolchain):
    kernel = catalogue.kernel("attention")
    workload = kernel.workload("small")
    context = EvaluationContext(
        kernel,
        workload.compile_time(kernel),
        (workload,),
        gpu,
        toolchain,
        catalogue.include_dirs,
        GateLimits(),
        0,
    )
    template, preset = kernel.preset("wmma:stage2")
    candidate = preset_candidate(template, preset.name, context.compiled)
    return prepare(candidate, context)


def test_each_peer_gets_what_it_deserves(winner, tmp_path):
    (tmp_path / "peers.py").write_text(PEERS)
    kernel = replace(winner.kernel, folder=tmp_path)
    peers = compare_peers(
        replace(winner, conditions=replace(winner.conditions, kernel=kernel)), processes=1
    )
    outcomes = {peer.name: peer.outcome for peer in peers}
    assert outcomes == {
        "right": "timed",
        "crash": "unavailable",
        "wrong": "wrong",
        "other": "not_comparable",
        "refuses": "unavailable",
    }, [peer.sentence for peer in peers]
    sentences = {peer.name: peer.sentence for peer in peers}
    assert "exit code 7" in sentences["crash"] and "no kernel for this" in sentences["refuses"]


def test_pytorchs_back_ends_are_timed_in_turns_with_ours(winner):
    peers = {peer.name: peer for peer in compare_peers(winner, processes=1)}
    for name in ("torch-default", "torch-flash", "torch-efficient"):
        peer = peers[name]
        assert peer.outcome == "timed", peer.sentence
        (process,) = peer.comparison.processes
        assert len(process.timings[0].samples) == len(process.timings[0].baseline_samples) == 80
        assert (
            0.05 < peer.comparison.ratio < 20
            and peer.comparison.ratio_low < peer.comparison.ratio_high
        )
