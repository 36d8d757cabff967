"""What a search knows of other scopes, and of modelled times: the times that they predict.

A neighbouring scope is the same kernel on another shape, GPU or toolchain. Its outcomes are frozen
with the search. Modelled times come while it runs (loop/modelling.py). A Gaussian process of the
times of each source predicts the time of any point, and the ranker weighs these predictions
(ranker.py).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np

from greenfast.search.kernels.workloads import Items
from greenfast.search.strategies.features import Features
from greenfast.search.strategies.ranker import Array, Basis, Outcomes, Prediction, Ranker

STEPS = 30  # of fitting, which is done once
LEAST = 4  # outcomes of a source: fewer predict nothing
DIGITS = 4  # of the logarithms of times


@dataclass(frozen=True)
class History:
    """Correct points of a template in another scope, and the logarithms of their times."""

    template: str
    points: tuple[Items, ...]
    logs: tuple[float, ...]

    @classmethod
    def of_times(cls, template: str, times: Sequence[tuple[Items, float]]) -> History:
        logs = (round(math.log(time), DIGITS) for _, time in times)
        return cls(template, tuple(point for point, _ in times), tuple(logs))

    def text(self) -> str:
        """As JSON: the values of each parameter, then rows of their places and a logarithm.

        It is a part of the plan, which is read for each row of a list of searches.
        """
        names = [name for name, _ in self.points[0]]
        columns = [
            [(type(value), value) for _, value in column]
            for column in zip(*self.points, strict=True)
        ]
        known = [list(dict.fromkeys(column)) for column in columns]
        places = [
            [values.index(value) for value in column]
            for values, column in zip(known, columns, strict=True)
        ]
        stored = {
            "parameters": [
                [name, [value for _, value in values]]
                for name, values in zip(names, known, strict=True)
            ],
            "rows": [list(row) for row in zip(*places, self.logs, strict=True)],
        }
        return json.dumps(stored, separators=(",", ":"))

    @classmethod
    def read(cls, template: str, text: str) -> History:
        stored = json.loads(text)
        points = tuple(
            tuple(
                (name, values[place])
                for (name, values), place in zip(stored["parameters"], places, strict=True)
            )
            for *places, _ in stored["rows"]
        )
        return cls(template, points, tuple(row[-1] for row in stored["rows"]))


class Prior:
    """The predictions of some sources for one template; each is a model of its own.

    A source is a neighbouring scope, or the emulator's model of this one.
    """

    def __init__(self, features: Features, sources: Sequence[tuple[Array, Array]]) -> None:
        """`sources`: of each, positions of values [points, parameters] and the logs."""
        self._features = features
        self._predictions: list[Prediction] = [
            self._fitted(codes, logs) for codes, logs in sources if len(logs) >= LEAST
        ]
        self._modelled: Prediction | None = None

    def __len__(self) -> int:
        return len(self._all)

    def model(self, codes: Array, logs: Array) -> None:
        """Take the modelled times of points, all that there are so far."""
        if len(logs) >= LEAST:
            self._modelled = self._fitted(codes, logs)

    @property
    def measured(self) -> Prior:
        """The same without modelled times."""
        prior = copy(self)
        prior._modelled = None
        return prior

    def _fitted(self, codes: Array, logs: Array) -> Prediction:
        ranker = Ranker(self._features.groups)
        return ranker.prediction(Outcomes(self._features(codes), logs), STEPS)

    @property
    def _all(self) -> list[Prediction]:
        return [*self._predictions, *([self._modelled] if self._modelled else [])]

    def basis(self, known: Array, pending: Array, points: Array) -> Basis:
        return Basis(*map(self._of, (known, pending, points)))

    def _of(self, points: Array) -> Array:
        """[sources, points]: the logarithm of the time that each predicts."""
        return np.stack([prediction(points) for prediction in self._all])
