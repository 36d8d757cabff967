"""`evolution`: breeds candidates, and lets a model of the times choose which of them to try.

Each template is an island with a population of its best candidates, and elites, which are the best
for each value of a parameter and for each behaviour on the GPU. For each trial a generation of
children is bred (`breeding.py`), and random valid points are added, so that every part of the space
can be reached. The model ranks them all (`ranker.py`), and only the first is tried. Ranking takes
milliseconds, while a trial needs a compilation.

An island begins with points far from each other. When it has not improved for long, the next
candidates are drawn far from all others, and the outcomes so far are kept.

A warm search also learns from the outcomes of other scopes, and a search on a GPU from times that
the emulator models (`prior.py`).

With several objectives, half of the proposals rank by time alone, and the others by a random
weighting of all objectives. Source: Knowles, "ParEGO", 2006.
"""

from __future__ import annotations

import random
from bisect import insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from greenfast.search.kernels.expressions import Value
from greenfast.search.kernels.workloads import Items
from greenfast.search.space.candidate import Candidate, Origin, OriginKind
from greenfast.search.space.space import Space
from greenfast.search.strategies.base import (
    ModelledTime,
    Objective,
    Proposal,
    Strategy,
    Told,
)
from greenfast.search.strategies.breeding import Breeder, Children
from greenfast.search.strategies.features import Features
from greenfast.search.strategies.objectives import Front, Values
from greenfast.search.strategies.prior import History, Prior
from greenfast.search.strategies.ranker import Expected, Outcomes, Ranker

FIRST_POINTS = 8  # of an island, far from each other
FIRST_MODELLED = 4  # the same of an island that knows modelled times
ENOUGH_MODELLED = 16  # of them
TRUSTED = 12  # outcomes, after which half of the proposals ignore modelled times: a model may err
FAR_FROM = 4  # random points of which the one farthest from all tried is taken
POPULATION = 16
ELITES_AMONG = 512  # of the best: far worse candidates are no parents
CHILDREN = 192
POOL = 2048  # random points that are ranked beside the children
DRAWN_POOL = 16  # the same of a space that is not listed: a draw costs as much as many children
MODELLED = 160  # outcomes that the model learns from: the best, the last, and some others
FIRST_STEPS, STEPS, LATER_STEPS = 30, 6, 2  # of fitting: the first time, at first, and later
LATER = 40  # outcomes
FRESH = 4  # outcomes of an island after which a second choice is not used
SELDOM = 8  # outcomes between two fits of the model, once it learns from a part of them
STUCK = 60  # trials of an island without a better one
TIME_ALONE = 0.5  # of the proposals of a search with several objectives
CHEBYSHEV_SUM = 0.05  # weight of the sum, so that a point better in one objective only is preferred
RESTART = 4  # points far from each other after that
PROBED = 64  # points that are looked at first
ROUNDING = 0.9999  # of a merit: bounds and merits are in single precision
UNLIKELY = 1e-3  # the weight of a point that is less likely to be correct than asked for
Lengths = tuple[float, ...]
LENGTHS = "lengths"  # of the model, stored with each trial so that a resumed search goes on alike


