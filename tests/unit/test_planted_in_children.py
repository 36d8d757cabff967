"""Cases with a value that is not finite, computed in a child as in this process."""

from __future__ import annotations

import numpy as np
import pytest

from greenfast.search.oracle.cases import derived_cases
from greenfast.search.oracle.not_finite import not_finite_cases
from greenfast.search.oracle.reference import CaseDataCache, compute_case_data
from greenfast.search.oracle.reference_children import ReferenceChildren


@pytest.fixture
def cache():
    children = ReferenceChildren(1)
    yield CaseDataCache(2**30, children)
    children.pool.close()


@pytest.mark.parametrize("name", ["attention", "rmsnorm"])
def test_a_child_computes_planted_cases_as_this_process_does(album, cache, monkeypatch, name):
    kernel = album.kernel(name)
    compiled = kernel.workloads[0].compile_time(kernel)
    derived = derived_cases(kernel, compiled, {}, 3)
    cases = not_finite_cases(kernel, derived, lambda case: True)
    assert cases
    cache.fill(kernel, cases)
    for case in cases:
        asked = []
        data = cache.get(kernel, case, lambda *_, asked=asked: asked.append(1))
        assert not asked  # the child's data are there
        right = compute_case_data(kernel, case, None)
        for argument, array in right.inputs.items():
            assert data.inputs[argument].dtype == array.dtype
            np.testing.assert_array_equal(data.inputs[argument], array)
        for output, expected in right.outputs.items():
            for field in ("value", "bound", "undefined"):
                own, here = (getattr(each, field) for each in (data.outputs[output], expected))
                assert own.dtype == here.dtype
                # BLAS may add in another order, and a bound's sums are in float32.
                rtol = 1e-6 if field == "bound" else 1e-9
                np.testing.assert_allclose(own, here, rtol=rtol)
            assert data.outputs[output].rounded is expected.rounded is None
