"""Safety checks of a search: the fastest first, and none that a check in progress may spare."""

from __future__ import annotations

import math
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from greenfast.search.loop.check_order import CheckOrder


@pytest.fixture
def order():
    return CheckOrder()


def begin(order, time_us, accepted_us=math.inf, stop=None):
    return order.turn(time_us, lambda: accepted_us, stop or threading.Event())


def test_a_candidate_slower_than_an_accepted_one_is_spared(order):
    with begin(order, 12.0, accepted_us=10.0) as check:
        assert check.faster_us == 10.0
    with begin(order, 9.0, accepted_us=10.0) as check:
        assert check.faster_us is None


@pytest.mark.parametrize(("passes", "faster_us"), [(True, 10.0), (False, None)])
def test_slower_candidates_wait_for_the_check_of_a_faster_one_and_its_result_decides(
    order, passes, faster_us
):
    entered = []

    def slower(time_us):
        with begin(order, time_us) as check:
            entered.append(time_us)
            return check.faster_us

    with ThreadPoolExecutor(3) as pool:
        with begin(order, 10.0) as check:
            waiting = [pool.submit(slower, time_us) for time_us in (11.0, 12.0, 13.0)]
            with begin(order, 9.5) as faster:  # it need not wait
                assert faster.faster_us is None
            assert not entered
            check.passed = passes
        assert [future.result() for future in waiting] == [faster_us] * 3


def test_a_passed_check_spares_before_its_trial_is_recorded(order):
    with begin(order, 10.0) as check:
        check.passed = True
    with begin(order, 10.5) as check:
        assert check.faster_us == 10.0


def test_a_check_that_raises_lets_the_others_go_on(order):
    with pytest.raises(ZeroDivisionError), begin(order, 10.0):
        raise ZeroDivisionError
    with begin(order, 11.0) as check:
        assert check.faster_us is None


def test_a_stopped_search_waits_for_no_check(order):
    stop = threading.Event()
    stop.set()
    with begin(order, 10.0), begin(order, 11.0, stop=stop) as check:
        assert check.faster_us is None