@dataclass
class Island:
    """The state of one template."""

    space: Space
    encoding: Features
    breeder: Breeder
    tried: list[Candidate] = field(default_factory=list)
    codes: list[list[int]] = field(default_factory=list)  # of each: positions of values
    logs: list[float] = field(default_factory=list)  # of each: log ratio; NaN: wrong
    behaviours: list[tuple[int, ...]] = field(default_factory=list)  # of each; empty: unknown
    pending: dict[Items, list[int]] = field(default_factory=dict)
    lengths: tuple[Lengths, Lengths] = ((), ())  # of the models of times and of correctness
    proposed: int = 0
    best: float = float("inf")  # log ratio
    front: Front = field(default_factory=Front)  # of several objectives
    others: list[Values] = field(default_factory=list)  # of each: the other objectives
    ranked: list[tuple[float, int]] = field(default_factory=list)  # correct ones, best first
    size: int = POPULATION
    improved_at: int = 0  # how many were tried when the best one was known
    prior: Prior | None = None  # of times in other scopes, and of modelled ones
    modelled: list[tuple[list[int], float]] = field(default_factory=list)  # codes, log time
    spare: tuple[Proposal, int] | None = None  # a second choice, and how many were tried then

    def __post_init__(self) -> None:
        self._places = [
            {(type(value), value): code for code, value in enumerate(parameter.values)}
            for parameter in self.space.template.parameters
        ]

    def believe(self, histories: Sequence[History]) -> None:
        """Take outcomes of other scopes for a prior; points of other values are left out."""
        neighbours = []
        for history in histories:
            rows = [self._within(dict(point)) for point in history.points]
            known = [(row, log) for row, log in zip(rows, history.logs, strict=True) if row]
            codes = np.array([row for row, _ in known], np.intp).reshape(-1, len(self._places))
            neighbours.append((codes, np.array([log for _, log in known])))
        self.prior = Prior(self.encoding, neighbours) if self.encoding.places else None

    def model(self, times: Sequence[ModelledTime]) -> None:
        """Take modelled times for a part of the prior."""
        rows = [self._within(dict(each.parameters)) for each in times]
        self.modelled += [
            (row, each.log_time) for row, each in zip(rows, times, strict=True) if row
        ]
        if self.prior is not None and self.modelled:
            codes = np.array([row for row, _ in self.modelled], np.intp)
            self.prior.model(codes, np.array([log for _, log in self.modelled]))

    def _within(self, values: Mapping[str, Value]) -> list[int] | None:
        """Positions of values, with defaults for missing ones; None if one is unknown."""
        parameters = self.space.template.parameters
        given = [values.get(each.name, each.default) for each in parameters]
        if not all(each.has(value) for each, value in zip(parameters, given, strict=True)):
            return None
        return [known[type(value), value] for known, value in zip(self._places, given, strict=True)]

    def encoded(self, point: Items) -> list[int]:
        """Positions of values; a baseline's value outside of the space counts as the first."""
        return [
            known.get((type(value), value), 0)
            for known, (_, value) in zip(self._places, point, strict=True)
        ]

    def decoded(self, row: Sequence[int]) -> Items:
        return tuple(
            (parameter.name, parameter.values[code])
            for parameter, code in zip(self.space.template.parameters, row, strict=True)
        )

    def features(self, rows: Sequence[Sequence[int]] | np.ndarray) -> np.ndarray:
        codes = np.array(rows, np.intp).reshape(-1, len(self._places))
        return self.encoding(codes)

    def learn(self, candidate: Candidate, told: Told) -> None:
        self.pending.pop(candidate.parameters, None)
        log_ratio = told.log_ratio if isinstance(told, Objective) else float("nan")
        if log_ratio == log_ratio:
            insort(self.ranked, (log_ratio, len(self.tried)))
        self.tried.append(candidate)
        self.codes.append(self.encoded(candidate.parameters))
        self.logs.append(log_ratio)
        self.behaviours.append(told.behaviour if isinstance(told, Objective) else ())
        self.others.append(told.others if isinstance(told, Objective) else ())
        better = log_ratio < self.best
        if isinstance(told, Objective) and told.others:
            better = self.front.add(told.values, "")
        self.best = min(self.best, log_ratio) if log_ratio == log_ratio else self.best
        if better:
            self.improved_at = len(self.tried)

    def unlearn(self, candidate: Candidate) -> None:
        """Forget a candidate that was learnt, and what the island gained by it."""
        places = [
            place
            for place, tried in enumerate(self.tried)
            if tried.parameters == candidate.parameters
        ]
        for place in reversed(places):
            for outcomes in (self.tried, self.codes, self.logs, self.behaviours, self.others):
                del outcomes[place]
        self.front = Front()
        for log_ratio, others in zip(self.logs, self.others, strict=True):
            if others:
                self.front.add((log_ratio, *others), "")
        self.ranked = _ranked(self.logs)
        self.best = self.ranked[0][0] if self.ranked else float("inf")
        self.improved_at = min(self.improved_at, len(self.tried))

    def is_far_phase(self) -> bool:
        """Whether the next point is one far from the others: at first, and when stuck."""
        is_modelled = len(self.modelled) >= ENOUGH_MODELLED
        first = FIRST_MODELLED if is_modelled else FIRST_POINTS
        if self.proposed < first or len(self.ranked) < 2:
            return True
        stuck = len(self.tried) - self.improved_at
        return stuck >= STUCK and stuck % STUCK < RESTART

    def aims(self, rng: random.Random) -> list[float]:
        """The log ratio of each outcome. With several objectives: their weighted Chebyshev distance
        from the best of each, with random weights; half of the time the log ratio alone."""
        if not self.front.members or rng.random() < TIME_ALONE:
            return self.logs
        correct = [place for place, others in enumerate(self.others) if others]
        rows = np.array([(self.logs[place], *self.others[place]) for place in correct])
        low, high = rows.min(0), rows.max(0)
        parts = (rows - low) / np.where(high > low, high - low, 1.0)
        weights = np.array([rng.expovariate(1.0) for _ in range(rows.shape[1])])
        parts = parts * (weights / weights.sum())
        distances = parts.max(1) + CHEBYSHEV_SUM * parts.sum(1)
        aims = [float("nan")] * len(self.logs)
        for place, distance in zip(correct, distances.tolist(), strict=True):
            aims[place] = distance
        return aims

    def first(
        self, points: np.ndarray, rng: random.Random, aims: Sequence[float], count: int
    ) -> list[int]:
        """The places of `count` points of the most merit, each beside those before it.

        Merit is the expected improvement of the aim, times the chance of being correct. Of equal
        ones, the first.
        """
        rows = modelled(len(aims), self._order(aims), rng)
        known = Outcomes(
            self.features([self.codes[row] for row in rows]),
            np.array([aims[row] for row in rows]),
        )
        times, correct = (Ranker(self.encoding.groups, lengths) for lengths in self.lengths)
        steps = STEPS if len(self.logs) < LATER else LATER_STEPS
        if len(self.logs) > MODELLED and len(self.logs) % SELDOM:
            steps = 0
        pending = self.features(list(self.pending.values()))
        prior = self.prior if aims is self.logs else None  # it knows of no other objective
        if prior and self.modelled and len(self.logs) >= TRUSTED and rng.random() < 0.5:
            prior = prior.measured
        expected = times.expected(
            known,
            pending,
            points,
            steps if self.lengths[0] else FIRST_STEPS,
            prior.basis(known.points, pending, points) if prior else None,
        )
        if not np.isnan(known.logs).any():
            self.lengths = times.hyperparameters, ()
            return first_places(expected, count)
        chances = correct.chances(known, steps if self.lengths[1] else FIRST_STEPS)
        self.lengths = times.hyperparameters, correct.hyperparameters
        least = rng.random() * ((len(self.logs) - len(self.ranked)) / len(self.logs))

        def weights(rows: np.ndarray) -> np.ndarray:
            chance = chances(points[rows])
            weights: np.ndarray = chance * preferred(chance, least)
            return weights

        def are_likely(rows: np.ndarray) -> bool:
            return bool(chances(points[rows]).max() >= least)

        return first_places(expected, count, weights, are_likely)

    def origin(self, children: Children, parents: Sequence[int], place: int) -> Origin:
        """Of the point at this place: the children come first, then random points."""
        if place >= len(children.codes):
            return Origin(OriginKind.SAMPLED)
        couple = dict.fromkeys((children.mothers[place], children.fathers[place]))
        digests = tuple(self.tried[parents[parent]].digest for parent in couple)
        return Origin(OriginKind.MUTATED if len(digests) == 1 else OriginKind.CROSSED, digests)

    def population(self, aims: Sequence[float]) -> list[int]:
        """Positions of the best, and of the best of each kind: lowest aim first."""
        ranked = [place for _, place in self._order(aims)[:ELITES_AMONG]]
        rows = np.array([self.codes[place] for place in ranked])
        kinds = first_rows(rows).tolist() if ranked else []
        behaviours: dict[tuple[int, ...], int] = {}
        for row, place in enumerate(ranked):
            behaviours.setdefault(self.behaviours[place], row)
        behaviours.pop((), None)
        elites = sorted(row for row in {*kinds, *behaviours.values()} if row >= self.size)
        members = [*range(min(self.size, len(ranked))), *elites[: self.size]]
        return [ranked[row] for row in members]

    def _order(self, aims: Sequence[float]) -> list[tuple[float, int]]:
        """The correct outcomes, lowest aim first."""
        return self.ranked if aims is self.logs else _ranked(aims)


