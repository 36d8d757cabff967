"""Which kernel serves which cell of the grids, judged by measured times (grid_times).

A cell's kernel must win by a margin on the cell's point, on the neighbouring points and on the
drawn shapes inside the cell, because the shapes in between were not measured. If every kernel loses
towards one side, a kernel that loses only there may serve the cell up to its point: twice as many
heads can need another number of waves.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, exp, log
from pathlib import Path

from bench.gpu.estimated_times import ESTIMATED, drawn_in_cells, grid_rows
from bench.gpu.grid_shapes import (
    ALIGNED,
    FAMILIES,
    SELDOM_WIDTHS,
    Cell,
    Place,
    Side,
    cells,
    key,
    place_of,
    sides,
)
from bench.gpu.grid_times import FALLBACK
from bench.gpu.lost_calls import NEVER_ABOVE
from bench.gpu.measured_gpu import DEFAULT
from bench.gpu.runtime_pool import own_times
from bench.gpu.runtime_shapes import Shape
from bench.gpu.waves import Waves
from bench.results import RESULTS, Row

WON = 0.93  # of the library's time, at most
WON_SELDOM = 0.88  # the same for heads that few models have, whose grids are coarser
MOST_CUTS = 1  # sides of a cell
GIVEN_UP = 1.04  # for fewer kernels, of the score and of the time on the point itself
GIVEN_UP_SELDOM = 1.08  # the same for heads that few models have
# A point whose keys are no multiple of ALIGNED says little about those in its cell that are, unless
# the kernel wins by far, or on such multiples with fewer and with more heads.
WON_BY_FAR = 0.7
WON_UNTIMED = 0.6  # of the library's time, where a point beside has no time of the kernel
# A block that stays walks row tiles of one batch: with more batches than this, some multiprocessors
# have a block more than others, and B * H, the grids' axis, does not tell.
MOST_BATCHES = 32
STILL_WON = 0.95  # of the library's time, where a shape has more waves than the point
NO_WAVES: Mapping[str, Waves] = {}
AXES = ("B * H", "S_q", "S_kv")
Ratios = dict[str, float]  # by label: our time over the library's
Sides = frozenset[Side]


@dataclass(frozen=True)
class Judged:
    """A cell of the grids, with what was measured on its point and around it."""

    cell: Cell
    row: Row
    is_own: bool  # the row is of this type, not the other type's in its place
    ratios: Ratios
    scores: Ratios  # of the labels that may serve it
    lost: Mapping[str, Sides] = field(default_factory=dict)  # where such a label's cell is cut
    # Of labels timed with fewer and with more heads, on multiples of ALIGNED: the larger ratio.
    aligned_beside: Ratios = field(default_factory=dict)
    # For the cells beside it: the ratios, and estimated ones of other labels.
    evidence: Ratios = field(default_factory=dict)

    @property
    def good(self) -> list[str]:
        """Labels with a score close to the best, and the fastest of those on the point itself."""
        given_up = GIVEN_UP_SELDOM if self.cell.width in SELDOM_WIDTHS else GIVEN_UP
        best = min(self.scores.values(), default=1.0)
        close = [name for name, score in self.scores.items() if score <= given_up * best]
        fastest = min((self.ratios[name] for name in close), default=1.0)
        return [name for name in close if self.ratios[name] <= given_up * fastest]


def judged(dtype: str, folder: Path = RESULTS, gpu: str = DEFAULT) -> list[Judged]:
    """All cells with a measured point, by the results in a folder."""
    rows = grid_rows(dtype, folder, gpu)
    inside = drawn_in_cells(dtype, folder, gpu)
    others = grid_rows("bf16", folder, gpu) if dtype != "bf16" else ()
    return judged_rows(rows, inside, others)


def judged_rows(
    rows: Sequence[Row], inside: Sequence[Row] = (), others: Sequence[Row] = ()
) -> list[Judged]:
    """`inside`: shapes drawn in cells. `others`: of another type, where `rows` has nothing."""
    by_place = {key(cell): cell for cell in cells()}
    known = {place: row for row in others if (place := place_of(row)) in by_place}
    ratios = {place: ratios_of(row) for place, row in known.items()}
    evidence = {place: estimated_ratios(row) for place, row in known.items()}
    own = {place: row for row in rows if (place := place_of(row)) in by_place}
    for place, row in own.items():
        known[place] = row
        ratios[place] = {**ratios.get(place, {}), **ratios_of(row)}
        evidence[place] = {**evidence.get(place, {}), **estimated_ratios(row)}
    evidence = {place: {**evidence[place], **ratios[place]} for place in known}
    drawn: dict[Place, list[Ratios]] = defaultdict(list)
    for row in inside:
        drawn[place_of(row)].append(ratios_of(row))
    found = []
    for place, row in known.items():
        won = scores(place, ratios[place], evidence, drawn[place])
        lost = {name: lost_sides(name, place, evidence) for name in won}
        aligned = aligned_beside(place, evidence, known)
        measured = ratios[place], won, lost, aligned, evidence[place]
        found.append(Judged(by_place[place], row, place in own, *measured))
    return found


def aligned_beside(
    place: Place, ratios: Mapping[Place, Ratios], known: Mapping[Place, Row]
) -> Ratios:
    """By label timed on both points with other numbers of heads: the larger of its ratios there.

    Empty unless both points are measured and have multiples of ALIGNED keys.
    """
    both = [other for (axis, _), other in sides(place) if axis == 0 and other in known]
    if len(both) < 2 or any(known[other]["dims"]["S_kv"] % ALIGNED for other in both):
        return {}
    fewer, more = (ratios[other] for other in both)
    return {name: max(fewer[name], more[name]) for name in fewer.keys() & more.keys()}


def ratios_of(row: Row) -> Ratios:
    return {name: us / row["times"][FALLBACK] for name, us in own_times(row).items()}


def estimated_ratios(row: Row) -> Ratios:
    return {name: us / row["times"][FALLBACK] for name, us in row.get(ESTIMATED, {}).items()}


def scores(
    place: Place, own: Ratios, evidence: Mapping[Place, Ratios], drawn: Sequence[Ratios]
) -> Ratios:
    """Of the labels that win on the point, those that lose on the fewest sides; none on two."""
    won = WON_SELDOM if place[1] in SELDOM_WIDTHS else WON
    sides_of = {
        name: lost_sides(name, place, evidence)
        for name, ratio in own.items()
        if ratio <= won and all(item.get(name, NEVER_ABOVE) <= NEVER_ABOVE for item in drawn)
    }
    least = min([MOST_CUTS, *map(len, sides_of.values())])
    return {
        name: score(own[name], near_ratios(name, place, evidence, lost))
        for name, lost in sides_of.items()
        if len(lost) == least
    }


def lost_sides(name: str, place: Place, ratios: Mapping[Place, Ratios]) -> Sides:
    """The sides on which a label loses. A time that is missing there counts as lost, too, unless
    the label wins by so much that no neighbour is likely to turn it."""
    untimed = NEVER_ABOVE if ratios[place][name] <= WON_UNTIMED else 1.0
    return frozenset(
        side
        for side, other in sides(place)
        if other in ratios and ratios[other].get(name, untimed) > NEVER_ABOVE
    )


def near_ratios(
    name: str, place: Place, ratios: Mapping[Place, Ratios], without: Sides
) -> list[float]:
    """On the sides that are measured; a missing time counts as 1."""
    return [
        ratios[other].get(name, 1.0)
        for side, other in sides(place)
        if other in ratios and side not in without
    ]


def score(own: float, near: Sequence[float]) -> float:
    """The geometric mean with the points beside; the point itself counts twice."""
    return exp((2 * log(own) + sum(map(log, near))) / (2 + len(near)))


def uses(group: Sequence[Judged]) -> dict[Place, str]:
    """A label for each cell that a kernel serves: as few labels as serve all nearly as well."""
    left = [item for item in group if item.scores]
    label_of: dict[Place, str] = {}
    while left:
        served: dict[str, list[Judged]] = defaultdict(list)
        for item in left:
            for name in item.good:
                served[name].append(item)
        label = max(sorted(served), key=lambda name: len(served[name]))
        label_of |= {key(item.cell): label for item in served[label]}
        left = [item for item in left if key(item.cell) not in label_of]
    return label_of


def rules_of(
    group: Sequence[Judged],
    ids: Mapping[str, str],
    staying: frozenset[str] = frozenset(),
    waves: Mapping[str, Waves] = NO_WAVES,
) -> list[Row]:
    """Rules in the order of the grids; neighbours along the last axis are joined.

    `staying`: labels of kernels whose blocks stay, which serve few batches. `waves` by id: a cell
    is left out as far as more waves than the point's would cost its gain.
    """
    served = uses(group)
    rules: list[Row] = []
    last: Place | None = None
    for item in sorted(group, key=lambda item: key(item.cell)):
        place = key(item.cell)
        if place not in served:
            continue
        use, when = ids[served[place]], conditions(item, served[place])
        if served[place] in staying:
            when.append({"value": "B", "above": 0, "at_most": MOST_BATCHES})
        if use in waves:
            ratio = item.ratios[served[place]] / STILL_WON
            if limit := waves[use].limit(item.row["dims"], farthest(item), ratio):
                when.append(limit)
        if rules and rules[-1]["use"] == use and last == before(place) and joins(rules[-1], when):
            for joined, part in zip(rules[-1]["when"], when, strict=True):
                joined["at_most"] = max(joined["at_most"], part["at_most"])
        else:
            rules.append({"when": when, "use": use})
        last = place
    return rules


def farthest(item: Judged) -> Row:
    """The largest dims of a cell, with the heads of its point."""
    dims = dict(item.row["dims"])
    for part in item.cell.when:
        if part["value"] in ("S_q", "S_kv"):
            dims[part["value"]] = part["at_most"]
        elif part["value"] == AXES[0]:
            dims["B"] = ceil(part["at_most"] / dims["H"])
    return dims


def joins(rule: Row, when: Sequence[Row]) -> bool:
    """Whether the conditions are on the same values, and go on where the rule's end."""
    if [part["value"] for part in rule["when"]] != [part["value"] for part in when]:
        return False
    return all(
        part["above"] == last["at_most"]
        or (part["above"], part["at_most"]) == (last["above"], last["at_most"])
        for last, part in zip(rule["when"], when, strict=True)
    )


