"""A search that runs out of time is resumed, gets its row, and makes its winner champion."""

from __future__ import annotations

import argparse
import json
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace

import pytest
from drawn_gpu import DrawnGpu

from bench.gpu.attention_floors import shape_of
from bench.gpu.attention_rows import WORKLOADS, row_of, save_champions
from bench.gpu.attention_searches import pending, unfinished
from greenfast.app.bundle.download import launch_description
from greenfast.app.service.worker import Stop, StoppableSink
from greenfast.db.sink import StoreSink
from greenfast.db.store import Store
from greenfast.search.devices.facts import device
from greenfast.search.loop.comparison import Comparison, Peer, ProcessTimes
from greenfast.search.loop.evaluate import EvaluationContext
from greenfast.search.loop.plan import SearchRequest, make_plan
from greenfast.search.loop.run import SearchRun
from greenfast.search.loop.sink import Ended
from greenfast.search.space.candidate import preset_candidate
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.verdict import TimeKind, Timing


@pytest.fixture
def plan(album, monkeypatch):
    monkeypatch.setattr(
        "greenfast.search.loop.target_space.target_device", lambda target: device("h200")
    )
    request = SearchRequest(
        "axpy",
        name="odd",
        workloads=("odd",),
        templates=("right",),
        target="cuda:0",
        strategy="random",
        trials=6,
        seed=3,
        mode="hot",
    )
    return make_plan(request, album, window=1)


@pytest.fixture
def store(tmp_path):
    with closing(Store.open(f"sqlite:///{tmp_path / 'searches.sqlite3'}")) as opened:
        yield opened


@pytest.fixture
def emulator(artifacts, catalogue):
    return open_target(
        "emulator:h200", TargetSettings(artifacts, catalogue.include_dirs, 1, run_deadline_s=20.0)
    )


def run_on(store, search_id, plan, album, toolchain, stop_after=None, checker=None):
    """A part of a search on drawn times, as a worker runs it."""
    kernel = album.kernel("axpy")
    workload = kernel.workload("odd")
    context = EvaluationContext(
        kernel,
        plan.compiled,
        (workload,),
        DrawnGpu(),
        toolchain,
        album.include_dirs,
        plan.limits,
        plan.seed,
        checker=checker,
    )
    claim, stop = store.claim("test", 30.0, search_id), Stop(10.0)
    store.describe(claim, {"device": "h200", "toolchain": "nvrtc 1"})
    seen = []

    def on_trials(trials):
        seen.extend(trials)
        if stop_after is not None and len(seen) >= stop_after and not stop.requested:
            stop.ask()  # a second time would force

    sink = StoppableSink(StoreSink(store, claim, 30.0), stop)
    result = SearchRun(plan, context, sink, store.history(claim), on_trials).run()
    store.finish(claim, result.ended, result.why, result.closing)
    return result.ended


def test_a_search_that_was_cut_short_is_found_and_resumed(plan, store, album, toolchain):
    first = store.submit(plan).id
    assert run_on(store, first, plan, album, toolchain, stop_after=3) is Ended.PAUSED
    assert unfinished(store, plan) == first
    assert unfinished(store, replace(plan, trials=7)) is None, "another budget is another search"
    store.request_control(first, "resume")
    assert run_on(store, first, plan, album, toolchain) is Ended.COMPLETED
    assert unfinished(store, plan) is None


def test_the_row_names_the_confirmed_winner_its_peers_and_the_champion(
    plan, store, album, toolchain, emulator
):
    search_id = store.submit(plan).id
    run_on(store, search_id, plan, album, toolchain, checker=emulator)
    workload = replace(
        album.kernel("axpy").workload("odd"), options=(("dtype", "fp16"), ("mask", "none"))
    )
    row, confirmation = (
        row_of(store, search_id, workload),
        store.confirmation(search_id).confirmation,
    )
    assert (
        row["confirmed"] == confirmation.confirmed and row["winner"]["trial"] == confirmation.trial
    )
    assert len(row["trials"]) == 6 == sum(row["verdicts"].values())
    assert row["best_peer"] is None and row["peers"] == []
    assert confirmation.confirmed, "the times are drawn so that one is faster"
    (champion,) = store.champions().items
    assert row["champion"] == champion.scope_digest and champion.trial.number == confirmation.trial