class Evolution(Strategy):
    """Islands by template, children by crossover and mutation, ranked before they are tried."""

    drawn_pool = DRAWN_POOL
    uses_history = True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._islands = {
            name: Island(
                space,
                Features(space.template.parameters),
                Breeder(space),
                size=self.options.population or POPULATION,
            )
            for name, space in self.spaces.items()
        }
        for name, island in self._islands.items():
            island.believe([each for each in self.options.histories if each.template == name])

    def propose(self, template: str, rng: random.Random) -> Proposal:
        island = self._islands[template]
        if self.in_haste and (spare := self._spare(template)) is not None:
            return spare
        if not island.encoding.places or island.is_far_phase():
            return Proposal(self._far(template, rng))
        return self._ranked(template, rng)

    def started(self, proposal: Proposal) -> None:
        island, point = self._islands[proposal.candidate.template], proposal.candidate.parameters
        island.proposed += 1
        island.pending[point] = island.encoded(point)
        if LENGTHS in proposal.sampler:
            times, chances = proposal.sampler[LENGTHS]
            island.lengths = tuple(times), tuple(chances)

    def learn(self, proposal: Proposal, told: Told) -> None:
        self._islands[proposal.candidate.template].learn(proposal.candidate, told)

    def learn_modelled(self, times: Sequence[ModelledTime]) -> None:
        for name, island in self._islands.items():
            if own := [each for each in times if each.template == name]:
                island.model(own)

    def unlearn(self, proposal: Proposal) -> None:
        self._islands[proposal.candidate.template].unlearn(proposal.candidate)

    def _spare(self, template: str) -> Proposal | None:
        """The second choice of the last ranking, unless much was learned since."""
        island = self._islands[template]
        spare, island.spare = island.spare, None
        if spare is None or len(island.tried) - spare[1] > FRESH:
            return None
        proposal = spare[0]
        return proposal if self.is_unseen(template, proposal.candidate.parameters) else None

    def _far(self, template: str, rng: random.Random) -> Candidate:
        """The one of a few random points that is farthest from all that were tried."""
        island, untried = self._islands[template], self.untried[template]
        tried = [*island.codes[-MODELLED:], *island.pending.values()]
        points = list(dict.fromkeys(untried.drawn(rng) for _ in range(FAR_FROM)))
        place = 0
        if tried and island.encoding.places:
            here = island.features([island.encoded(point) for point in points])
            there = island.features(tried)
            distances = ((here[:, None, :] - there[None]) ** 2).sum(-1).min(1)
            place = int(np.argmax(distances))
        return Candidate(self.kernel, template, points[place], Origin(OriginKind.SAMPLED))

    def _ranked(self, template: str, rng: random.Random) -> Proposal:
        """The child or random point that the model ranks first."""
        island, untried = self._islands[template], self.untried[template]
        aims = island.aims(rng)
        parents = island.population(aims)
        children = self.bred(template, parents, rng)
        pool = untried.pool(rng, POOL, self.drawn_pool)
        rows = np.vstack([children.codes, pool.astype(np.int64)])
        if not len(rows):  # of a huge space that is nearly exhausted
            return Proposal(self._far(template, rng))
        # Children come first: equal points keep their parents.
        count = 2 if self.in_haste and len(rows) > 1 else 1
        places = island.first(island.features(rows), rng, aims, count)
        lengths = {LENGTHS: [list(each) for each in island.lengths]}
        first, *second = [
            Proposal(
                Candidate(
                    self.kernel,
                    template,
                    island.decoded(rows[place].tolist()),
                    island.origin(children, parents, place),
                ),
                lengths,
            )
            for place in places
        ]
        island.spare = (second[0], len(island.tried)) if second else None
        return first

    def bred(self, template: str, parents: list[int], rng: random.Random) -> Children:
        """New valid children of the population."""
        island = self._islands[template]
        codes = np.array([island.codes[parent] for parent in parents], np.int64)
        dice = np.random.default_rng(rng.getrandbits(64))
        children = island.breeder.children(codes, dice, CHILDREN)
        return children.kept(np.flatnonzero(self.untried[template].fresh(children.codes)))


