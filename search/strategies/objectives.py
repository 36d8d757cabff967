"""Several objectives: their names, and the outcomes that no other beats in every one of them."""

from __future__ import annotations

from collections.abc import Sequence

TIME = "time"
OBJECTIVES = (TIME, "registers", "shared_memory", "error")  # lower is better
Values = tuple[float, ...]  # of one outcome, in the order of the objectives


def dominates(first: Values, second: Values) -> bool:
    """Whether `first` is nowhere worse than `second`, and better somewhere."""
    return first != second and all(a <= b for a, b in zip(first, second, strict=True))


def front_of(outcomes: Sequence[Values]) -> list[int]:
    """Positions of the outcomes that no other dominates, sorted by their values."""
    if not outcomes:
        return []
    import numpy as np  # here: the command line's help needs only the names above

    rows = np.array(outcomes, float)
    front: list[int] = []
    for place in np.lexsort(rows.T[::-1]).tolist():  # a dominating outcome sorts before
        known = rows[front]
        worse = (known <= rows[place]).all(1) & (known < rows[place]).any(1)
        if not worse.any():
            front.append(place)
    return front


class Front:
    """The outcomes that no other dominates, each with a label, as they become known."""

    def __init__(self) -> None:
        self.members: list[tuple[Values, str]] = []

    def add(self, values: Values, label: str) -> bool:
        """Take an outcome; whether it extends the front."""
        if any(other == values or dominates(other, values) for other, _ in self.members):
            return False
        self.members = [member for member in self.members if not dominates(values, member[0])]
        self.members.append((values, label))
        return True
