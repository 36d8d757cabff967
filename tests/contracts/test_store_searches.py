"""What a database behind the store must do with searches: submit, list, steer, and keep them."""

from __future__ import annotations

import itertools

import pytest
import store_values as values
from new_database import POSTGRES
from sqlalchemy.engine import make_url

from greenfast.db.faults import LeaseLost
from greenfast.db.store import Store
from greenfast.search.errors import UsageError
from greenfast.search.loop.sink import Control, Ended


@pytest.mark.skipif(
    not POSTGRES, reason="set GREENFAST_TEST_POSTGRES to a URL to test PostgreSQL too"
)
def test_postgresql_is_tested_too(url):
    assert make_url(POSTGRES).get_backend_name() == "postgresql"


class TestSearches:
    def test_a_submitted_search_is_queued_with_its_whole_plan(self, store):
        plan = values.plan(trials=None, seconds=12.5, name="ünïcode ✓")
        row = store.submit(plan)
        assert (row.status, row.trials_budget, row.seconds_budget, row.seed) == (
            "queued",
            None,
            12.5,
            7,
        )
        assert (
            row.workloads == ("mission",)
            and row.best_time_us is None
            and row.created_at.endswith("Z")
        )
        assert store.plan(row.id) == plan and store.search(row.id) == row

    def test_an_unknown_search_is_refused(self, store):
        store.submit(values.plan())
        ids = ("s_aaaaaaaaaaaa", "", "1 OR 1=1", "s_%", "\udcff", "x" * 10_000)
        calls = (
            store.search,
            store.plan,
            store.trials,
            store.best,
            store.counts,
            store.best_so_far,
            lambda search_id: store.trial(search_id, 0),
            lambda search_id: store.request_control(search_id, "pause"),
            lambda search_id: store.negatives(search_id=search_id),
        )
        for search_id, call in itertools.product(ids, calls):
            with pytest.raises(UsageError) as refused:
                call(search_id)
            assert refused.value.code == "unknown_search"
            assert store.claim("worker", values.LEASE_S, search_id) is None

    def test_pages_are_newest_first_and_keep_their_place_while_searches_arrive(self, store):
        ids = [store.submit(values.plan(name=f"search {number}")).id for number in range(5)]
        first = store.searches(limit=2)
        newer = store.submit(values.plan()).id
        second = store.searches(limit=2, cursor=first.next_cursor)
        third = store.searches(limit=2, cursor=second.next_cursor)
        seen = [row.id for page in (first, second, third) for row in page.items]
        assert seen == ids[::-1] and newer not in seen and third.next_cursor is None

    def test_searches_are_filtered_by_status(self, store):
        queued, paused = store.submit(values.plan()), store.submit(values.plan())
        store.request_control(paused.id, "pause")
        assert [row.id for row in store.searches(status="paused").items] == [paused.id]
        assert [row.id for row in store.searches(status="queued").items] == [queued.id]
        with pytest.raises(UsageError, match=r"known: .*queued"):
            store.searches(status="lost")

    def test_a_foreign_cursor_is_refused(self, store):
        for cursor in (
            "",
            "x",
            "AAAA",
            "é",
            "WyJ0cmlhbHMiLDFd",
            "W251bGw",
            "e30",
            "W1tbW1tb",
            "\udcff",
        ):
            with pytest.raises(UsageError) as refused:
                store.searches(cursor=cursor)
            assert refused.value.code == "bad_cursor"

    def test_a_page_has_a_size(self, store):
        for limit in (0, -1, 501, 2**70):
            with pytest.raises(UsageError) as refused:
                store.searches(limit=limit)
            assert refused.value.code == "bad_limit"


