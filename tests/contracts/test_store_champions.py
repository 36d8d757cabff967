"""What a database behind the store must do with confirmations, peers and champions."""

from __future__ import annotations

import dataclasses
import threading

import pytest
import store_values as values

from greenfast.db.faults import LeaseLost
from greenfast.db.sink import StoreSink
from greenfast.search.errors import Fault, GreenfastError, UsageError
from greenfast.search.loop.scope import Scope, scope_of
from greenfast.search.loop.sink import Ended
from greenfast.search.verdict import (
    CorrectnessEvidence,
    Failed,
    Green,
    Passed,
    Reason,
    SafetyEvidence,
    Skipped,
)

ENVIRONMENT = {"device": "h200", "toolchain": "nvrtc 13.0", "driver": "580"}
COMPILED = (("D", 64), ("dtype", "fp16"), ("mask", "none"))


def searched(
    store, *, baseline: int = 0, winner: int = 1, confirmed: bool | None = True, **plan
) -> str:
    """A completed search with a measured winner; trial 0 is the candidate number `baseline`."""
    search = store.submit(values.plan(**{"compiled": COMPILED, "target": "cuda:0", **plan}))
    claim = store.claim("worker", values.LEASE_S, search.id)
    store.describe(claim, ENVIRONMENT)
    for number, candidate in enumerate((baseline, winner)):
        trial = dataclasses.replace(
            values.trial(candidate, values.accepted(candidate, 100.0 - candidate)), number=number
        )
        store.begin(claim, number, values.Proposal(trial.candidate, trial.sampler))
        store.record(claim, trial, values.source(candidate))
    if confirmed is not None:
        store.record_confirmation(claim, values.confirmation(1, confirmed))
    store.finish(claim, Ended.COMPLETED, "the budget is spent")
    return search.id


def scope(**changes) -> Scope:
    return dataclasses.replace(scope_of(values.plan(compiled=COMPILED), ENVIRONMENT), **changes)


class TestConfirmations:
    def test_a_confirmation_is_read_back_without_a_difference_and_with_its_environment(
        self, store, claim
    ):
        store.describe(claim, ENVIRONMENT)
        values.run_trial(store, claim, 1)
        assert store.confirmation(claim.search_id) is None
        StoreSink(store, claim, values.LEASE_S).confirm(values.confirmation(1))
        row = store.confirmation(claim.search_id)
        assert row.confirmation == values.confirmation(1) and row.environment == ENVIRONMENT
        assert row.recorded_at.endswith("Z") and row.environment_digest

    def test_the_newest_counts(self, store, claim):
        values.run_trial(store, claim, 1)
        for confirmed in (True, False):
            store.record_confirmation(claim, values.confirmation(1, confirmed))
        assert not store.confirmation(claim.search_id).confirmation.confirmed

    def test_a_trial_that_is_not_recorded_is_not_confirmed(self, store, claim):
        store.begin(claim, 1, values.proposal(1))
        for number in (1, 2):
            with pytest.raises(Fault) as refused:
                store.record_confirmation(claim, values.confirmation(number))
            assert refused.value.code == "trial_not_recorded"

    def test_a_worker_that_lost_its_search_confirms_nothing(self, store, claim):
        values.run_trial(store, claim, 1)
        values.expire(store, claim)
        store.claim("second", values.LEASE_S)
        for write in (
            lambda: store.record_confirmation(claim, values.confirmation(1)),
            lambda: store.record_peer(claim, values.peer()),
        ):
            with pytest.raises(LeaseLost):
                write()
        assert store.confirmation(claim.search_id) is None and store.peers(claim.search_id) == ()

    def test_peers_are_kept_by_workload_and_name_and_the_last_word_counts(self, store, claim):
        sink = StoreSink(store, claim, values.LEASE_S)
        for peer in (
            values.peer("torch-flash", "unavailable"),
            values.peer("flash-attention-4", "wrong"),
            values.peer("torch-flash"),
        ):
            sink.beside(peer)
        rows = store.peers(claim.search_id)
        assert [row.peer.name for row in rows] == ["flash-attention-4", "torch-flash"]
        assert rows[1].peer == values.peer("torch-flash") and rows[1].recorded_at.endswith("Z")


