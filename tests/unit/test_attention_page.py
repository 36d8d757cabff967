"""docs/attention.md is as bench/pages/attention_page.py makes it from results and templates."""

from __future__ import annotations

import pytest

from bench.gpu.attention_rows import WORKLOADS, command, winners
from bench.pages import attention_page
from bench.pages.attention_page import PAGE, SECTIONS, aim, pages, tflops


def row(workload="mission_bf16", dim=64, us=4.0, ratio=0.62, mask="none", **more):
    dims = {"B": 2, "H": 8, "H_kv": 8, "S_q": 256, "S_kv": 256, "D": dim}
    return {
        "workload": workload,
        "dims": dims,
        "dtype": "bf16",
        "mask": mask,
        "l2": "hot",
        "time_median_us": us,
        "peers": [
            {
                "name": "torch-cudnn",
                "version": "1",
                "outcome": "timed",
                "time_median_us": us / ratio,
                "ratio": ratio,
                "interval": [ratio - 0.01, ratio + 0.01],
                "decision": "faster",
            }
        ],
        "best_peer": "torch-cudnn",
        "ratio_to_best_peer": ratio,
        "interval": [ratio - 0.01, ratio + 0.01],
        "confirmed": True,
        "ratio_to_baseline": 0.4,
        "ratio_to_baseline_interval": [0.39, 0.41],
        "baseline": "wmma:stage2",
        "winner": {
            "trial": 7,
            "template": "mma",
            "parameters": {"tile_m": 32, "split_kv_wait": True},
            "source_digest": "ab" * 32,
        },
        "verdicts": {"green": 3, "rejected slower": 9},
        "run": {
            "date": "2026-11-21",
            "trials": 12,
            "trials_per_minute": 400.0,
            "kernel_digest": "1",
        },
        **more,
    }


def test_the_page_is_what_the_results_and_templates_make_of_it():
    assert {PAGE: PAGE.read_text()} == pages(), "run `python -m bench.pages.attention_page --save`"


def test_every_section_has_its_place():
    assert PAGE.read_text().count("(bench/pages/attention_page.py) -->") == len(SECTIONS)


def test_a_search_gives_its_row_with_peer_interval_and_aim(monkeypatch):
    rows = [row(), row("long_bf16", us=100.0, ratio=1.4)]
    monkeypatch.setattr(attention_page, "searches", lambda: rows)
    mission, long = attention_page.outcomes().splitlines()[2:4]
    assert (
        "**4.00**" in mission
        and "torch-cudnn 6.45" in mission
        and "0.620 [0.610, 0.630]" in mission
        and "0.8: met" in mission
    )
    assert "320 TFLOP/s: missed" in long and "Not measured yet" in attention_page.outcomes()
    assert (
        "`tile_m=32 split_kv_wait=True`" in attention_page.winners()
        and "9 rejected slower, 3 green" in attention_page.runs()
    )


def test_aims_follow_the_shape():
    assert (
        aim(row(ratio=0.81)) == "0.8: missed"
        and aim(row("small_causal_bf16", mask="causal_top_left")) == "0.8: met"
    )
    fast = row("d128_4096_bf16", dim=128, us=2 * 8 * 4 * 256 * 256 * 128 / 351e6)
    assert tflops(fast) == pytest.approx(351) and aim(fast) == "350 TFLOP/s: met"
    assert tflops(row(mask="causal_top_left")) == pytest.approx(tflops(row()) * 257 / 512)


def test_a_winner_comes_with_a_command_that_runs_it_and_the_latest_counts():
    old, new = row(us=5.0), row()
    assert [winner["time_median_us"] for winner in winners([old, new, row("small_bf16")])] == [
        4.0,
        4.0,
    ]
    assert [winner["workload"] for winner in winners([row("small_bf16"), row()])] == [
        workload for workload in WORKLOADS if workload in ("small_bf16", "mission_bf16")
    ]
    assert command(new) == (
        "greenfast trial attention --target cuda:0 --workload mission_bf16 --template mma "
        "--set tile_m=32 --set split_kv_wait=True"
    )
