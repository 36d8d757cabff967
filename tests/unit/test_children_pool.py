"""A pool of children: never more than its count, replaced after a failure, one request each."""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from greenfast.search.children import ChildDied, Children, Limits
from greenfast.search.errors import Fault

REQUEST = {"text": "a", "values": {}}


@pytest.fixture
def pool():
    opened = Children(2, "greenfast.search.rendering.child", Limits())
    yield opened
    opened.kill()
    opened.close()


def test_many_threads_share_no_more_children_than_the_pool_has(pool):
    with ThreadPoolExecutor(8) as threads:
        replies = list(threads.map(lambda _: pool.call(REQUEST, 60.0), range(24)))
    assert all(reply["lines"] == ["a"] for reply in replies) and 1 <= len(pool.all) <= 2


def test_a_child_that_has_worked_on_a_key_is_taken_for_it_again(pool):
    taken = []
    for key in ("a", "b", "a", "b", "a"):
        with pool.taken(key) as child:
            taken.append(child)
    assert taken[0] is taken[2] is taken[4] and taken[1] is taken[3] and taken[0] is not taken[1]
    with pool.taken("a"), pool.taken("a") as other:  # a busy one is not waited for
        assert other is taken[1]


def test_a_child_that_dies_or_whose_conversation_breaks_off_is_replaced(pool):
    def killed():
        with pool.taken() as child:
            os.kill(child.process.pid, signal.SIGKILL)
            return child.call(REQUEST, 60.0)

    with pytest.raises(ChildDied):
        killed()
    with pytest.raises(KeyError), pool.taken() as broken:
        raise KeyError  # its reply would belong to no request
    assert not pool.all and not broken.alive
    assert pool.call(REQUEST, 60.0)["lines"] == ["a"]
    pool.kill()  # while it is idle
    assert pool.call(REQUEST, 60.0)["lines"] == ["a"] and len(pool.all) == 1


def test_a_thread_that_waits_gets_the_child_that_was_given_back(pool):
    pool.count = 1
    with ThreadPoolExecutor(1) as threads:
        with pool.taken() as child:
            waiting = threads.submit(pool.call, REQUEST, 60.0)
            time.sleep(0.05)
            assert not waiting.done()
        assert waiting.result(60.0)["lines"] == ["a"] and pool.all == (child,)


def test_a_child_that_cannot_start_leaves_its_room(monkeypatch):
    pool, failed = Children(1, "greenfast.search.rendering.child", Limits()), threading.Event()

    def refuse(*_):
        failed.set()
        raise Fault("no process", code="child_start")

    with monkeypatch.context() as patch:
        patch.setattr("greenfast.search.children.Child", refuse)
        with pytest.raises(Fault):
            pool.call(REQUEST, 60.0)
    assert failed.is_set() and pool.call(REQUEST, 60.0)["lines"] == ["a"]
    pool.close()
