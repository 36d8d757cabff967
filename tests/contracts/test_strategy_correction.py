"""An outcome that was told and is replaced: the strategy goes on as if it had heard the last."""

from __future__ import annotations

import math

import pytest

from greenfast.search.devices.facts import device
from greenfast.search.space.space import Space
from greenfast.search.strategies import STRATEGIES, Infeasible, Objective


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_the_last_word_on_a_candidate_counts(name, album):
    kernel = album.kernel("axpy")
    compiled = kernel.workload("line").compile_time(kernel)
    space = Space(kernel.template("right"), compiled, device("h200"))
    strategy = STRATEGIES[name]("axpy", {"right": space}, [], 5)
    asked = [strategy.ask() for _ in range(3)]
    strategy.tell(asked[0], Objective(-0.1))
    strategy.tell(asked[1], Objective(-2.0))
    strategy.correct(asked[1], Infeasible())
    strategy.tell(asked[2], Objective(0.3))
    assert strategy._best == {"right": -0.1}
    seen = {proposal.candidate.parameters for proposal in asked}
    proposal = strategy.ask()
    assert proposal is not None and proposal.candidate.parameters not in seen
    assert strategy.spaces["right"].why_not(proposal.candidate.parameters) is None
    strategy.correct(asked[0], Infeasible())
    assert strategy._best == {"right": 0.3} and math.isfinite(strategy._best["right"])