def conditions(item: Judged, label: str) -> list[Row]:
    when = [dict(part) for part in item.cell.when]
    family = FAMILIES[item.cell.family]
    is_self = not family.queries  # as many rows as keys
    for axis, step in item.lost.get(label, ()):
        for part in when:
            if part["value"] == AXES[axis] or (is_self and axis and part["value"] in AXES[1:]):
                cut(part, item.cell.shape, step)
    (keys,) = (part for part in when if part["value"] == "S_kv")
    aligned = keys["at_most"] // ALIGNED * ALIGNED
    if not family.uneven and aligned > keys["above"] and leaves_out(item, label, aligned):
        when.append({"value": f"S_kv % {ALIGNED}", "above": 0, "at_most": ALIGNED - 1})
    return when


def cut(part: Row, shape: Shape, step: int) -> None:
    """End a condition at the size of the point."""
    size = sizes_of(shape)[part["value"]]
    if step > 0:
        part["at_most"] = min(part["at_most"], size)
    else:
        part["above"] = max(part["above"], size - 1)


def sizes_of(shape: Shape) -> dict[str, int]:
    return {"B * H": shape.B * shape.H, "S_q": shape.S_q, "S_kv": shape.S_kv}


def leaves_out(item: Judged, label: str, keys: int) -> bool:
    """Whether so many keys are too unlike the point's: the library may like them better."""
    if keys % ALIGNED or item.cell.shape.S_kv % ALIGNED == 0:
        return False
    return item.ratios[label] > WON_BY_FAR and item.aligned_beside.get(label, 1.0) > WON


def before(place: Place) -> Place:
    """The neighbour before on the last axis."""
    family, width, at = place
    return family, width, (*at[:-1], at[-1] - 1)