class TestWhatFreshProcessesSayCounts:
    def test_the_best_of_a_search_is_what_was_confirmed_also_when_another_was_faster_in_the_search(
        self, store
    ):
        others = [searched(store, confirmed=None) for _ in range(2)]
        search = store.submit(values.plan(compiled=COMPILED, target="cuda:0"))
        claim = store.claim("worker", values.LEASE_S, search.id)
        for number in (0, 1, 2):
            values.run_trial(store, claim, number, values.accepted(number, 100.0 - number))
        assert (store.best(search.id).number, store.search(search.id).best_time_us) == (2, 98.0)
        for number, confirmed, best in ((2, True, 2), (1, True, 1), (1, False, 2)):
            store.record_confirmation(claim, values.confirmation(number, confirmed))
            row = store.search(search.id)
            assert (store.best(search.id).number, row.best_time_us, row.time_kind) == (
                best,
                100.0 - best,
                "measured",
            )
        store.record_confirmation(claim, values.confirmation(1))
        assert {row.id: row.best_time_us for row in store.searches().items} == {
            search.id: 99.0,
            **dict.fromkeys(others, 99.0),
        }

    def test_what_was_spared_a_gate_is_judged_later_once_and_by_who_holds_the_search(
        self, store, claim
    ):
        def spared(number):
            gates = values.gates(number, 90.0, measured=True)
            return Green((*gates[:3], Skipped("safety", "not asked for")))

        for number in (1, 2, 3):
            values.run_trial(store, claim, number, spared(number))
        passed = Passed("safety", "nothing found", SafetyEvidence((), (), (), ("races",)))
        race = Failed("safety", "a race", Reason.RACE, SafetyEvidence())
        sink = StoreSink(store, claim, values.LEASE_S)
        wrong = Failed(
            "correctness",
            "wrong on new inputs",
            Reason.WRONG_VALUES,
            CorrectnessEvidence((values.check(9, False),)),
        )
        values.run_trial(store, claim, 4, values.accepted(4, 80.0))
        for number, result in ((1, passed), (2, race), (2, passed), (4, wrong), (4, wrong)):
            sink.settle(number, result)
        assert store.best(claim.search_id).number == 1
        rejected = store.trial(claim.search_id, 4)
        assert (rejected.verdict, rejected.stage, rejected.reason) == (
            "rejected",
            "correctness",
            "wrong_values",
        )
        assert (
            rejected.time_median_us == 80.0
            and store.recorded(claim.search_id, 4).verdict.gates[1] == wrong
        )
        rows = {row.number: row for row in store.trials(claim.search_id).items}
        assert [rows[number].verdict for number in (1, 2, 3)] == ["accepted", "rejected", "green"]
        assert (rows[2].stage, rows[2].reason) == ("safety", "race") and rows[2].sentence.endswith(
            "a race"
        )
        assert store.counts(claim.search_id).by_verdict == {
            "accepted": 1,
            "green": 1,
            "rejected": 2,
        }
        trial = store.recorded(claim.search_id, 1)
        assert trial.verdict.gates[3] == passed and trial.verdict.gates[:3] == spared(1).gates[:3]
        with pytest.raises(Fault) as refused:
            sink.settle(9, passed)
        assert refused.value.code == "trial_not_recorded"
        values.expire(store, claim)
        store.claim("second", values.LEASE_S)
        with pytest.raises(LeaseLost):
            sink.settle(3, passed)


class TestConfirmingAgain:
    def test_a_completed_search_is_queued_with_its_budget_spent_and_its_confirmation_asked_for(
        self, store
    ):
        search = searched(store, confirmed=None, confirm=False)
        row = store.request_confirmation(search)
        assert (row.status, row.why, row.finished_at, row.trials_done) == ("queued", "", None, 2)
        assert store.plan(search) == dataclasses.replace(
            values.plan(), compiled=COMPILED, target="cuda:0", confirm=True
        )
        claim = store.claim("worker", values.LEASE_S)
        assert claim.search_id == search and len(store.history(claim).trials) == 2
        store.record_confirmation(claim, values.confirmation(1))
        store.finish(claim, Ended.COMPLETED, "")
        assert store.confirmation(search).confirmation.confirmed

    def test_what_goes_on_or_was_not_measured_is_refused(self, store, claim):
        for code, finish in (("bad_transition", False), ("not_measured", True)):
            if finish:
                values.run_trial(store, claim, 0)
                store.finish(claim, Ended.COMPLETED, "")
            with pytest.raises(UsageError) as refused:
                store.request_confirmation(claim.search_id)
            assert refused.value.code == code
        assert store.search(claim.search_id).status == "completed"


