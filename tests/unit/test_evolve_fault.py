"""A run of evolve whose judging faulted names the fault."""

from __future__ import annotations

import pytest

from greenfast.app.cli.evolve_loop import Evolution, Order
from greenfast.search.errors import Fault
from greenfast.search.loop.submitted import Submission

DIED = "the worker died 3 times with this candidate in flight; it is not tried again"


@pytest.mark.parametrize(
    ("verdict", "shown"), [("faulted", DIED), (None, "5 faults in a row")], ids=["fault", "failed"]
)
def test_a_fault_is_told_by_its_own_sentence(verdict, shown):
    report = {"id": "s_1", "verdict": verdict, "sentence": None, "why": "the budget is spent"}
    report |= {"sentence": shown} if verdict else {"why": shown}
    order = Order("axpy", "first", 5, "line", "emulator:h200", 1)
    run = Evolution(None, order, None, lambda request, name: report, lambda: False)
    with pytest.raises(Fault) as fault:
        run._judged(Submission("axpy", "", ""))
    assert str(fault.value).startswith(f"submission s_1 could not be judged: {shown}")
