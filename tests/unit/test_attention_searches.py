"""A search that runs out of time goes on in the next run, and its row says what was found."""

from __future__ import annotations

import argparse
from dataclasses import replace
from types import SimpleNamespace

import pytest

from app.downloads import launch_description
from bench.attention_floors import shape_of
from bench.attention_journal import JournalSink
from bench.attention_searches import WORKLOADS, row_of, wanted
from drawn_gpu import DrawnGpu
from search.candidate import preset_candidate
from search.comparison import Comparison, Peer, ProcessTimes
from search.devices import device
from search.evaluate import Bench
from search.plan import SearchRequest, make_plan
from search.run import Ended, SearchRun
from search.verdict import TimeKind, Timing


@pytest.fixture
def plan(album, monkeypatch):
    monkeypatch.setattr("search.plan.target_device", lambda target: device("h200"))
    request = SearchRequest("axpy", workloads=("odd",), templates=("right",), target="cuda:0", strategy="random", trials=6,
                            seed=3, mode="hot")
    return make_plan(request, album, window=1)


def bench_of(plan, album, toolchain):
    kernel = album.kernel("axpy")
    workload = kernel.workload("odd")
    return Bench(kernel, plan.compiled, (workload,), DrawnGpu(), toolchain, album.include_dirs, plan.limits, plan.seed)


def test_a_search_that_was_cut_short_goes_on_where_it_was(plan, album, toolchain, tmp_path):
    bench, path = bench_of(plan, album, toolchain), tmp_path / "odd.jsonl"
    first = JournalSink(path, plan, lambda: len(first.trials) >= 3)
    assert SearchRun(plan, bench, first, first.history()).run().ended is Ended.PAUSED
    with path.open("a") as file:
        file.write('{"number": 3, "cut')         # the machine went away while it was written
    second = JournalSink(path, plan)
    assert [one.number for one in second.trials] == [0, 1, 2] and not second.confirmations
    assert second.trials == [replace(one, verdict=two.verdict) for one, two in zip(first.trials, second.trials)]
    assert SearchRun(plan, bench, second, second.history()).run().ended is Ended.COMPLETED
    assert [one.number for one in second.trials] == list(range(6)) and second.confirmations
    assert len({one.candidate.digest for one in second.trials}) == 6
    assert [one.number for one in JournalSink(path, plan).trials] == list(range(6)), "the line that was cut is gone"
    assert len(JournalSink(path, replace(plan, trials=3)).trials) == 6, "more or fewer trials are the same search"
    other = JournalSink(path, replace(plan, seed=4))
    assert not other.trials, "the journal of another plan is begun anew"


def test_the_row_names_the_confirmed_winner_and_the_fastest_peer(plan, album, toolchain, tmp_path):
    sink = JournalSink(tmp_path / "odd.jsonl", plan)
    SearchRun(plan, bench_of(plan, album, toolchain), sink, sink.history()).run()
    timing = Timing("odd", 10.0, TimeKind.MEASURED, "", samples=(1.0,), baseline_samples=(2.0,))
    peers = [Peer(name, "1", "odd", "timed", "", us, Comparison(name, None, "faster", ratio, ratio - 0.1, float("inf"),
                                                                  (ProcessTimes(1, (timing,)),)))
             for name, us, ratio in (("slow", 30.0, 0.4), ("quick", 20.0, 0.6))] + [Peer("gone", "", "odd", "unavailable", "")]
    workload = replace(album.kernel("axpy").workload("odd"), options=(("dtype", "fp16"), ("mask", "none")))
    row = row_of(plan, workload, sink.trials, sink.confirmations, peers)
    assert row["best_peer"] == "quick" and row["ratio_to_best_peer"] == 0.6 and row["interval"] == [0.5, float("inf")]
    assert [one["outcome"] for one in row["peers"]] == ["timed", "timed", "unavailable"]
    assert row["peers"][0]["interval"] == [pytest.approx(0.3), None], "JSON has no infinity"
    assert row["confirmed"] == sink.confirmations[-1].confirmed
    assert row["winner"]["trial"] == sink.confirmations[-1].trial and len(row["trials"]) == 6 == sum(row["verdicts"].values())


def test_what_was_never_searched_goes_before_what_is_of_other_files(monkeypatch, tmp_path):
    done = {"mission_bf16": "old", "small_bf16": "now"}
    rows = [{"workload": name, "run": {"kernel_digest": digest}} for name, digest in done.items()]
    monkeypatch.setattr("bench.attention_searches.finished", lambda folder: rows if folder != tmp_path else [])
    chosen = argparse.Namespace(out=tmp_path, only=WORKLOADS, again=False)
    found = wanted(chosen, "now")
    assert found[0] == "mission_512_bf16" and found[-1] == "mission_bf16" and "small_bf16" not in found
    assert len(found) == len(WORKLOADS) - 1


@pytest.mark.parametrize(("preset", "blocks", "tile", "splits"), [("mma:resident", 128, 32, 1), ("mma:split", 256, 64, 4),
                                                                  ("wmma:stage2", 128, 32, 1)])
def test_a_floor_has_the_parallelism_of_its_winner(catalogue, preset, blocks, tile, splits):
    kernel = catalogue.kernel("attention")
    workload = kernel.workload("mission_causal_bf16")
    template, named = kernel.preset(preset)
    shape = shape_of(kernel, preset_candidate(template, named.name, workload.compile_time(kernel)), workload)
    assert (shape["blocks"], shape["tile"], shape["splits"], shape["causal"]) == (blocks, tile, splits, True)
    assert shape["heads"] * -(-shape["rows"] // tile) * splits == blocks


@pytest.mark.parametrize(("preset", "entries"), [("mma:resident", ["attention_mma"]),
                                                 ("mma:two_kernels", ["attention_mma", "attention_mma_combine"])])
def test_a_launch_description_names_the_launches_that_the_point_has(catalogue, preset, entries):
    kernel = catalogue.kernel("attention")
    template, named = kernel.preset(preset)
    compiled = kernel.workload("mission").compile_time(kernel)
    trial = SimpleNamespace(template=template.name, source_digest="",
                            parameters=preset_candidate(template, named.name, compiled).values())
    found = launch_description(kernel, SimpleNamespace(target="emulator:h200", workloads=("mission",)), trial)
    assert [one["entry"] for one in found["launches"]] == entries
    assert [one["entry"] for one in found["workloads"][0]["launches"]] == entries