def first_rows(codes: np.ndarray) -> np.ndarray:
    """The first row of each value of each column of [rows, columns]; some may come twice."""
    width = int(codes.max(initial=0)) + 1
    kinds = codes + np.arange(codes.shape[1]) * width  # a number of each value of each column
    first = np.full(codes.shape[1] * width, len(codes))
    np.minimum.at(first, kinds.ravel(), np.repeat(np.arange(len(codes)), codes.shape[1]))
    rows: np.ndarray = first[first < len(codes)]
    return rows


def preferred(chance: np.ndarray, least: float) -> np.ndarray:
    """[points]: a weight that puts points below a least chance last, if any point is above it.

    Where nothing was ever correct, the model of times knows nothing and expects most. Without a
    least chance, a search of a space that fails mostly would go there again and again. It is drawn
    for each proposal, up to the share of wrong outcomes: where few fail, it changes little.
    """
    weight: np.ndarray = np.where(chance >= min(least, chance.max()), 1.0, UNLIKELY)
    return weight


def first_places(
    expected: Expected,
    count: int,
    weights: Callable[[np.ndarray], np.ndarray] | None = None,
    is_known: Callable[[np.ndarray], bool] = lambda rows: True,
) -> list[int]:
    """The places of the largest merits: improvements times `weights`, of at most 1.

    Those after the first are chosen among the most promising alone, each as if the ones before it
    were tried already.
    """

    def merit(rows: np.ndarray) -> np.ndarray:
        merits = expected.improvement(rows)
        return merits if weights is None else merits * weights(rows)

    places = [first_place(expected.most(), merit, is_known)]
    while len(places) < count:
        expected = expected.beside(places[-1])
        most = expected.most()
        most[places] = -np.inf
        rows = promising(most)
        places.append(int(rows[np.argmax(merit(rows))]))
    return places


