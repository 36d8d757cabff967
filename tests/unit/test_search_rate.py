"""The measurement of a search's rate, on a stand-in for a GPU."""

from __future__ import annotations

import pytest
import standin_gpus

from bench.gpu import search_rate, stage_spans, two_gpus


def test_every_method_that_the_spans_watch_exists():
    missing = [name for owner, name, _ in stage_spans.STAGES if not hasattr(owner, name)]
    assert not missing


@pytest.mark.slow
def test_the_rate_of_a_search_tells_what_its_threads_did(monkeypatch, tmp_path, broken_kernel):
    standin_gpus.install(monkeypatch, tmp_path / "tmp", {0: {"sleep_s": 0.02}})
    old = "values = [32, 64, 128, 256]"
    catalogue = broken_kernel("right.toml", old, f"values = {list(range(32, 513, 32))}")
    request = {"kernel": "axpy", "templates": ("right",), "strategy": "random", "seed": 5}
    request |= {"target": "cuda:0", "confirm": False, "trials": 8, "seconds": 60.0}
    result = search_rate.measured(two_gpus.Setting(catalogue, request, None, 4))
    assert (result["trials"], result["faults"]) == (8, 0)
    assert {"on the GPU", "compile: NVRTC", "record"} <= set(result["stages"])
    assert 0 < result["gpus"]["cuda:0"]["idle_share"] < 1
    assert sum(phase["recorded"] for phase in result["phases"]) in (7, 8)
    # The last trial's end is the end of the period.
    assert result["stages"][stage_spans.IN_ORDER]["trials"] >= 7
