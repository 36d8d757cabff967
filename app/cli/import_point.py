"""The first point of a space that fulfils all restrictions, without walking the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from greenfast.search.kernels.expressions import Value

MOST_STEPS = 200_000


def first_point(
    values: Mapping[str, Sequence[Value]], restrictions: Sequence[Any]
) -> dict[str, Value] | None:
    """The point of the earliest values that satisfy the restrictions; None if none do.

    A restriction is checked as soon as all its names have values, so that a wrong choice ends a
    whole branch.
    """
    restricted = [name for each in restrictions for name in sorted(each.names)]
    names = list(dict.fromkeys((*restricted, *values)))  # those that depend on each other together
    due: list[list[Any]] = [[] for _ in names]
    for restriction in restrictions:
        due[max((names.index(name) for name in restriction.names), default=0)].append(restriction)
    place = [0] * len(names)
    depth = 0
    for _ in range(MOST_STEPS):
        if depth == len(names):
            point = {name: values[name][place[i]] for i, name in enumerate(names)}
            return {name: point[name] for name in values}
        if depth < 0:
            return None
        if place[depth] == len(values[names[depth]]):
            place[depth] = 0
            depth -= 1
            if depth >= 0:
                place[depth] += 1
            continue
        known = {name: values[name][place[i]] for i, name in enumerate(names[: depth + 1])}
        if all(restriction(known) for restriction in due[depth]):
            depth += 1
        else:
            place[depth] += 1
    return None
