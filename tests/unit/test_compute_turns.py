"""Threads that compute take turns, two at a time; what is large needs none."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from greenfast.search import compute_turns


def test_two_compute_at_once_and_no_more():
    inside, most, lock = 0, 0, threading.Lock()

    def compute(_):
        nonlocal inside, most
        with compute_turns.turn(8):
            with lock:
                inside += 1
                most = max(most, inside)
            time.sleep(0.01)
            with lock:
                inside -= 1

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(compute, range(24)))
    assert most == compute_turns.AT_ONCE == 2 and inside == 0


def test_large_data_needs_no_turn():
    together = threading.Barrier(6, timeout=20.0)

    def compute(_):
        with compute_turns.turn(compute_turns.LARGE_BYTES):
            return together.wait()

    with ThreadPoolExecutor(6) as pool:
        assert sorted(pool.map(compute, range(6))) == list(range(6))


def test_a_turn_is_given_back_by_who_fails():
    for _ in range(5):
        try:
            with compute_turns.turn(8):
                raise ValueError
        except ValueError:
            pass
    with compute_turns.turn(8), compute_turns.turn(8):
        assert not compute_turns._turns.acquire(blocking=False)
