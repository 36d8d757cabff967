"""References from child processes equal our own, and every failure of a child is recovered."""

from __future__ import annotations

import os
import signal
import threading

import numpy as np
import pytest

from greenfast.search import compute_turns
from greenfast.search.errors import SpecError
from greenfast.search.oracle import reference
from greenfast.search.oracle.cases import derived_cases
from greenfast.search.oracle.reference import CaseDataCache, compute_case_data
from greenfast.search.oracle.reference_children import ReferenceChildren, children_for

TILES = {"tile_q": 16, "tile_kv": 32, "depth": 2, "parts": 1, "blocks": 1}


@pytest.fixture
def children():
    opened = ReferenceChildren(1)
    yield opened
    opened.pool.close()


@pytest.fixture
def here(monkeypatch):
    """Cases that this process computed."""
    seen, compute = [], reference.compute_case_data

    def noted(kernel, case, by):
        seen.append(case)
        return compute(kernel, case, by)

    monkeypatch.setattr(reference, "compute_case_data", noted)
    return seen


def cases_of(kernel, workload=None, tiles=TILES):
    workload = kernel.workload(workload or kernel.workloads[0].name)
    return list(derived_cases(kernel, workload.compile_time(kernel), tiles, 3))


def same(computed_data, other):
    """Inputs bit for bit; float64 results up to the order in which this machine's BLAS adds up."""
    for name, array in other.inputs.items():
        assert (
            computed_data.inputs[name].dtype == array.dtype
            and computed_data.inputs[name].tobytes() == array.tobytes()
        )
    for name, right in other.outputs.items():
        for field in ("value", "bound", "rounded"):
            mine, theirs = getattr(computed_data.outputs[name], field), getattr(right, field)
            assert (mine is None) == (theirs is None)
            if mine is not None:
                assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
                np.testing.assert_allclose(
                    mine, theirs, rtol=1e-4 if field == "bound" else 1e-10, atol=1e-10
                )


@pytest.mark.parametrize(
    ("name", "workload"),
    [
        pytest.param("attention", "mission_bf16", marks=pytest.mark.slow),
        ("attention", "mission_causal"),
        pytest.param("attention_fp8", None, marks=pytest.mark.slow),
        pytest.param("rmsnorm", None, marks=pytest.mark.slow),
    ],
)
def test_a_child_gives_what_is_computed_here(catalogue, children, here, name, workload):
    kernel = catalogue.kernel(name)
    cases, cache = cases_of(kernel, workload), CaseDataCache(2**30, children)
    cache.fill(kernel, cases)
    assert here == [] and len(cases) > 5
    for case in cases:
        same(cache.get(kernel, case, None), compute_case_data(kernel, case, None))
    assert len(here) == 0  # `compute_case_data` above is not the function that the cache calls


def test_only_what_is_missing_and_small_goes_to_a_child(catalogue, children, here, monkeypatch):
    kernel, requested = catalogue.kernel("attention"), []
    cases, cache = cases_of(kernel, "mission_bf16"), CaseDataCache(2**30, children)
    monkeypatch.setattr(
        compute_turns,
        "LARGE_BYTES",
        sorted(reference._size_bytes(kernel, case) for case in cases)[-1],
    )
    compute = children.computed
    monkeypatch.setattr(
        children,
        "computed",
        lambda kernel, cases: requested.extend(cases) or compute(kernel, cases),
    )
    cache.get(kernel, cases[0], None)
    cache.fill(kernel, cases)
    largest = [
        case
        for case in cases[1:]
        if reference._size_bytes(kernel, case) >= compute_turns.LARGE_BYTES
    ]
    assert largest and set(requested) == set(cases[1:]) - set(largest)
    cache.fill(kernel, cases)
    assert len(requested) == len(set(requested)) and here == cases[:1]


def test_a_child_that_died_is_replaced_and_its_cases_are_computed_here(catalogue, children, here):
    kernel = catalogue.kernel("rmsnorm")
    cases, cache = cases_of(kernel), CaseDataCache(2**30, children)
    cache.fill(kernel, cases[:1])
    [child] = children.pool.all
    os.kill(
        child.process.pid, signal.SIGSTOP
    )  # alive when it is asked, and dead before it can answer
    killer = threading.Timer(0.5, os.kill, (child.process.pid, signal.SIGKILL))
    killer.start()
    cache.fill(kernel, cases[:4])
    killer.join()
    assert here == cases[1:4]
    cache.fill(kernel, cases)
    assert here == cases[1:4] and child not in children.pool.all


def test_who_waits_for_a_case_that_a_child_computes_gets_it(catalogue, children, here):
    kernel = catalogue.kernel("attention")
    cases, cache, results = cases_of(kernel, "mission_bf16"), CaseDataCache(2**30, children), []
    filling = threading.Thread(target=cache.fill, args=(kernel, cases))
    filling.start()
    waiting = [
        threading.Thread(target=lambda case=case: results.append(cache.get(kernel, case, None)))
        for case in cases[-6:]
    ]
    for thread in (*waiting, filling):
        if thread is not filling:
            thread.start()
    for thread in (*waiting, filling):
        thread.join(30.0)
    assert len(results) == 6 and all(data.outputs["o"].value.size >= 0 for data in results)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            'return {"y"',
            "raise ValueError('no such thing'); return {\"y\"",
            "ValueError: no such thing",
        ),
        ('return {"y"', 'return {"z"', "reference returns no y; it returns z"),
    ],
)
def test_what_is_wrong_with_a_reference_is_said_as_if_no_child_were_there(
    broken_kernel, children, old, new, message
):
    kernel = broken_kernel("reference.py", old, new).kernel("axpy")
    cases, cache = cases_of(kernel, tiles={}), CaseDataCache(2**30, children)
    cache.fill(kernel, cases)
    with pytest.raises(SpecError, match=message):
        cache.get(kernel, cases[0], None)


def test_without_children_nothing_is_begun(catalogue, here):
    kernel, cache = catalogue.kernel("rmsnorm"), CaseDataCache(2**30)
    cache.fill(kernel, cases_of(kernel))
    assert here == [] and not cache._futures


def test_only_a_search_uses_children_and_only_where_there_are_cores_to_spare(monkeypatch):
    monkeypatch.setattr(reference, "_CACHE", CaseDataCache(2**30))
    for cores, count in ((2, 0), (16, 2)):
        assert reference._CACHE.children.pool.count == 0
        monkeypatch.setattr(reference, "usable_cores", lambda cores=cores: cores)
        reference.use_children()
        assert reference._CACHE.children.pool.count == count
    used = reference._CACHE.children
    reference.use_children()
    assert reference._CACHE.children is used


def test_machines_with_cores_to_spare_have_children():
    assert [children_for(cores) for cores in (1, 2, 7, 8, 16, 64)] == [0, 0, 0, 1, 2, 8]
