"""`evolution`: breeds candidates, and lets a model of the times choose which of them to try.

Each template is an island with a population of its best candidates, and elites that are the best of
a kind: of one value of a parameter. A generation is bred in thought only. Parents win tournaments;
a child takes groups of parameters from two parents, or changes a few values of one: ordered ones
mostly to a neighbour, conditional ones together with their condition. Beside the children stand
random valid points, so that no part of the space is closed. The model ranks them all
(`ranker.py`), and the first is tried. It costs milliseconds, where a trial costs a compilation.

An island begins with points far from each other. When it has not improved for long, the next
candidates are drawn where nothing was tried: a restart that keeps what was learned.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from greenfast.search.kernels.expressions import Value
from greenfast.search.kernels.spec import Parameter
from greenfast.search.kernels.workloads import Items
from greenfast.search.space.candidate import (
    Candidate,
    Origin,
    OriginKind,
    complete_parameters,
)
from greenfast.search.strategies.base import Objective, Past, Proposal, Strategy, Told
from greenfast.search.strategies.features import Encoding, is_ordered
from greenfast.search.strategies.ranker import Outcomes, Ranker

FIRST_POINTS = 8  # of an island, far from each other
FAR_FROM = 20  # random points of which the one farthest from all tried is taken
POPULATION = 16
CHILDREN = 192
POOL = 4096  # points that are ranked while outcomes are few; fewer later
MODELLED = 192  # outcomes that the model learns from: the best, the last, and some others
STEPS, FIRST_STEPS = 6, 30  # of fitting
STUCK = 60  # trials of an island without a better one
RESTART = 4  # points far from each other after that
Lengths = tuple[float, ...]
LENGTHS = "lengths"  # of the model, stored with each trial so that a resumed search goes on alike


@dataclass
class Island:
    """What is known of one template."""

    encoding: Encoding
    tried: list[tuple[Candidate, float]] = field(default_factory=list)  # log ratio; NaN: wrong
    pending: dict[Items, None] = field(default_factory=dict)
    lengths: tuple[Lengths, Lengths] = ((), ())  # of the models of times and of correctness
    proposed: int = 0
    improved_at: int = 0  # how many were tried when the best one was found

    @property
    def right(self) -> list[tuple[Candidate, float]]:
        return [each for each in self.tried if not np.isnan(each[1])]

    def is_far_phase(self) -> bool:
        """Whether the next point is one far from the others: at first, and when stuck."""
        if self.proposed < FIRST_POINTS or len(self.right) < 2:
            return True
        stuck = len(self.tried) - self.improved_at
        return stuck >= STUCK and stuck % STUCK < RESTART

    def merit(self, known: Outcomes, pending: np.ndarray, points: np.ndarray) -> np.ndarray:
        """[points]: expected improvement, times the chance of being correct."""
        times, chances = (Ranker(self.encoding.groups, lengths) for lengths in self.lengths)
        merit = times.ranked(known, pending, points, STEPS if self.lengths[0] else FIRST_STEPS)
        if np.isnan(known.logs).any():
            merit = merit * chances.chance(known, points, STEPS if self.lengths[1] else FIRST_STEPS)
            self.lengths = times.hyperparameters, chances.hyperparameters
        else:
            self.lengths = times.hyperparameters, ()
        return merit


class Evolution(Strategy):
    """Islands by template, children by crossover and mutation, ranked before they are tried."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._islands = {
            name: Island(Encoding(space.template.parameters)) for name, space in self.spaces.items()
        }

    def propose(self, template: str, rng: random.Random) -> Proposal:
        island = self._islands[template]
        if not island.encoding.places or island.is_far_phase():
            return Proposal(self._far(template, rng))
        return self._ranked(template, rng)

    def _take(self, proposal: Proposal) -> Proposal:
        island = self._islands[proposal.candidate.template]
        island.proposed += 1
        island.pending[proposal.candidate.parameters] = None
        return super()._take(proposal)

    def learn(self, proposal: Proposal, told: Told) -> None:
        island = self._islands[proposal.candidate.template]
        island.pending.pop(proposal.candidate.parameters, None)
        log_ratio = told.log_ratio if isinstance(told, Objective) else float("nan")
        best = min((known for _, known in island.right), default=float("inf"))
        island.tried.append((proposal.candidate, log_ratio))
        if log_ratio < best:
            island.improved_at = len(island.tried)

    def restore(self, past: Sequence[Past]) -> None:
        super().restore(past)
        for trial in past:
            island = self._islands.get(trial.candidate.template)
            if island is not None:
                island.proposed += 1
                if LENGTHS in trial.sampler:
                    times, chances = trial.sampler[LENGTHS]
                    island.lengths = tuple(times), tuple(chances)

    def _codes(self, template: str, points: Sequence[Items]) -> np.ndarray:
        """Positions of values [points, parameters]."""
        parameters = self.spaces[template].template.parameters
        places = [
            {(type(value), value): code for code, value in enumerate(parameter.values)}
            for parameter in parameters
        ]
        rows = [
            [
                known.get((type(value), value), 0)
                for known, (_, value) in zip(places, point, strict=True)
            ]
            for point in points
        ]
        return np.array(rows, np.intp).reshape(len(points), len(parameters))

    def _far(self, template: str, rng: random.Random) -> Candidate:
        """The one of a few random points that is farthest from all that were tried."""
        island, untried = self._islands[template], self.untried[template]
        tried = [candidate.parameters for candidate, _ in island.tried]
        tried += island.pending
        points = list(dict.fromkeys(untried.drawn(rng) for _ in range(FAR_FROM)))
        place = 0
        if tried and island.encoding.places:
            here = island.encoding(self._codes(template, points))
            there = island.encoding(self._codes(template, tried[-MODELLED:]))
            distances = ((here[:, None, :] - there[None]) ** 2).sum(-1).min(1)
            place = int(np.argmax(distances))
        return Candidate(self.kernel, template, points[place], Origin(OriginKind.SAMPLED))

    def _ranked(self, template: str, rng: random.Random) -> Proposal:
        """The child or random point that the model ranks first."""
        island, space = self._islands[template], self.spaces[template]
        children = self._children(template, rng)
        pool = self.untried[template].pool(rng, pool_size(len(island.tried)))
        bred = self._codes(template, list(children))
        points = np.vstack([bred, pool.astype(np.intp)])
        known = modelled(island.tried, rng)
        merit = island.merit(
            Outcomes(
                island.encoding(self._codes(template, [each.parameters for each, _ in known])),
                np.array([log_ratio for _, log_ratio in known]),
            ),
            island.encoding(self._codes(template, list(island.pending))),
            island.encoding(points),
        )
        place = int(
            np.argmax(merit)
        )  # children come first, so that equal points keep their parents
        if place < len(children):
            parameters, couple = list(children.items())[place]
            kind = OriginKind.MUTATED if len(couple) == 1 else OriginKind.CROSSED
            origin = Origin(kind, tuple(parent.digest for parent in couple))
        else:
            parameters = tuple(
                (parameter.name, parameter.values[code])
                for parameter, code in zip(
                    space.template.parameters, points[place].tolist(), strict=True
                )
            )
            origin = Origin(OriginKind.SAMPLED)
        candidate = Candidate(self.kernel, template, parameters, origin)
        return Proposal(candidate, {LENGTHS: [list(each) for each in island.lengths]})

    def _children(self, template: str, rng: random.Random) -> dict[Items, tuple[Candidate, ...]]:
        """New valid children of the population, each with its parents."""
        island, space = self._islands[template], self.spaces[template]
        parents = population(island.right)
        children: dict[Items, tuple[Candidate, ...]] = {}
        for _ in range(CHILDREN):
            mother = tournament(parents, rng)
            father = tournament(parents, rng) if rng.random() < 0.5 else mother
            values = dict(mother.parameters)
            if father is not mother:
                for name, value in father.parameters:
                    if rng.random() < 0.5:
                        values[name] = value
            if father is mother or rng.random() < 0.3:
                mutate(values, space.template.parameters, rng)
            child = complete_parameters(space.template, values, space.compiled)
            if child not in children and self.is_unseen(template, child):
                children[child] = (mother,) if father is mother else (mother, father)
        return children