def test_the_fastest_peer_is_the_one_to_beat(plan, store, album, toolchain):
    timing = Timing("odd", 10.0, TimeKind.MEASURED, "", samples=(1.0,), baseline_samples=(2.0,))
    search_id = store.submit(plan).id
    run_on(store, search_id, plan, album, toolchain)
    store.request_confirmation(search_id)
    claim = store.claim("test", 30.0, search_id)
    for name, us, ratio in (("slow", 30.0, 0.4), ("quick", 20.0, 0.6)):
        store.record_peer(
            claim,
            Peer(
                name,
                "1",
                "odd",
                "timed",
                "",
                us,
                Comparison(
                    name,
                    None,
                    "faster",
                    ratio,
                    ratio - 0.1,
                    float("inf"),
                    (ProcessTimes(1, (timing,)),),
                ),
            ),
        )
    store.record_peer(claim, Peer("gone", "", "odd", "unavailable", ""))
    workload = replace(
        album.kernel("axpy").workload("odd"), options=(("dtype", "fp16"), ("mask", "none"))
    )
    row = row_of(store, search_id, workload)
    assert (
        row["best_peer"] == "quick"
        and row["ratio_to_best_peer"] == 0.6
        and row["interval"] == [0.5, float("inf")]
    )
    assert {peer["name"]: peer["outcome"] for peer in row["peers"]} == {
        "gone": "unavailable",
        "quick": "timed",
        "slow": "timed",
    }
    (slow,) = [peer for peer in row["peers"] if peer["name"] == "slow"]
    assert slow["interval"] == [pytest.approx(0.3), None], "JSON has no infinity"


def test_champions_are_kept_beside_those_of_other_scopes(
    plan, store, album, toolchain, emulator, tmp_path, monkeypatch
):
    monkeypatch.setattr("bench.gpu.attention_rows.PUBLISHED", tmp_path / "published")
    (tmp_path / "champions.json").write_text(
        json.dumps({"environment": {}, "rows": [{"scope_digest": "another"}]})
    )
    search_id = store.submit(plan).id
    run_on(store, search_id, plan, album, toolchain, checker=emulator)
    workload = replace(
        album.kernel("axpy").workload("odd"), options=(("dtype", "fp16"), ("mask", "none"))
    )
    scope = row_of(store, search_id, workload)["champion"]
    monkeypatch.setattr("bench.gpu.attention_rows.KERNEL", "axpy")
    save_champions(store, {"date": "2026-11-22"}, tmp_path)
    rows = json.loads((tmp_path / "champions.json").read_text())["rows"]
    assert [row["scope_digest"] for row in rows] == ["another", scope]
    assert rows[1]["trial"]["parameters"] and rows[1]["confirmation"]["confirmed"]


def test_what_was_never_searched_goes_before_what_is_of_other_files(monkeypatch, tmp_path):
    done = {
        "mission_bf16": ("old", "scope"),
        "small_bf16": ("now", "scope"),
        "long_bf16": ("now", False),
    }
    rows = [
        {"workload": name, "run": {"kernel_digest": digest}, "champion": champion}
        for name, (digest, champion) in done.items()
    ]
    monkeypatch.setattr(
        "bench.gpu.attention_searches.finished", lambda folder: rows if folder != tmp_path else []
    )
    options = argparse.Namespace(out=tmp_path, only=WORKLOADS, again=False)
    names = pending(options, "now")
    assert (
        names[0] == "mission_512_bf16"
        and names[-2:] == ["mission_bf16", "long_bf16"]
        and "small_bf16" not in names
    )
    assert len(names) == len(WORKLOADS) - 1


@pytest.mark.parametrize(
    ("preset", "blocks", "tile", "splits"),
    [("mma:resident", 128, 32, 1), ("mma:split", 256, 64, 4), ("wmma:stage2", 128, 32, 1)],
)
def test_a_floor_has_the_parallelism_of_its_winner(catalogue, preset, blocks, tile, splits):
    kernel = catalogue.kernel("attention")
    workload = kernel.workload("mission_causal_bf16")
    template, named = kernel.preset(preset)
    shape = shape_of(
        kernel,
        preset_candidate(template, named.name, workload.compile_time(kernel)),
        workload,
        device("h200"),
    )
    assert (shape["blocks"], shape["tile"], shape["splits"], shape["causal"]) == (
        blocks,
        tile,
        splits,
        True,
    )
    assert shape["heads"] * -(-shape["rows"] // tile) * splits == blocks


@pytest.mark.parametrize(
    ("preset", "entries"),
    [
        ("mma:resident", ["attention_mma"]),
        ("mma:two_kernels", ["attention_mma", "attention_mma_combine"]),
    ],
)
def test_a_launch_description_names_the_launches_that_the_point_has(catalogue, preset, entries):
    kernel = catalogue.kernel("attention")
    template, named = kernel.preset(preset)
    compiled = kernel.workload("mission").compile_time(kernel)
    trial = SimpleNamespace(
        template=template.name,
        source_digest="",
        environment={},
        parameters=preset_candidate(template, named.name, compiled).values(),
    )
    search = SimpleNamespace(target="emulator:h200", workloads=("mission",))
    description = launch_description(kernel, search, trial)
    assert [launch["entry"] for launch in description["launches"]] == entries
    assert [launch["entry"] for launch in description["workloads"][0]["launches"]] == entries
