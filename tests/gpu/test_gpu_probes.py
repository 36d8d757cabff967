"""Probes on a GPU: correct stages pass, and a planted fault shows in the emulator's stage."""

from __future__ import annotations

import pytest
from planted_stages import PLANTED, probed, probed_fault

from greenfast.search.diagnose.probes import first_wrong


@pytest.mark.parametrize(
    ("preset", "workload"), [("vec", "mission"), ("minimal", "mission_causal"), ("vec", "d96")]
)
def test_every_stage_of_scalar_is_right_here(preset, workload, catalogue, gpu, toolchain):
    reports = probed(catalogue, gpu, toolchain, "scalar", preset, workload)
    assert [report.probe for report in reports if report.outcome != "right"] == [], reports


@pytest.mark.parametrize(
    "name", ["the mask is one key too wide", "the sum is not rescaled", "O is not rescaled"]
)
def test_a_planted_fault_is_named_by_its_stage_here_too(name, tmp_path, gpu, toolchain):
    report = first_wrong(probed_fault(PLANTED[name], tmp_path, gpu, toolchain))
    assert report is not None and (report.probe, report.outcome) == (PLANTED[name].stage, "wrong")
