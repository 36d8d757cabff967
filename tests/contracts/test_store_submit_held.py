"""A search that its submitter holds from the start is never a worker's."""

from __future__ import annotations

import threading

import store_values as values

from greenfast.db.store import Store
from greenfast.search.loop.sink import Ended


def test_a_held_search_is_renewed_and_finished_by_its_submitter_only(store):
    claim = store.submit_held(values.plan(), None, "here", values.LEASE_S)
    assert store.claim("worker", values.LEASE_S) is None
    assert store.claim("worker", values.LEASE_S, claim.search_id) is None
    assert store.search(claim.search_id).status == "running"
    store.finish(claim, Ended.COMPLETED, "")
    assert store.search(claim.search_id).status == "completed"


def test_a_held_search_whose_lease_ends_is_claimed_once_more(store):
    claim = store.submit_held(values.plan(), None, "here", 0.0)
    taken = store.claim("worker", values.LEASE_S)
    assert (taken.search_id, taken.fence) == (claim.search_id, claim.fence + 1)


def test_workers_that_ask_all_the_time_never_take_a_held_search(store, url):
    stop, taken = threading.Event(), []

    def work() -> None:
        worker = Store.open(url)
        while not stop.is_set():
            if (claim := worker.claim("worker", values.LEASE_S)) is not None:
                taken.append(claim)
        worker.close()

    thread = threading.Thread(target=work)
    thread.start()
    held = [store.submit_held(values.plan(), None, "here", values.LEASE_S) for _ in range(20)]
    stop.set()
    thread.join()
    assert taken == []
    assert len({claim.search_id for claim in held}) == 20
