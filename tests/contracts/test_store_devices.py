"""What a database behind the store must do so that one worker at a time has a GPU."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from sqlalchemy import text

from greenfast.db.device_turns import DeviceTurns
from greenfast.db.faults import DeviceLost
from greenfast.db.store import Store
from greenfast.search.errors import Fault

GPU, OTHER_GPU = "GPU-5f3a", "GPU-77c1"
LEASE_S = 30.0
SOME_TURNS = 5
STOPPED = f"""
import sys
from greenfast.db.device_turns import DeviceTurns
from greenfast.db.store import Store
from greenfast.search.errors import Fault
turns = DeviceTurns(Store.open(sys.argv[1]), "one", lease_s=1.0)
try:
    with turns.turn("{GPU}"):
        print("in use", flush=True)
        sys.stdin.readline()
except Fault as fault:
    print(fault.code, flush=True)
"""


@pytest.fixture
def second(url, store):
    """The store as another service sees it."""
    opened = Store.open(url)
    yield opened
    opened.close()


def age(store, seconds: float) -> None:
    with store._database.writing() as session:
        session.execute(
            text("UPDATE device_leases SET renewed_at = renewed_at - :seconds"),
            {"seconds": seconds},
        )


class TestLeases:
    def test_one_worker_has_a_gpu_until_it_gives_it_back(self, store, second):
        lease = store.lease_device(GPU, "one", LEASE_S)
        assert (
            second.lease_device(GPU, "two", LEASE_S) is None and second.device_holder(GPU) == "one"
        )
        assert second.lease_device(OTHER_GPU, "two", LEASE_S) is not None
        store.release_device(lease)
        assert second.device_holder(GPU) is None
        assert second.lease_device(GPU, "two", LEASE_S).fence == lease.fence + 1

    def test_whoever_holds_it_hears_that_another_waits(self, store, second):
        lease = store.lease_device(GPU, "one", LEASE_S)
        assert store.renew_device(lease, LEASE_S) is False
        second.lease_device(GPU, "two", LEASE_S)
        assert store.renew_device(lease, LEASE_S) is True

    def test_a_silent_worker_loses_it_and_hears_so(self, store, second):
        lease = store.lease_device(GPU, "one", LEASE_S)
        age(store, LEASE_S + 1)
        taken = second.lease_device(GPU, "two", LEASE_S)
        with pytest.raises(DeviceLost):
            store.renew_device(lease, LEASE_S)
        store.release_device(lease)  # which is too late to matter
        assert store.device_holder(GPU) == "two" and second.renew_device(taken, LEASE_S) is False

    @pytest.mark.parametrize(
        "seconds, taken",
        [(-3600.0, True), (LEASE_S - 5, False)],
        ids=["clock set back", "still within the lease"],
    )
    def test_expiry_is_by_the_database_s_clock(self, store, seconds, taken):
        store.lease_device(GPU, "one", LEASE_S)
        age(store, seconds)
        assert (store.lease_device(GPU, "two", LEASE_S) is not None) == taken

    def test_of_many_that_ask_at_once_one_has_it(self, store, second):
        leases = []
        threads = [
            threading.Thread(
                target=lambda name=name: leases.append(
                    (store, second)[name % 2].lease_device(GPU, f"worker {name}", LEASE_S)
                )
            )
            for name in range(12)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(leases) == 12 and sum(lease is not None for lease in leases) == 1


class TestTurns:
    def test_workers_take_turns_and_never_overlap(self, store, second):
        using, overlaps, turns, before = [], [], {"one": 0, "two": 0}, set(threading.enumerate())
        lock = threading.Lock()
        end = time.monotonic() + 60.0  # for both to have had some turns, also on a busy machine

        def work(name: str, its_store: Store) -> None:
            mine = DeviceTurns(its_store, name, fresh_s=0.2)
            while min(turns.values()) < SOME_TURNS and time.monotonic() < end:
                with mine.turn(GPU):
                    with lock:
                        overlaps.extend(user for user in using if user != name)
                        using.append(name)
                        turns[name] += 1
                    time.sleep(0.005)
                    with lock:
                        using.remove(name)
            mine.give_back()

        threads = [
            threading.Thread(target=work, args=arguments)
            for arguments in (("one", store), ("two", second))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert overlaps == [] and min(turns.values()) >= SOME_TURNS, turns
        for started in set(threading.enumerate()) - before:
            started.join(10)
            assert not started.is_alive(), "what was started ends with giving back"

    def test_what_is_given_back_is_free_at_once(self, store, second):
        turns = DeviceTurns(store, "one")
        with turns.turn(GPU):
            pass
        assert second.device_holder(GPU) == "one", "kept between two uses"
        turns.give_back()
        assert second.lease_device(GPU, "two", LEASE_S) is not None

    def test_a_use_may_take_longer_than_a_lease(self, store, second):
        with DeviceTurns(store, "one", lease_s=4.0).turn(GPU):
            end = time.monotonic() + 5.0
            while time.monotonic() < end:
                assert second.lease_device(GPU, "two", LEASE_S) is None
                time.sleep(0.1)
                time.sleep(0.05)

    def test_what_another_thread_uses_is_not_lent(self, store, second):
        turns = DeviceTurns(store, "one", fresh_s=0.0)
        with turns.turn(GPU):
            assert second.lease_device(GPU, "two", LEASE_S) is None
            with turns.turn(GPU):  # which hears that another waits
                assert second.device_holder(GPU) == "one"

    def test_a_process_that_was_stopped_past_its_lease_hears_that_its_use_was_disturbed(
        self, url, store
    ):
        process = subprocess.Popen(
            [sys.executable, "-c", STOPPED, url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert process.stdout.readline() == "in use\n"
        process.send_signal(signal.SIGSTOP)
        deadline = time.monotonic() + 30
        while store.lease_device(GPU, "two", LEASE_S) is None:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGCONT)
        out, _ = process.communicate("\n", timeout=30)
        assert out == "gpu_lease_lost\n" and store.device_holder(GPU) == "two"

    def test_a_killed_worker_s_gpu_is_free_after_its_lease(self, url, store):
        process = subprocess.Popen(
            [sys.executable, "-c", STOPPED, url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert process.stdout.readline() == "in use\n"
        process.kill()
        process.communicate()
        with DeviceTurns(store, "two", deadline_s=30).turn(GPU):
            assert store.device_holder(GPU) == "two"

    def test_who_waits_too_long_hears_who_has_it(self, store, second):
        second.lease_device(GPU, "two", LEASE_S)
        with (
            pytest.raises(Fault, match=r"another worker \(two\)") as refused,
            DeviceTurns(store, "one", deadline_s=0.2).turn(GPU),
        ):
            pass
        assert refused.value.code == "gpu_busy"
