"""Case data is computed once and kept within a byte limit; the least recently used goes first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from greenfast.search.oracle import reference
from greenfast.search.oracle.cases import derived_cases
from greenfast.search.oracle.reference import CaseDataCache


@pytest.fixture
def cases(album):
    kernel = album.kernel("axpy")
    derived = derived_cases(kernel, kernel.workload("odd").compile_time(kernel), {}, 0)
    return kernel, [replace(derived[0], seed=number) for number in range(6)]


@pytest.fixture
def computed(monkeypatch):
    """Seeds of the cases that were computed, in order."""
    seen, compute = [], reference.compute_case_data

    def noted(kernel, case, by):
        seen.append(case.seed)
        return compute(kernel, case, by)

    monkeypatch.setattr(reference, "compute_case_data", noted)
    return seen


def test_what_was_used_least_recently_is_given_up_first(cases, computed):
    kernel, (zero, one, two, three, *_) = cases
    cache = CaseDataCache(kept_bytes=3 * CaseDataCache(0).get(kernel, zero, None).nbytes)
    computed.clear()
    for case in (zero, one, two, zero, three):  # the fourth to come takes the place of `one`
        cache.get(kernel, case, None)
    assert computed == [0, 1, 2, 3]
    cache.get(kernel, zero, None)
    cache.get(kernel, two, None)
    assert computed == [0, 1, 2, 3]
    cache.get(kernel, one, None)
    assert computed == [0, 1, 2, 3, 1]


def test_one_that_is_larger_than_the_room_is_still_given(cases, computed):
    kernel, (zero, one, *_) = cases
    cache = CaseDataCache(kept_bytes=1)
    assert cache.get(kernel, zero, None) is cache.get(kernel, zero, None)
    cache.get(kernel, one, None)
    cache.get(kernel, zero, None)
    assert computed == [0, 1, 0]
