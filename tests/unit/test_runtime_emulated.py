"""`greenfast.load(..., device="emulator")`: what it explains and refuses; nothing is compiled."""

from __future__ import annotations

import numpy as np
import pytest
from runtime_bundles import RECORDED, SETS

import greenfast
from greenfast.search.errors import UsageError

X, WEIGHT = np.zeros((3, 4096), "f2"), np.ones(4096, "f2")


@pytest.fixture(scope="module")
def rmsnorm():
    return greenfast.load(SETS / "rmsnorm-h200.zip", device="emulator")


def test_explain_names_the_kernel_that_the_emulator_runs(rmsnorm):
    explained = rmsnorm.explain(X, X, WEIGHT)
    assert explained.kernel is not None and explained.source_digest is not None
    assert explained.launches and explained.launches[0].grid[0] >= 1
    assert "GPU's memory" not in str(explained)
    assert str(explained).startswith(f"rmsnorm: {explained.kernel} of rmsnorm-h200")


def test_explain_gives_the_reason_of_the_refusal(rmsnorm):
    tall = np.zeros((5000, 4096), "f2")
    explained = rmsnorm.explain(tall, tall, WEIGHT)
    assert explained.kernel is None and "outside of 1 to 4096" in explained.why
    assert str(explained).startswith("rmsnorm: no kernel of rmsnorm-h200")
    with pytest.raises(UsageError, match="outside of 1 to 4096"):
        rmsnorm(tall, tall, WEIGHT)


@pytest.mark.parametrize("weight", [[1.0] * 4096, 1.0, None, np.float16(1.0)])
def test_what_is_no_array_is_refused_by_its_name(rmsnorm, weight):
    assert "weight is" in rmsnorm.explain(X, X, weight).why
    with pytest.raises(UsageError, match="weight is"):
        rmsnorm(X, X, weight)


def test_a_gradient_is_refused_and_not_lost(rmsnorm):
    torch = pytest.importorskip("torch")
    x = torch.zeros(3, 4096, dtype=torch.float16, requires_grad=True)
    weight = torch.ones(4096, dtype=torch.float16)
    assert "requires a gradient" in rmsnorm.explain(x, x, weight).why
    with pytest.raises(UsageError, match="requires a gradient"):
        rmsnorm(x, x, weight)
    with torch.no_grad():
        assert rmsnorm.explain(x, x, weight).kernel is not None


def test_a_call_of_another_type_is_refused():
    attention = greenfast.load(RECORDED, device="emulator")
    q = np.zeros((1, 1, 8, 64), np.float64)
    assert attention.explain(q, q, q).kernel is None
    with pytest.raises(UsageError):
        attention(q, q, q)