def promising(most: np.ndarray) -> np.ndarray:
    """The places of the largest bounds, in order of their places."""
    places: np.ndarray = np.sort(np.argsort(-most, kind="stable")[:PROBED])
    return places


def first_place(
    most: np.ndarray,
    merit: Callable[[np.ndarray], np.ndarray],
    is_known: Callable[[np.ndarray], bool] = lambda rows: True,
) -> int:
    """The place of the largest merit, which is costly and at most `most`; the first of equal ones.

    The merits of the most promising points show which others can be better: few of thousands.
    `is_known` tells whether merits among some points alone are those among all.
    """
    rows, probe = np.arange(len(most)), promising(most)
    if len(most) > PROBED and is_known(probe):
        rows = np.flatnonzero(most >= ROUNDING * merit(probe).max())
    return int(rows[np.argmax(merit(rows))])


def _ranked(aims: Sequence[float]) -> list[tuple[float, int]]:
    """(aim, place) of the correct outcomes, lowest aim first."""
    # A NaN differs from itself; np.isnan of one number takes twenty times as long.
    return sorted((aim, place) for place, aim in enumerate(aims) if aim == aim)


def modelled(count: int, ranked: Sequence[tuple[float, int]], rng: random.Random) -> list[int]:
    """The outcomes that the model learns from: all, or the best, the last, and random others."""
    if count <= MODELLED:
        return list(range(count))
    kept = {place for _, place in ranked[: MODELLED // 2]}
    kept.update(range(count - MODELLED // 4, count))
    while len(kept) < MODELLED:
        kept.add(int(rng.random() * count))
    return sorted(kept)
