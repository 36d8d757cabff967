"""attention/wgmma with `persistent_spread`: the rows of the last round in smaller row tiles."""

from __future__ import annotations

from dataclasses import replace

import pytest
from changed_subjects import changed_subject

from greenfast.search.devices.facts import device
from greenfast.search.gates import few_blocks
from greenfast.search.gates.correctness import CorrectnessGate
from greenfast.search.gates.safety import SafetyGate
from greenfast.search.kernels.expressions import expression
from greenfast.search.oracle.cases import derived_cases
from greenfast.search.space.candidate import complete_parameters
from greenfast.search.space.space import Space
from greenfast.search.verdict import Outcome

COMPILED = (("D", 64), ("dtype", "bf16"), ("mask", "none"))
SPREAD = {"scheduler": "persistent_spread", "tile_n": 64, "stages": 2, "turns": False}
ROWS = {"B": "2", "H": "3", "H_kv": "3", "S_q": "7 * 64 - 5", "S_kv": "17"}


@pytest.fixture
def subject(catalogue, emulator):
    def made(**more):
        changes = {**SPREAD, **more}
        return changed_subject(
            catalogue, emulator, "attention", "wgmma", "fa3", changes, compiled=COMPILED
        )

    return made


def with_rows(subject):
    """42 units of 64 rows, of which a head's last unit has 59: whole row tiles and what is left."""
    kernel = subject.kernel
    (like,) = [check for check in kernel.checks if check.name == "tile_plus_one"]
    dims = {**dict(like.dims), **{dim: expression(size, "test") for dim, size in ROWS.items()}}
    checks = (replace(like, dims=tuple(dims.items()), seeds=1),)
    conditions = replace(subject.conditions, kernel=replace(kernel, checks=checks))
    return replace(subject, conditions=conditions)


# 1 block: whole row tiles, and pieces of the last rows. 5: several rounds of pieces. 11 and 16: one
# round of them, of one unit each with two or three consumers.
@pytest.mark.slow
@pytest.mark.parametrize("consumers", [2, 3])
@pytest.mark.parametrize("blocks", [1, 5, 11, 16])
def test_every_row_is_written_on_any_number_of_blocks(monkeypatch, subject, consumers, blocks):
    monkeypatch.setattr(few_blocks, "MULTIPROCESSORS", (blocks,))
    made = with_rows(subject(consumers=consumers, epilogue=("tensor", "direct")[blocks % 2]))
    judged = CorrectnessGate().judge(made)
    assert judged.outcome is Outcome.PASSED, judged
    cases = derived_cases(made.kernel, made.compiled, made.point.tiles, made.seed)
    (case, *_), _ = few_blocks.few_blocks_cases(made, cases)
    assert f"_on_{blocks}_multiprocessor" in case.name


@pytest.mark.slow
def test_warpgroups_that_take_turns_pass_theirs_on(subject):
    made = subject(consumers=3, turns=True, q_buffers=2, short_rest=True)
    assert SafetyGate().judge(made).outcome is Outcome.PASSED


def test_masks_and_single_consumers_have_nothing_to_share_out(catalogue):
    template = catalogue.kernel("attention").template("wgmma")
    for compiled, consumers in ((COMPILED, 1), ((*COMPILED[:2], ("mask", "causal_top_left")), 2)):
        parameters = complete_parameters(template, {**SPREAD, "consumers": consumers}, compiled)
        why = Space(template, compiled, device("h200")).why_not(parameters)
        assert "smaller row tiles only without a mask" in why
