"""The fit of gemm/wgmma's times: costs that are known come back, and no size sees itself."""

from __future__ import annotations

import numpy as np
import pytest

from bench.model.wgmma_fit import FIGURES, NAMES, figures, fitted, left_out
from bench.results import read_result

POINT = dict(
    zip(NAMES, (False, 128, 2, 64, 5, "grid", 2, 1, 1, 1, 16, "tensor", 1, 256), strict=True)
)


def test_known_costs_come_back():
    rng = np.random.default_rng(0)
    rows = rng.uniform(0.1, 10.0, (400, 4))
    costs = np.array([2.0, 0.0, 1.25, 0.5])
    assert fitted(rows, rows @ costs) == pytest.approx(costs, abs=0.02)


def test_figures_of_a_split_product():
    """Two by 32 tiles of 128 by 128 in two parts, one for each SM; 32 steps of 256 rows."""
    of = dict(zip(FIGURES, figures("M=256,N=4096,K=4096", POINT), strict=True))
    assert (of["tiles"], of["steps"]) == (1, 3.2)
    assert of["loads"] == pytest.approx(32 * 256 * 128 / 64 / 1980)
    assert of["slower of both"] == max(of["products"], of["loads"])
    assert of["exchange"] == pytest.approx(128 * 128 * 4 / 2 / 64 / 1980)


def test_a_size_is_predicted_by_the_others_alone():
    sizes = read_result("h200/gemm_sweep")["rows"][:3]
    before, _ = left_out(sizes)
    slower = [{**point, "us": point["us"] * 3.0} for point in sizes[0]["points"]]
    after, _ = left_out([{**sizes[0], "points": slower}, *sizes[1:]])
    # Its prediction is the same, so that times three times as long are further away by that.
    assert after[0]["median_error"] > before[0]["median_error"] + 0.5
    assert after[0]["rank_correlation"] == before[0]["rank_correlation"]
