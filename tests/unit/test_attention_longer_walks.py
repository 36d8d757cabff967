"""Walks that no derived check is long enough for: several tiles for each of the blocks that share out the keys, several row
tiles for each persistent block. The gates do not go there, so that what is shipped is held here."""

from __future__ import annotations

import pytest

from search.candidate import complete_parameters
from search.cases import Case, derived_cases
from search.catalogue import complete_dims
from search.gates.correctness import compare
from search.memory import problem
from search.reference import answer
from test_attention_mma import ATTENTION, COMPILED, MMA, SPLIT, emulator, subject, without  # noqa: F401

WMMA = ATTENTION.template("wmma")
ROWS = {"tile_m": 16, "warps_m": 1, "tile_n": 32, "persistent": True}
LATER = "        start_kv_tile(k_tiles, v_tiles, k_rows, v_rows, first_key, tile + 1, tile_count);    // in this one's place\n"
NEXT_ROWS = "        __syncthreads();                         // before the next rows take these ones' place\n"
WALKS = [
    (MMA, {**SPLIT, "split_kv": 4, "combine": "cluster"}), (MMA, {**SPLIT, "split_kv": 4, "combine": "last_cta"}),
    (MMA, {**SPLIT, "split_kv": 8, "combine": "second_kernel", "pipeline_depth": 1}),
    (MMA, {**SPLIT, "split_kv": 8, "combine": "atomic", "pipeline_depth": 3, "split_kv_wait": False}),
    (WMMA, ROWS), (WMMA, {**ROWS, "warps_n": 1, "softmax": "register", "o_in": "fragments", "q_in_fragments": True}),
]


def longer(made):
    """Three tiles or more for each block of a split, and scores that rise from one to the next; two row tiles for the one
    block that a batch of 132 has."""
    values = made.candidate.values()
    keys = 7 * values["tile_n"] * values.get("split_kv", 0) // 2 + values["tile_n"] + 5
    dims = {"B": 132 if values.get("persistent") else 1, "H": 1, "S_q": values["tile_m"] + 1, "S_kv": keys,
            "D": dict(COMPILED)["D"]}
    options = tuple((one.name, dict(COMPILED)[one.name]) for one in ATTENTION.options)
    return Case("longer", complete_dims(dims, ATTENTION.dims, "longer"), options, "rising", "padded", 0,
                tuple(made.point.tiles.items()))


def run(made):
    """(why it is wrong or None, what the checked run found) of the longer case."""
    case = longer(made)
    laid_out = problem(ATTENTION, made.template, made.point, case, answer(ATTENTION, case))
    (execution,) = made.target.execute(made.program, [laid_out])
    (checked,) = made.target.check(made.program, [laid_out])
    return compare(made, execution)[1], checked.findings


def tiles_a_block(made, keys: int) -> int:
    return -(-keys // made.candidate.values()["tile_n"] // made.candidate.values()["split_kv"])


def test_derived_checks_are_too_short_for_it():
    """Where this fails, the checks have grown, and what stands here may go."""
    made = subject(None, WALKS[0][1])
    longest = max(dict(one.dims)["S_kv"] for one in derived_cases(ATTENTION, COMPILED, made.point.tiles, 0))
    assert tiles_a_block(made, longest) == 1 and tiles_a_block(made, dict(longer(made).dims)["S_kv"]) > 2


@pytest.mark.parametrize(("template", "parameters"), WALKS, ids=lambda value: str(getattr(value, "name", value)))
def test_it_is_right_and_safe(emulator, template, parameters):
    assert dict(complete_parameters(template, parameters, COMPILED)).items() >= parameters.items(), "the point is another"
    assert run(subject(emulator, parameters, template=template)) == (None, ())


@pytest.mark.parametrize(("template", "parameters", "change"), [
    (MMA, WALKS[2][1], without("        __syncthreads();\n" + LATER, LATER)), (WMMA, ROWS, without(NEXT_ROWS)),
], ids=["a tile over the one before", "rows over those before"])
def test_a_missing_barrier_is_found(emulator, template, parameters, change):
    _, findings = run(subject(emulator, parameters, change, template=template))
    assert "race" in {one.kind for one in findings}
