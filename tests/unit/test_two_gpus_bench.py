"""The measurement of two GPUs against one, on stand-ins."""

from __future__ import annotations

import pytest
import standin_gpus

from bench.gpu import two_gpus


@pytest.mark.slow
def test_the_measurement_of_several_gpus_runs_on_stand_ins(monkeypatch, tmp_path, broken_kernel):
    gpu = {"sleep_s": 0.1}
    standin_gpus.install(monkeypatch, tmp_path / "tmp", {0: gpu, 1: {**gpu, "speed": 1.3}})
    old = "values = [32, 64, 128, 256]"
    catalogue = broken_kernel("right.toml", old, f"values = {list(range(32, 513, 4))}")
    request = {"kernel": "axpy", "templates": ("right",), "strategy": "random", "seed": 5}
    request |= {"target": "cuda:0", "confirm": False}
    setting = two_gpus.Setting(catalogue, request, None, 4)
    shares = sum(two_gpus.SHARES.values()) + two_gpus.SHARES["several"]
    result = two_gpus.measured(setting, "0,1", "1", 16.0 / shares)
    rows = {row["search"]: row for row in result["rows"]}
    assert (rows["one"]["target"], rows["several"]["target"]) == ("cuda:0", "cuda:0,1")
    assert rows["also"]["target"] == "cuda:1" and set(result["gains"]) == {
        rows[name]["target"] for name in ("one", "several", "also")
    }
    assert result["gain"] == result["gains"]["cuda:0,1"] and result["gains"]["cuda:0"] == 1.0
    for name in ("one", "several", "also", "killed"):
        row = rows[name]
        assert row["ended"] == "completed" and row["each_number_once"] and row["faults"] == 0
        assert row["children_killed"] == (name == "killed")
        assert row["trials"] >= 2 and all(each["busy_s"] > 0 for each in row["gpus"].values())
    # The times of GPU 1 are 30 % longer, and ratios are the same.
    assert all(each["largest_percent"] < 0.1 for each in result["ratios"].values())