class TestPromotion:
    def test_a_confirmed_winner_becomes_the_champion_of_its_scope(self, store):
        search = searched(store)
        assert store.champion(scope()) is None
        row = store.promote(search, 1)
        assert row == store.champion(scope()) == store.champions().items[0]
        assert (row.trial.search_id, row.trial.number, row.candidate) == (
            search,
            1,
            values.candidate(1),
        )
        assert (
            row.scope == scope()
            and row.replaced_at is None
            and row.confirmation.confirmation.confirmed
        )

    def test_asking_twice_is_asking_once(self, store):
        search = searched(store)
        assert store.promote(search, 1) == store.promote(search, 1)
        assert len(store.champions(replaced=True).items) == 1

    @pytest.mark.parametrize(
        "changes",
        [
            {"kernel_digest": "1" * 64},
            {"workloads": ("long",)},
            {"values": (("D", 128),)},
            {"device": "l4"},
            {"toolchain": "nvrtc 12.9"},
            {"mode": "cold"},
        ],
        ids=lambda value: next(iter(value)),
    )
    def test_another_scope_has_another_champion(self, store, changes):
        store.promote(searched(store), 1)
        assert store.champion(scope(**changes)) is None

    def test_workloads_have_no_order(self, store):
        store.promote(searched(store, workloads=("mission", "long")), 1)
        assert store.champion(
            scope_of(values.plan(compiled=COMPILED, workloads=("long", "mission")), ENVIRONMENT)
        )

    @pytest.mark.parametrize(
        "confirmed, number, missing",
        [
            (None, 1, "was not timed again"),
            (False, 1, "did not confirm"),
            (True, 0, "was not timed again"),
        ],
    )
    def test_what_is_not_confirmed_is_not_promoted(self, store, confirmed, number, missing):
        search = searched(store, confirmed=confirmed)
        with pytest.raises(UsageError, match=missing) as refused:
            store.promote(search, number)
        assert refused.value.code == "not_confirmed" and store.champions().items == ()

    def test_a_green_trial_is_not_promoted_even_if_somebody_confirmed_it(self, store, claim):
        values.run_trial(store, claim, 1)
        store.record_confirmation(claim, values.confirmation(1))
        with pytest.raises(
            UsageError,
            match="its verdict is green, not accepted: performance and safety could not be judged",
        ):
            store.promote(claim.search_id, 1)

    def test_unknown_searches_and_trials_are_refused(self, store):
        search = searched(store)
        for arguments, code in (
            (("s_aaaaaaaaaaaa", 1), "unknown_search"),
            ((search, 7), "unknown_trial"),
        ):
            with pytest.raises(UsageError) as refused:
                store.promote(*arguments)
            assert refused.value.code == code

    def test_a_champion_is_replaced_by_what_beat_it_and_stays_in_the_history(self, store):
        first = store.promote(searched(store), 1)
        stranger = searched(store, winner=3)
        with pytest.raises(UsageError, match="was not timed against the champion") as refused:
            store.promote(stranger, 1)
        assert refused.value.code == "not_compared"
        better = searched(store, baseline=1, winner=2)
        second = store.promote(better, 1)
        assert store.champion(scope()) == second and store.champions().items == (second,)
        newest, former = store.champions(replaced=True).items
        assert newest == second and former == dataclasses.replace(
            first, replaced_at=former.replaced_at
        )
        assert former.replaced_at >= first.promoted_at
        assert store.promote(stranger, 1, replace=True).trial.search_id == stranger

    def test_of_two_that_promote_at_once_one_is_champion(self, store):
        first, second = searched(store), searched(store, winner=3)
        refused: list[str] = []

        def promote(search: str) -> None:
            try:
                store.promote(search, 1, replace=True)
            except GreenfastError as error:
                refused.append(error.code)

        threads = [threading.Thread(target=promote, args=(trial,)) for trial in (first, second) * 3]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert refused == [] and len(store.champions().items) == 1

    def test_pages_and_filters(self, store):
        rows = [
            store.promote(searched(store, kernel=kernel), 1)
            for kernel in ("attention", "softmax", "scan")
        ]
        first = store.champions(limit=2)
        rest = store.champions(limit=2, cursor=first.next_cursor)
        assert [*first.items, *rest.items] == rows[::-1] and rest.next_cursor is None
        assert store.champions(kernel="softmax").items == (rows[1],)
        with pytest.raises(UsageError):
            store.champions(cursor=first.next_cursor, kernel="softmax")
