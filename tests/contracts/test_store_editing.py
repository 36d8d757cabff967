"""Removing, extending and selecting: what people do with what is stored."""

from __future__ import annotations

from dataclasses import replace

import pytest
import store_values as values

from greenfast.db.removal import Removal
from greenfast.db.trial_filters import parameter_filters
from greenfast.search.errors import UsageError
from greenfast.search.kernels.frozen import KernelFiles
from greenfast.search.loop.sink import Ended
from greenfast.search.space.candidate import Origin, OriginKind

ENDED = (Ended.COMPLETED, "the budget is spent")


@pytest.fixture
def ended(store, claim) -> str:
    """Four trials; the second is the confirmed winner, compared with trials 0 and 2."""
    store.describe(claim, {"device": "h200"})
    for number in range(4):
        verdict = values.accepted(number, 100.0 - number) if number else None
        values.run_trial(store, claim, number, verdict)
    store.record_confirmation(claim, values.confirmation(1))
    store.record_peer(claim, values.peer())
    store.finish(claim, *ENDED)
    return claim.search_id


def numbers(store, search_id: str, **filters) -> list[int]:
    return [row.number for row in store.trials(search_id, **filters).items]


class TestRemoving:
    def test_a_search_goes_with_everything_that_only_it_has(self, store, ended):
        shared = store.submit(values.plan())
        claim = store.claim("worker", values.LEASE_S, shared.id)
        values.run_trial(store, claim, 0)  # the source of the other search's trial 0
        rehearsed = store.rehearse_removal([(ended, None)])
        assert rehearsed == Removal(searches=1, trials=4, sources=3, confirmations=1, peers=1)
        assert numbers(store, ended) == [0, 1, 2, 3]  # a rehearsal removes nothing
        assert store.remove([(ended, None)]) == rehearsed
        with pytest.raises(UsageError, match="no search"):
            store.search(ended)
        assert store.source(values.source(0).digest).text
        with pytest.raises(UsageError):
            store.source(values.source(1).digest)

    def test_what_a_champion_refers_to_stays(self, store, ended):
        store.promote(ended, 1)
        before = store.champions().items
        removal = store.remove([(ended, None)])
        assert removal.searches == 0 and removal.trials == 1 and removal.confirmations == 0
        assert removal.kept == tuple(f"{ended}/{number}" for number in (0, 1, 2))
        assert numbers(store, ended) == [0, 1, 2] and store.search(ended).trials_done == 3
        assert store.champions().items == before
        assert store.recorded(ended, 1) is not None
        again = store.remove([(ended, None)])
        assert again.trials == again.sources == 0 and again.kept == removal.kept

    def test_kernel_files_go_with_the_last_search_that_has_them(self, store):
        first = store.submit(values.plan(), KernelFiles((("a.toml", "shared"), ("b.toml", "own"))))
        second = store.submit(values.plan(), KernelFiles((("a.toml", "shared"),)))
        assert store.remove([(first.id, None)]).kernel_files == 1
        assert store.frozen_files(second.id).files == (("a.toml", "shared"),)
        assert store.remove([(second.id, None)]).kernel_files == 1

    def test_a_running_search_is_refused_and_nothing_of_the_others_goes(self, store, claim, ended):
        running = store.submit(values.plan())
        store.claim("worker", values.LEASE_S, running.id)
        for name in ((running.id, None), (running.id, 0)):
            with pytest.raises(UsageError) as refused:
                store.remove([(ended, None), name])
            assert refused.value.code == "search_running"
        assert numbers(store, ended) == [0, 1, 2, 3]

    @pytest.mark.parametrize(
        ("number", "code"),
        [(0, "trial_kept"), (1, "trial_kept"), (2, "trial_kept"), (9, "unknown_trial")],
    )
    def test_a_trial_that_others_refer_to_stays(self, store, ended, number, code):
        with pytest.raises(UsageError) as refused:
            store.remove([(ended, 3), (ended, number)])
        assert refused.value.code == code and numbers(store, ended) == [0, 1, 2, 3]

    def test_a_single_trial_of_an_ended_search_goes(self, store, ended, claim):
        assert store.remove([(ended, 3)]) == Removal(trials=1, sources=1)
        assert numbers(store, ended) == [0, 1, 2] and store.search(ended).trials_done == 3
        paused = store.submit(values.plan())
        claim = store.claim("worker", values.LEASE_S, paused.id)
        values.run_trial(store, claim, 0)
        values.run_trial(store, claim, 1)
        store.finish(claim, Ended.PAUSED, "paused")
        with pytest.raises(UsageError) as refused:
            store.remove([(paused.id, 1)])
        assert refused.value.code == "search_not_ended"


