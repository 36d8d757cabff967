"""The ablation after a search: by itself for a confirmed winner, limited, continued by hand."""

from __future__ import annotations

from contextlib import closing
from types import SimpleNamespace

import pytest
from confirmed_searches import ScatteringGpu, by_threads

from greenfast.app.service.worker import Stop, StoppableSink
from greenfast.app.views.ablation_after import ablate_after
from greenfast.app.views.ablations import run_ablation, stored_ablation
from greenfast.db.sink import StoreSink
from greenfast.db.store import Store
from greenfast.search.devices.facts import device
from greenfast.search.errors import Fault
from greenfast.search.loop.evaluate import EvaluationContext
from greenfast.search.loop.plan import SearchRequest, make_plan
from greenfast.search.loop.run import Ended, SearchRun

FAST = {(128, 1): 8.0, (64, 1): 6.0, (256, 1): 8.0, (64, 2): 7.0, (32, 1): 9.0}


@pytest.fixture
def finished(tmp_path, album, toolchain, monkeypatch):
    """(services, search id) of a completed search on drawn times."""
    monkeypatch.setattr("greenfast.search.loop.plan.target_device", lambda target: device("h200"))
    request = SearchRequest(
        "axpy",
        workloads=("line",),
        templates=("right",),
        target="cuda:0",
        strategy="exhaustive",
        seed=3,
        mode="hot",
    )
    plan = make_plan(request, album, window=1)
    kernel, gpu = album.kernel("axpy"), ScatteringGpu(by_threads(FAST))

    def context(plan, catalogue):
        return EvaluationContext(
            kernel,
            plan.compiled,
            (kernel.workload("line"),),
            gpu,
            toolchain,
            album.include_dirs,
            plan.limits,
            plan.seed,
        )

    with closing(Store.open(f"sqlite:///{tmp_path / 'searches.sqlite3'}")) as store:
        services = SimpleNamespace(
            store=store,
            settings=SimpleNamespace(ablation_s=60.0),
            catalogue_of=lambda search_id: album,
            context=context,
            environment=lambda context: {"device": "h200", "driver": "1"},
            give_back_gpus=lambda: None,
        )
        search_id = store.submit(plan).id
        claim = store.claim("test", 30.0, search_id)
        store.describe(claim, {"device": "h200", "toolchain": "nvrtc 1"})
        sink = StoppableSink(StoreSink(store, claim, 30.0), Stop(10.0))
        run = SearchRun(plan, context(plan, album), sink, store.history(claim))
        result = run.run()
        assert result.ended is Ended.COMPLETED
        store.finish(claim, result.ended, result.why, result.closing)
        yield services, search_id, gpu


def test_a_confirmed_winner_is_ablated_and_the_command_only_tunes_what_matters(finished):
    services, search_id, gpu = finished
    said = []
    for ended in (Ended.PAUSED, Ended.CANCELLED, Ended.FAILED, None):
        ablate_after(services, search_id, ended, say=said.append)
    ablate_after(services, search_id, Ended.COMPLETED, seconds=0.0, say=said.append)
    assert said == [] and stored_ablation(services.store, search_id) is None
    ablate_after(services, search_id, Ended.COMPLETED, stopped=lambda: True, say=said.append)
    assert said[0] == "no time was left for an ablation" and "measures the rest" in said[1]
    said.clear()
    ablate_after(services, search_id, Ended.COMPLETED, say=said.append)
    stored = stored_ablation(services.store, search_id)
    assert stored.complete and said[0] == stored.summary and "measures the rest" not in said[1]
    by_name = {f"{each.parameter}={each.after}": each for each in stored.findings}
    assert by_name["threads=32"].effect == "helps" and not by_name["threads=32"].retuned
    measured = []
    gpu.on_measure = lambda program: measured.append(program.digest)
    tuned = run_ablation(services, search_id, stored.number, retune=2)
    helps = [each for each in tuned.findings if each.effect == "helps"]
    assert helps and all(each.retuned for each in helps)
    assert {each.alone.ratio for each in tuned.findings} == {
        each.alone.ratio for each in stored.findings
    }, "what was measured is kept"
    assert measured, "the others were tuned again"


def test_a_fault_is_said_and_changes_nothing_of_the_search(finished):
    services, search_id, gpu = finished
    said = []

    def lose(program):
        raise Fault("the measuring child was lost", code="child_lost")

    gpu.on_measure = lose
    ablate_after(services, search_id, Ended.COMPLETED, say=said.append)
    assert said == ["no ablation: the measuring child was lost"]
    assert stored_ablation(services.store, search_id) is None
    assert services.store.confirmation(search_id).confirmation.confirmed
