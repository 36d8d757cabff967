"""What a database behind the store must do so that one worker at a time holds a search."""

from __future__ import annotations

import threading
import time

import pytest
import store_values as values
from sqlalchemy import text

from greenfast.db.faults import LeaseLost
from greenfast.db.sink import StoreSink
from greenfast.search.errors import UsageError
from greenfast.search.loop.sink import Control, Ended
from greenfast.search.loop.spending import Spent
from greenfast.search.strategies.base import Proposal


class TestClaims:
    def test_the_oldest_queued_search_is_claimed_first_and_once(self, store):
        ids = [store.submit(values.plan()).id for _ in range(3)]
        assert [store.claim("worker", values.LEASE_S).search_id for _ in ids] == ids
        assert store.claim("worker", values.LEASE_S) is None

    def test_one_search_can_be_claimed_by_name(self, store):
        first, second = store.submit(values.plan()), store.submit(values.plan())
        assert store.claim("worker", values.LEASE_S, second.id).search_id == second.id
        assert store.claim("other", values.LEASE_S, second.id) is None
        assert store.search(first.id).status == "queued"

    def test_threads_that_race_claim_each_search_once(self, store):
        ids = {store.submit(values.plan()).id for _ in range(24)}
        claimed: list[str] = []

        def work(name: str) -> None:
            while (claim := store.claim(name, values.LEASE_S)) is not None:
                claimed.append(claim.search_id)

        threads = [threading.Thread(target=work, args=(f"worker {number}",)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(claimed) == sorted(ids)

    def test_a_silent_worker_loses_its_search_and_can_write_nothing_more(self, store, claim):
        values.run_trial(store, claim, 0)
        late = values.trial(1)
        store.begin(claim, 1, Proposal(late.candidate, late.sampler))
        values.expire(store, claim)
        taken = store.claim("second", values.LEASE_S)
        assert taken.search_id == claim.search_id and taken.fence == claim.fence + 1
        for write in (
            lambda: store.begin(claim, 2, values.proposal(2)),
            lambda: store.record(claim, late, values.source(1)),
            lambda: store.renew(claim, values.LEASE_S, 1.0),
            lambda: store.release(claim),
            lambda: store.finish(claim, Ended.COMPLETED, ""),
            lambda: store.history(claim),
            lambda: store.describe(claim, {"device": "x"}),
        ):
            with pytest.raises(LeaseLost) as lost:
                write()
            assert lost.value.code == "lease_lost"
        assert [row.state for row in store.trials(claim.search_id).items] == ["done", "running"]
        with pytest.raises(UsageError):
            store.source(values.source(1).digest)
        store.begin(taken, 1, Proposal(late.candidate, late.sampler))
        store.record(taken, late, values.source(1))
        assert store.search(claim.search_id).trials_done == 2

    def test_a_late_worker_whose_search_nobody_took_goes_on(self, store, claim):
        values.expire(store, claim)
        assert store.renew(claim, values.LEASE_S, 0.0) is Control.RUN
        assert store.claim("second", values.LEASE_S) is None

    def test_a_clock_that_was_set_back_does_not_keep_a_dead_worker_alive(self, store, claim):
        with store._database.writing() as session:
            session.execute(text("UPDATE searches SET renewed_at = renewed_at + 3600"))
        assert store.claim("second", values.LEASE_S) is not None

    def test_deaths_are_counted_and_clean_stops_are_not(self, store, claim):
        store.begin(claim, 0, values.proposal(0))
        store.begin(claim, 0, values.proposal(0))  # the same attempt, asked twice
        for expected in (1, 2, 3):
            values.expire(store, claim)
            claim = store.claim("next", values.LEASE_S)
            (pending,) = store.history(claim).pending
            assert (pending.number, pending.attempts) == (0, expected)
            assert (
                pending.candidate == values.candidate(0)
                and pending.sampler == values.proposal(0).sampler
            )
            store.begin(claim, 0, values.proposal(0))
        store.release(claim)
        claim = store.claim("next", values.LEASE_S)
        assert store.history(claim).pending[0].attempts == 3, "the fourth worker did not die"

    def test_a_released_search_is_queued_or_what_was_asked_meanwhile(self, store):
        for control, status in ((None, "queued"), ("pause", "paused"), ("cancel", "cancelled")):
            search = store.submit(values.plan())
            claim = store.claim("worker", values.LEASE_S, search.id)
            if control:
                store.request_control(search.id, control)
            store.release(claim)
            assert (store.search(search.id).status, store.search(search.id).worker) == (
                status,
                None,
            )

    def test_the_sink_passes_flags_on_and_fails_when_the_lease_is_lost(self, store, claim):
        sink = StoreSink(store, claim, values.LEASE_S)
        assert sink.control(Spent(1.0)) is Control.RUN
        store.request_control(claim.search_id, "pause")
        # Seen soon, however often the loop asks.
        while sink.control(Spent(2.0)) is not Control.PAUSE:
            time.sleep(0.05)
        values.expire(store, claim)
        store.claim("second", values.LEASE_S)
        with pytest.raises(LeaseLost):
            sink.begin([(0, values.proposal(0))])