class TestExtending:
    def test_a_completed_search_goes_on_from_its_last_trial(self, store, ended):
        row = store.extend(ended, 5)
        assert (row.status, row.trials_budget, row.finished_at) == ("queued", 9, None)
        claim = store.claim("worker", values.LEASE_S, ended)
        history = store.history(claim)
        assert [trial.number for trial in history.trials] == [0, 1, 2, 3]

    def test_the_open_budget_of_a_paused_search_is_kept_and_its_seconds_are_not(self, store):
        row = store.submit(values.plan(seconds=60.0))
        store.request_control(row.id, "pause")
        extended = store.extend(row.id, 2)
        assert (extended.trials_budget, extended.seconds_budget) == (42, None)

    def test_a_removed_trial_makes_room_for_another(self, store, ended):
        store.remove([(ended, 3)])
        assert store.extend(ended, 5).trials_budget == 8

    def test_nonsense_and_searches_that_go_on_are_refused(self, store, ended):
        for more in (0, -1, 10**7):
            with pytest.raises(UsageError) as refused:
                store.extend(ended, more)
            assert refused.value.code == "bad_budget"
        store.extend(ended, 1)
        with pytest.raises(UsageError) as refused:
            store.extend(ended, 1)
        assert refused.value.code == "bad_transition"
        assert f"`greenfast search --resume {ended}` finishes it" in refused.value.mend


class TestSelecting:
    def test_by_values_of_any_type_by_text_and_both(self, store, claim, mixed):
        def of(*where: str, **filters) -> list[int]:
            return numbers(store, mixed, parameters=parameter_filters(where), **filters)

        assert of("tile_m=64") == [3]
        assert of("padding=true") == list(range(1, 16, 2)) and of("padding=TRUE") == of(
            "padding=true"
        )
        assert of("scale=0.5", "softmax=online") == list(range(16))
        assert of("padding=true", "tile_m=16") == [] == of("tile_m=6") == of("m=64")
        assert of(text="SAID no") and not of(text="%") and not of(text="said_no")
        assert set(of(text="compile said")) <= set(of(text="compile"))

    def test_the_values_that_a_sampler_wanted_are_not_the_candidates(self, store, claim):
        trial = values.trial(1)
        origin = Origin(OriginKind.REPAIRED, wanted=(("tile_m", 777),))
        proposal = replace(values.proposal(1), candidate=replace(trial.candidate, origin=origin))
        store.begin(claim, 1, proposal)
        for text, found in (("tile_m=777", []), ("tile_m=32", [1])):
            where = parameter_filters([text])
            assert numbers(store, claim.search_id, parameters=where) == found

    @pytest.mark.parametrize("text", ["tile_m", "=64", "tile_m=", "="])
    def test_half_a_filter_is_refused(self, text):
        with pytest.raises(UsageError) as refused:
            parameter_filters([text])
        assert refused.value.code == "bad_filter"

    def test_ids_are_found_by_their_beginning_newest_first(self, store):
        rows = [store.submit(values.plan(name=f"search {number}")) for number in range(3)]
        assert [name for _, name in store.search_ids()] == ["search 2", "search 1", "search 0"]
        assert store.search_ids(rows[1].id[:8]) == ((rows[1].id, "search 1"),)
        assert store.search_ids("s%") == () == store.search_ids("__")

    def test_times_of_single_workloads(self, store, claim):
        values.run_trial(store, claim, 0, values.green(0, 12.5))
        values.run_trial(store, claim, 1, values.rejected())
        assert store.workload_times(claim.search_id, [0, 1, 7]) == {0: {"mission": 12.5}}