def population(right: Sequence[tuple[Candidate, float]]) -> list[Candidate]:
    """The best, and the best of each value of a parameter: fastest first."""
    ranked = sorted(right, key=lambda each: each[1])
    chosen = {candidate.parameters: candidate for candidate, _ in ranked[:POPULATION]}
    kinds: set[tuple[str, Value]] = set()
    for candidate, _ in ranked:
        fresh = [item for item in candidate.parameters if item not in kinds]
        if fresh and len(chosen) < 2 * POPULATION:
            chosen.setdefault(candidate.parameters, candidate)
        kinds.update(fresh)
    return list(chosen.values())


def tournament(ranked: Sequence[Candidate], rng: random.Random) -> Candidate:
    """The better of two random ones."""
    return ranked[min(rng.randrange(len(ranked)), rng.randrange(len(ranked)))]


def mutate(values: dict[str, Value], parameters: Sequence[Parameter], rng: random.Random) -> None:
    """Change one to three values: of ordered ones mostly to a neighbour."""
    varied = [parameter for parameter in parameters if len(parameter.values) > 1]
    for parameter in rng.sample(varied, min(len(varied), rng.choice((1, 1, 1, 2, 2, 3)))):
        place = parameter.values.index(values[parameter.name])
        if is_ordered(parameter) and rng.random() < 0.7:
            near = [at for at in (place - 1, place + 1) if 0 <= at < len(parameter.values)]
        else:
            near = [at for at in range(len(parameter.values)) if at != place]
        values[parameter.name] = parameter.values[rng.choice(near)]


def modelled(
    tried: Sequence[tuple[Candidate, float]], rng: random.Random
) -> Sequence[tuple[Candidate, float]]:
    """The outcomes that the model learns from: all, or the best, the last, and random others."""
    if len(tried) <= MODELLED:
        return tried
    best = sorted(range(len(tried)), key=lambda at: (np.isnan(tried[at][1]), tried[at][1]))
    kept = {*best[: MODELLED // 2], *range(len(tried) - MODELLED // 4, len(tried))}
    others = [at for at in range(len(tried)) if at not in kept]
    kept.update(rng.sample(others, MODELLED - len(kept)))
    return [tried[at] for at in sorted(kept)]


def pool_size(tried: int) -> int:
    """How many random points are ranked: all of a small space while outcomes are few."""
    return POOL if tried <= MODELLED else POOL // 4
