"""Of cases that repeat each other, a few run by default and the rest with the slow tests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def quick_first(cases: Iterable[Any], quick: int) -> list[Any]:
    """The cases as parameters; all behind the first `quick` are slow. A tuple is several values."""
    parameters = []
    for place, case in enumerate(cases):
        if place < quick or hasattr(case, "marks"):
            parameters.append(case)
        else:
            values = case if type(case) is tuple else (case,)
            parameters.append(pytest.param(*values, marks=pytest.mark.slow))
    return parameters


def quick_every(cases: Iterable[Any], step: int) -> list[Any]:
    """As quick_first, with every `step`-th case quick: for cases whose neighbours are alike."""
    return [
        case if place % step == 0 else pytest.param(case, marks=pytest.mark.slow)
        for place, case in enumerate(cases)
    ]
