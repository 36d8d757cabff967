"""The strategy and the baseline that a search begins with."""

from __future__ import annotations

from greenfast.search.loop.evaluate import EvaluationContext
from greenfast.search.loop.plan import SearchPlan
from greenfast.search.space.candidate import Candidate, preset_candidate
from greenfast.search.strategies import STRATEGIES
from greenfast.search.strategies.base import Options, Strategy


def make_strategy(plan: SearchPlan, context: EvaluationContext) -> Strategy:
    """The plan's strategy over its templates' spaces. Seeds are the best candidates of
    neighbouring scopes, then every preset; a cold search has neither these nor histories."""
    spaces = {
        name: context.target.space(context.kernel.template(name), context.compiled)
        for name in plan.templates
    }
    seeds = [
        preset_candidate(space.template, preset.name, context.compiled)
        for space in spaces.values()
        for preset in space.template.presets
    ]
    seeds = [*(neighbour.candidate for neighbour in plan.neighbours), *seeds]
    histories = tuple(filter(None, (neighbour.history for neighbour in plan.neighbours)))
    if plan.cold:
        seeds, histories = [], ()
    if plan.submitted is not None:
        seeds = [plan.submitted]
    valid = [
        seed
        for seed in seeds
        if seed.template in spaces and spaces[seed.template].why_not(seed.parameters) is None
    ]
    options = Options(len(plan.objectives), plan.population, histories)
    return STRATEGIES[plan.strategy](context.kernel.name, spaces, valid, plan.seed, options)


def baseline_candidate(plan: SearchPlan, context: EvaluationContext) -> Candidate:
    if plan.champion is not None:
        return plan.champion
    template, preset = context.kernel.preset(plan.baseline)
    return preset_candidate(template, preset.name, context.compiled)
