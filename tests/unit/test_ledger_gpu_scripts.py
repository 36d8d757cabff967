"""bench.gpu.winner_ablations and bench.gpu.flip_rate on drawn times; ties; the page's tables."""

from __future__ import annotations

import argparse
import json
import math

import pytest
from confirmed_searches import ScatteringGpu, by_threads

from bench.gpu import flip_rate
from bench.gpu.flip_rate import analysed
from bench.gpu.winner_ablations import measured_all, results_of
from bench.pages import attention_ablations
from bench.pages.attention_ablations import ablated_winners, value_lessons
from bench.pages.sections import NOT_YET
from bench.session import Session
from greenfast.db import convert
from greenfast.search.diagnose.ablation import ArmResult, Effect, Measurement, Scale, judged
from greenfast.search.loop.ties import is_tie, pick, tied_with_pick
from greenfast.search.timing import Interval

FAST = {(128, 1): 8.0, (64, 1): 9.0, (256, 1): 8.0, (128, 2): 7.0, (64, 2): 6.9, (256, 2): 8.4}
WINNER = {
    "workload": "line",
    "template": "right",
    "parameters": {"threads": 128, "per_thread": 1},
    "source_digest": "",
}


@pytest.fixture
def session(album, artifacts, toolchain):
    return Session(artifacts, album, toolchain, ScatteringGpu(by_threads(FAST)))


def ablate(session, out, seconds=60.0, retune=2):
    options = argparse.Namespace(out=out, seconds_each=seconds, retune=retune, only=[])
    measured_all(session, options, [WINNER], kernel="axpy")
    return json.loads(out.read_text())["rows"][0]


def test_winners_are_ablated_stored_and_continued(session, tmp_path, monkeypatch):
    out = tmp_path / "ablations.json"
    empty = ablate(session, out, seconds=-1.0)
    assert empty["arms"] == [] and empty["planned"] == 3, "out of time before the first change"
    row = ablate(session, out, retune=0)
    results = results_of(row)
    assert sorted(results) == ["per_thread=2", "threads=256", "threads=64"]
    assert all(len(result.alone.log_ratios) == 40 for result in results.values())
    scale = Scale("measured", 1.0, row["comparisons"])
    effects = {name: judged(result, scale).effect for name, result in results.items()}
    assert effects == {
        "threads=64": Effect.HELPS,
        "threads=256": Effect.NO_EFFECT,
        "per_thread=2": Effect.HURTS,
    }
    before = {name: result.alone for name, result in results.items()}
    again = results_of(ablate(session, out, retune=2))
    assert {name: result.alone for name, result in again.items()} == before, "nothing twice"
    turned = judged(again["threads=64"], scale)
    assert turned.effect is Effect.HURTS, "with two elements a thread, 64 threads are faster"
    assert again["threads=64"].retuned and not again["threads=256"].retuned
    count = len(session.target.measured)
    ablate(session, out, retune=2)
    # the winner, evaluated anew at most; a change that was not tuned further may be tried again
    assert len(session.target.measured) - count <= 12


SEARCH = {
    "workload": "line",
    "baseline": "right:plain",
    "trials": [
        {"template": "right", "parameters": {"threads": threads, "per_thread": each}, "us": us}
        for (threads, each), us in FAST.items()
    ],
}


def test_fresh_processes_pick_and_a_second_run_adds_what_is_missing(session, tmp_path):
    out = tmp_path / "flips.json"

    def run(processes, seconds=60.0):
        options = argparse.Namespace(
            out=out, processes=processes, candidates=4, seconds=seconds, only=[]
        )
        return flip_rate.measured(session, options, [SEARCH], kernel="axpy")

    assert run(6, seconds=-1.0)["each"] == [] and not out.exists()
    run(2)
    first = json.loads(out.read_text())["rows"]
    summary = run(6)
    rows = json.loads(out.read_text())["rows"]
    assert rows[:2] == first and [row["process"] for row in rows] == list(range(6))
    assert all(len(row["intervals"]) == 4 for row in rows)
    (each,) = summary["each"]
    assert sum(each["picks"].values()) == 6 and each["pairs"]["pairs"] == 15
    assert each["pairs"]["unstated_percent"] == 0.0, "6.9 and 7.0 are a tie, and said to be"
    assert summary["all"]["groups_of_three"]["pairs"] == flip_rate.GROUPINGS


def interval(median, half=0.001):
    return Interval(median, median - half, median + half)


def test_a_flip_inside_a_stated_tie_is_no_unstated_flip():
    def row(process, **medians):
        return {
            "workload": "w",
            "process": process,
            "intervals": {name: list(vars(interval(m)).values()) for name, m in medians.items()},
        }

    close = analysed([row(0, a=0.0, b=0.004), row(1, a=0.004, b=0.0)])["all"]["pairs"]
    assert (close["flips"], close["stated"], close["unstated_percent"]) == (1, 1, 0.0)
    far = analysed([row(0, a=0.0, b=0.1), row(1, a=0.1, b=0.0)])["all"]["pairs"]
    assert (far["flips"], far["stated"], far["unstated_percent"]) == (1, 0, 100.0)
    same = analysed([row(0, a=0.0, b=0.1), row(1, a=0.0, b=0.002)])["all"]["pairs"]
    assert same["flips"] == 0
    assert analysed([])["all"]["pairs"]["flip_percent"] is None


def test_ties_are_closer_than_blocks_and_processes_can_tell():
    times = {"b": interval(0.0), "a": interval(0.0), "c": interval(0.02), "d": interval(0.05)}
    assert pick(times) == "a", "equal medians: by name, not by the order of measuring"
    assert tied_with_pick(times) == ("a", "b", "c")
    assert tied_with_pick(times, processes=9) == ("a", "b")
    wide = interval(0.05, half=0.06)
    assert is_tie(times["a"], wide) and not is_tie(times["a"], times["d"])


def arm(parameter, before, after, *ratios):
    """A stored arm: alone, and tuned again where there is a second ratio."""
    alone, *best = (
        Measurement((), "d", "green", ratio=ratio, log_ratios=(math.log(ratio),) * 40, time_us=5.0)
        for ratio in ratios
    )
    result = ArmResult(
        parameter, before, after, "feature", "", alone, tuple(best), best[0] if best else None
    )
    return json.loads(convert.value_json("arm", result))


def test_the_pages_tables_are_judged_from_the_stored_arms(monkeypatch):
    def stored(*workloads):
        arms = [arm("swizzle", "xor", "none", 1.4), arm("pipeline_depth", 2, 3, 0.9, 1.2)]
        return [
            {"workload": name, "template": "mma", "comparisons": 2, "arms": arms}
            for name in workloads
        ]

    monkeypatch.setattr(attention_ablations, "rows", lambda name: stored())
    assert ablated_winners() == value_lessons() == NOT_YET
    both = stored("mission_bf16", "long_bf16")
    monkeypatch.setattr(attention_ablations, "rows", lambda name: both)
    lines = ablated_winners().splitlines()
    assert lines[2].startswith(
        "| mission_bf16 | 2 | 2 | 0 | 0 | 0 | `swizzle=xor` (1.400 with none)"
    )
    assert "`pipeline_depth=2` (1.200 with 3)" in lines[3], "after tuning, not alone"
    depth, swizzle = value_lessons().splitlines()[2:]
    assert depth.startswith("| `mma` | `pipeline_depth=2` | `3` | 2 | 0 | 0 | 0 | 1.200 [")
    assert swizzle.count("1.400") == 2 and "long_bf16" in swizzle
