"""Which rejections an imported ledger can claim: every one that the gates make, and no other."""

from __future__ import annotations

import pytest

from greenfast.app.views.ledger_reasons import REASONS, rejection_problem
from greenfast.search.diagnose.album import entries
from greenfast.search.verdict import Reason, Stage


def test_every_rejection_of_the_album_is_possible():
    rejections = {
        (Stage(entry.stage), Reason(reason))
        for entry in entries()
        if entry.stage in set(Stage)
        for reason in entry.reasons
        if reason in set(Reason)  # the album also has a word of its own
    }
    assert len(rejections) > 15
    for stage, reason in rejections:
        assert rejection_problem(stage, reason, has_time=False, has_registers=False) is None


@pytest.mark.parametrize("stage", Stage)
def test_each_reason_belongs_to_some_stage_and_none_to_all(stage):
    assert REASONS[stage] and REASONS[stage] < set(Reason)
    assert set().union(*REASONS.values()) == set(Reason)


def test_figures_come_with_the_stages_that_give_them():
    built, compiled = (Stage.PTXAS, Reason.SPILLS), (Stage.COMPILE, Reason.COMPILE_ERROR)
    assert rejection_problem(*built, has_time=False, has_registers=True) is None
    assert "has no time" in (rejection_problem(*built, has_time=True, has_registers=True) or "")
    assert "has no registers" in (
        rejection_problem(*compiled, has_time=False, has_registers=True) or ""
    )
    # Fresh processes may prove a timed candidate wrong.
    late = (Stage.CORRECTNESS, Reason.WRONG_VALUES)
    assert rejection_problem(*late, has_time=True, has_registers=True) is None
