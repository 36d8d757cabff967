"""An outcome that was told and is replaced: the strategy goes on as if it had heard the last."""

from __future__ import annotations

import math

import optuna
import pytest
from optuna.trial import TrialState

from greenfast.search.devices.facts import device
from greenfast.search.space.space import Space
from greenfast.search.strategies import STRATEGIES
from greenfast.search.strategies.base import Infeasible, Objective, Past
from greenfast.search.strategies.optuna_study import kept_trials
from greenfast.search.strategies.tpe import Tpe


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


def test_a_study_keeps_the_best_the_last_and_its_order():
    trials = [
        optuna.trial.create_trial(
            value=float(number * 7 % 100),
            params={"x": number},
            distributions={"x": optuna.distributions.IntDistribution(0, 99)},
        )
        for number in range(100)
    ]
    kept = [trial.params["x"] for trial in kept_trials(trials, 40)]
    assert len(kept) == 40 and kept == sorted(set(kept))
    assert set(range(90, 100)) <= set(kept)
    assert {trial.params["x"] for trial in trials if trial.values[0] < 10} <= set(kept)
    assert kept == [trial.params["x"] for trial in kept_trials(trials, 40)]
    assert kept_trials(trials[:30], 40) == trials[:30]


def test_tpe_models_a_part_of_many_outcomes_and_a_resumed_search_the_same(album, monkeypatch):
    kernel = album.kernel("axpy")
    compiled = kernel.workload("line").compile_time(kernel)
    spaces = {"right": Space(kernel.template("right"), compiled, device("h200"))}
    monkeypatch.setattr(Tpe, "kept", 4)
    strategy, past = Tpe("axpy", spaces, [], 5), []
    for place in range(9):
        proposal = strategy.ask()
        told = Objective(math.sin(place))
        strategy.tell(proposal, told)
        past.append(Past(proposal.candidate, proposal.sampler, told))
    resumed = Tpe("axpy", spaces, [], 5)
    resumed.restore(past)
    studies = [each._studies["right"].get_trials(deepcopy=False) for each in (strategy, resumed)]
    known = [
        [trial.params for trial in trials if trial.state is TrialState.COMPLETE]
        for trials in studies
    ]
    assert known[0] == known[1] and len(known[0]) < len(past)
