"""Copies and barriers that are compared with a GPU: the emulator's outputs are NumPy's."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from emulator_harness import prepared
from slow_cases import quick_first

from bench.correctness.conformance import all_cases, copy_model
from bench.correctness.conformance.barriers import barriers
from bench.correctness.conformance.bulk_copies import bulk_copies
from bench.correctness.conformance.case import Case, blank
from bench.correctness.conformance.reductions import all_reductions
from bench.correctness.conformance.tensor_copies import RANKS, TYPES, tensor_copies
from bench.correctness.gpu_conformance import compared, emulated, kept, unexpected_outputs
from greenfast.search.devices.tensor_map import SWIZZLES_BYTES, TensorMap, misfit

ALL = (*barriers(), *bulk_copies(), *all_reductions(), *tensor_copies())
CASES = {case.name: case for case in ALL if not case.fails}
REFUSED = [case for case in ALL if case.fails]
QUICK = (
    "tensor copies 1-D float32 with a swizzle of 0 bytes",
    "tensor copies 2-D uint8 with a swizzle of 64 bytes",
    "tensor copies 4-D fp16 with a swizzle of 128 bytes",
    "tensor copies of ragged rows of fp16",
    "tensor copies of axes in another order in memory",
    "tensor copies to clusters of 2",
    "tensor reductions of uint32",
    "copies, stores and updates to other blocks",
    "bulk reductions",
    "mbarriers of one thread",
    "mbarriers and barriers of clusters of 2",
)
QUICK_CHECKED = (
    "tensor copies 1-D float32 with a swizzle of 32 bytes",  # of 32 bytes, fewer than pieces
    "mbarriers of a ring of stages",
)


@pytest.fixture(scope="module")
def emulator(artifacts):
    return prepared(artifacts)


def quick(names: tuple[str, ...]) -> list[object]:
    return [pytest.param(n, marks=() if n in names else pytest.mark.slow) for n in CASES]


@pytest.mark.parametrize("name", quick(QUICK))
def test_the_emulators_outputs_are_those_of_numpy(emulator, name):
    case = CASES[name]
    assert set(case.expected) == set(case.outputs)
    assert unexpected_outputs(case, emulated(emulator, case)) == []


@pytest.mark.parametrize("name", quick(QUICK_CHECKED))
def test_the_checks_report_nothing_in_any_order(emulator, name):
    case = CASES[name]
    outputs = emulated(emulator, case, flavour="checked", order="seeded:3")
    assert unexpected_outputs(case, outputs) == []


@pytest.mark.parametrize("case", quick_first(REFUSED, 2), ids=lambda case: case.name)
def test_what_a_gpu_refuses_is_a_fault(emulator, case):
    word = "multiples" if "column" in case.name and "row" not in case.name else "negative"
    with pytest.raises(RuntimeError, match=word):
        emulated(emulator, case)


def test_every_rank_type_and_swizzle_is_copied_and_every_map_can_be_encoded():
    names = {case.name for case in all_cases()}
    for rank, dtype, swizzle in itertools.product(RANKS, TYPES, SWIZZLES_BYTES):
        assert f"tensor copies {rank}-D {dtype} with a swizzle of {swizzle} bytes" in names
    for case in CASES.values():
        for each in case.maps:
            assert misfit(each) is None, case.name
            assert each.buffer in {*case.inputs, *case.outputs}


def test_a_box_of_the_model_is_what_indexing_gives():
    memory = np.arange(7 * 64, dtype=np.uint8)
    tensor_map = TensorMap("m", "x", "uint8", (40, 7), (64,), (16, 3))
    rows = memory.reshape(7, 64)[:, :40]
    assert np.array_equal(
        copy_model.loaded(tensor_map, memory, (5, 2)).reshape(3, 16), rows[2:5, 5:21]
    )
    corner = copy_model.loaded(tensor_map, memory, (-4, -1)).reshape(3, 16)
    assert not corner[0].any() and not corner[:, :4].any()
    assert np.array_equal(corner[1:, 4:], rows[:2, :12])
    target = np.zeros_like(memory)
    copy_model.store(tensor_map, target, (32, 6), np.full(48, 9, np.uint8))
    assert np.flatnonzero(target).tolist() == [*range(6 * 64 + 32, 6 * 64 + 48)]  # a run of 16


def test_the_swizzle_of_128_bytes_exchanges_the_chunks_of_8_rows():
    places = copy_model.swizzled(np.arange(1024), 128).reshape(8, 8, 16)[:, :, 0]
    for row, chunk in itertools.product(range(8), repeat=2):
        assert places[row, chunk] == row * 128 + (chunk ^ row) * 16
    assert copy_model.swizzled(np.arange(256), 32)[128] == 128 + 16


def test_rows_that_are_shorter_than_the_swizzle_lie_at_multiples_of_it():
    narrow = TensorMap("m", "x", "fp16", (64, 9), (128,), (8, 5), 64)
    places = copy_model.box_places(narrow, 0).reshape(5, 16)[:, 0]
    assert places.tolist() == [0, 64, 128 + 16, 192 + 16, 256 + 32]


def test_a_difference_is_found_in_small_and_in_digested_outputs():
    right = np.arange(6000, dtype=np.uint16)
    case = Case("c", "", {}, {"small": blank(np.uint16, 8), "large": blank(np.uint16, 6000)})
    case = replace(case, expected={"small": right[:8], "large": right})
    rows = []
    for wrong in (False, True):
        large = right.copy()
        large[5000] += wrong
        outputs = {"small": right[:8], "large": large}
        assert len(unexpected_outputs(case, outputs)) == wrong
        packed = {name: kept(value.view(np.uint8)) for name, value in outputs.items()}
        assert isinstance(packed["small"], str) and len(packed["large"]) == 12
        rows.append({"case": "c", "outputs": packed})
    assert compared(case, rows[0], rows[0])["verdict"] == "equal"
    row = compared(case, *rows)
    assert row["verdict"] == "different"
    assert row["outputs"]["small"]["different"] == 0
    assert row["outputs"]["large"]["examples"][0][0] == 4608  # the piece of 512 elements
