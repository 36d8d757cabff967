"""The ablation after a search: by itself for a confirmed winner, limited, continued by hand."""

from __future__ import annotations

import pytest
from stored_searches import stored_search

from greenfast.app.views.ablation_after import ablate_after
from greenfast.app.views.ablations import run_ablation, stored_ablation
from greenfast.search.errors import Fault
from greenfast.search.loop.sink import Ended

FAST = {(128, 1): 8.0, (64, 1): 6.0, (256, 1): 8.0, (64, 2): 7.0, (32, 1): 9.0}


@pytest.fixture
def finished(tmp_path, album, toolchain, monkeypatch):
    """(services, search id, GPU) of a completed search on drawn times."""
    with stored_search(tmp_path, album, toolchain, monkeypatch, FAST) as search:
        yield search


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