class TestControl:
    @pytest.mark.parametrize("verb, status", [("pause", "paused"), ("cancel", "cancelled")])
    def test_a_queued_search_obeys_at_once(self, store, verb, status):
        search = store.submit(values.plan())
        assert store.request_control(search.id, verb).status == status
        assert store.claim("worker", values.LEASE_S) is None
        assert store.request_control(search.id, verb).status == status, "asking again is no error"

    @pytest.mark.parametrize(
        "verb, control", [("pause", Control.PAUSE), ("cancel", Control.CANCEL)]
    )
    def test_a_running_search_is_told_through_its_lease(self, store, claim, verb, control):
        assert store.renew(claim, values.LEASE_S, 1.5) is Control.RUN
        row = store.request_control(claim.search_id, verb)
        assert (row.status, row.wanted) == ("running", verb)
        assert store.renew(claim, values.LEASE_S, 2.5) is control
        assert store.search(claim.search_id).spent_s == 2.5

    def test_a_search_whose_worker_is_gone_obeys_at_once(self, store, claim):
        values.expire(store, claim)
        assert store.request_control(claim.search_id, "cancel").status == "cancelled"
        with pytest.raises(LeaseLost):
            store.renew(claim, values.LEASE_S, 1.0)

    def test_a_cancelled_search_does_not_wait_for_the_lease_of_a_silent_worker(self, store, claim):
        values.expire(store, claim, silent_s=6.0)
        assert store.request_control(claim.search_id, "pause").status == "running"
        assert store.request_control(claim.search_id, "cancel").status == "cancelled"
        with pytest.raises(LeaseLost):
            store.renew(claim, values.LEASE_S, 1.0)

    def test_another_worker_ends_a_cancelled_search_whose_worker_fell_silent(self, store, claim):
        assert store.request_control(claim.search_id, "cancel").status == "running"
        assert store.claim("other", values.LEASE_S) is None
        values.expire(store, claim, silent_s=6.0)
        other = store.claim("other", values.LEASE_S)
        assert store.renew(other, values.LEASE_S, 0.0) is Control.CANCEL

    def test_a_pause_that_is_taken_back_is_not_obeyed(self, store, claim):
        store.request_control(claim.search_id, "pause")
        assert store.request_control(claim.search_id, "resume").wanted is None
        assert store.renew(claim, values.LEASE_S, 0.0) is Control.RUN
        store.request_control(claim.search_id, "pause")
        store.request_control(claim.search_id, "resume")
        store.finish(claim, Ended.PAUSED, "paused")  # the worker had seen the pause only
        assert store.search(claim.search_id).status == "queued"

    def test_a_cancel_that_comes_while_the_worker_pauses_is_obeyed(self, store, claim):
        store.request_control(claim.search_id, "pause")
        store.request_control(claim.search_id, "cancel")
        store.finish(claim, Ended.PAUSED, "paused")
        assert store.search(claim.search_id).status == "cancelled"

    @pytest.mark.parametrize(
        "ended, refused",
        [
            (Ended.COMPLETED, {"pause", "resume", "cancel"}),
            (Ended.CANCELLED, {"pause", "resume"}),
            (Ended.FAILED, {"pause", "cancel"}),
            (Ended.PAUSED, set()),
        ],
    )
    def test_what_an_ended_search_refuses(self, store, claim, ended, refused):
        for verb in ("pause", "resume", "cancel"):
            search = store.submit(values.plan())
            held = store.claim("worker", values.LEASE_S, search.id)
            store.finish(held, ended, "over")
            if verb in refused:
                with pytest.raises(UsageError) as error:
                    store.request_control(search.id, verb)
                assert error.value.code == "bad_transition"
                assert store.search(search.id).status == ended
            else:
                store.request_control(search.id, verb)

    def test_a_resumed_search_is_claimed_again_with_its_history(self, store, claim):
        done = values.run_trial(store, claim, 0)
        store.renew(claim, values.LEASE_S, 9.0)
        store.finish(claim, Ended.PAUSED, "paused")
        assert store.claim("other", values.LEASE_S) is None
        store.request_control(claim.search_id, "resume")
        history = store.history(store.claim("other", values.LEASE_S))
        assert history.spent_s == 9.0 and [trial.number for trial in history.trials] == [0]
        assert (
            history.trials[0].candidate == done.candidate
            and history.trials[0].sampler == done.sampler
        )


def test_a_store_that_is_opened_again_has_everything(url):
    first = Store.open(url)
    search = first.submit(values.plan())
    trial = values.run_trial(first, first.claim("worker", values.LEASE_S), 0)
    first.close()
    second = Store.open(url)
    assert second.recorded(search.id, 0) == trial and second.search(search.id).trials_done == 1
    second.close()
