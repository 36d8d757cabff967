"""References that processes share in files."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue
from greenfast.search.oracle import reference
from greenfast.search.oracle.cases import workload_case
from greenfast.search.oracle.expected import CaseData
from greenfast.search.oracle.known_outputs import KnownOutputs, outputs_key
from greenfast.search.oracle.reference import compute_case_data

KERNEL = Catalogue([REPOSITORY_TEMPLATES]).kernel("attention")
CASE = replace(
    workload_case(KERNEL.workload("B=1,H=2,S_q=5,S_kv=9,D=32,dtype=bf16"), 3), layout="padded"
)
PLANTED = replace(CASE, inputs="normal, one NaN in k")


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """Files of references, and the number of times that one was computed."""
    module, calls = reference.kernel_module(KERNEL), []
    compute = module.reference
    monkeypatch.setattr(module, "reference", lambda *given: calls.append(1) or compute(*given))
    monkeypatch.setattr(reference._SHARED, "known", KnownOutputs(tmp_path, 2**20))
    return calls


def same(first: CaseData, second: CaseData) -> None:
    for name, array in first.inputs.items():
        assert array.tobytes() == second.inputs[name].tobytes()
    assert list(first.outputs) == list(second.outputs)
    for name, expected in first.outputs.items():
        for field in ("value", "bound", "rounded", "undefined"):
            one, other = getattr(expected, field), getattr(second.outputs[name], field)
            assert (one is None) == (other is None)
            if one is not None:
                assert (one.dtype, one.shape) == (other.dtype, other.shape)
                assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("case", [CASE, PLANTED], ids=["plain", "planted"])
def test_a_case_with_the_same_inputs_is_computed_once(shared, case):
    first = compute_case_data(KERNEL, case, None)
    computed = len(shared)
    other = replace(case, name="another", layout="contiguous", tiles=(("tile_q", 64),))
    same(compute_case_data(KERNEL, other, None), first)
    assert computed and len(shared) == computed


def test_other_inputs_options_or_sizes_are_computed(shared):
    keys = set()
    for case in (CASE, replace(CASE, seed=4), replace(CASE, inputs="row_code")):
        keys.add(outputs_key(KERNEL, case, compute_case_data(KERNEL, case, None).inputs))
    masked = replace(CASE, options=(("dtype", "bf16"), ("mask", "causal_top_left")))
    data = compute_case_data(KERNEL, masked, None)
    keys.add(outputs_key(KERNEL, masked, data.inputs))
    keys.add(outputs_key(replace(KERNEL, reference_text=""), masked, data.inputs))
    assert len(shared) == 4 and len(keys) == 5


def test_a_file_that_is_cut_off_costs_a_computation(shared, tmp_path):
    first = compute_case_data(KERNEL, CASE, None)
    (file,) = tmp_path.iterdir()
    for damaged in (b"", file.read_bytes()[:-200], b"\xff" * 100):
        file.write_bytes(damaged)
        same(compute_case_data(KERNEL, CASE, None), first)
    assert len(shared) == 4


def test_a_process_removes_its_own_oldest_files(tmp_path):
    known = KnownOutputs(tmp_path, 3000)
    for number in range(5):
        known.put(f"key-{number}", {"o": {"value": np.full(128, float(number)), "bound": None}})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["key-3", "key-4"]
    assert known.get("key-0") is None
    fields = known.get("key-4")
    assert fields is not None and fields["o"]["bound"] is None
    assert np.array_equal(fields["o"]["value"], np.full(128, 4.0))
