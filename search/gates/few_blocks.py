"""More cases for grids that the device's multiprocessors bound: the same launches on very few.

Blocks of a persistent grid walk tiles until none is left. A check has fewer tiles than a GPU has
multiprocessors, so each block would walk one tile, and the code between two tiles would never run.
On a device with a few multiprocessors, the blocks of the same source walk many.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from math import prod

from greenfast.search.errors import SpecError
from greenfast.search.gates.base import Subject
from greenfast.search.kernels.expressions import SM_COUNT, Value
from greenfast.search.kernels.spec import KernelSpec, TemplateSpec
from greenfast.search.kernels.workloads import Items
from greenfast.search.oracle.cases import Case
from greenfast.search.oracle.problem import launches
from greenfast.search.space.space import Resolved, Space, resolve

MULTIPROCESSORS = (1, 2, 4, 8)  # the first on which every launch has a block


def few_blocks_cases(
    subject: Subject, cases: Sequence[Case]
) -> tuple[tuple[Case, ...], Resolved] | None:
    """The case whose grid shrinks most, and the point on a device with few multiprocessors.

    If a dim of that grid is 1, no block crosses a border in this dim, for example between two
    batches. There is then a second case: among those without such a dim, the one whose grid shrinks
    most. A further case has the most work for each output, so that blocks go several times around a
    ring in each tile: a phase's parity distinguishes one turn from the next, but not from the turn
    after that.

    None if no grid shrinks, if the text or a workspace depends on the number of multiprocessors
    (another number is then another kernel), or if the point is invalid on so few.
    """
    template, point = subject.template, subject.point
    if not _bounds_grids_only(template, point):
        return None
    for count in MULTIPROCESSORS:
        small = replace(subject.target.device, multiprocessors=count)
        few = resolve(template, point.parameters, subject.compiled, small)
        space = Space(template, subject.compiled, small)
        if not _same_text(point, few) or space.why_not(point.parameters):
            return None
        shrunk = {  # cases with other seeds have the same grids
            case.dims: _shrinks(subject.kernel, template, case, point, few)
            for case in {case.dims: case for case in cases}.values()
        }
        walks = [case for case in cases if shrunk[case.dims] > 1.0]
        if walks:
            chosen = _of_each_border(subject.kernel, walks, shrunk, _grid_names(template, point))
            plural = "s" if count > 1 else ""
            ending = f"_on_{count}_multiprocessor{plural}"
            return tuple(replace(case, name=case.name + ending) for case in chosen), few
    return None


def _of_each_border(
    kernel: KernelSpec, walks: Sequence[Case], shrunk: Mapping[Items, float], grid_names: Set[str]
) -> list[Case]:
    """The case that shrinks most, another where a dim of the grid is 1 in it, the longest, and one
    without work: from tile to tile, its threads meet at fewer places."""

    def most(cases: Sequence[Case]) -> list[Case]:
        return [max(cases, key=lambda case: shrunk[case.dims])] if cases else []

    def is_wide(case: Case) -> bool:
        return all(int(value) > 1 for name, value in case.dims if name in grid_names)

    first = most(walks)
    wide = [] if is_wide(first[0]) else most([case for case in walks if is_wide(case)])
    longest = max(walks, key=lambda case: _flop_an_output(kernel, case))
    idle = most([case for case in walks if case.flop(kernel) == 0])
    return list(dict.fromkeys([*first, *wide, longest, *idle]))


def _flop_an_output(kernel: KernelSpec, case: Case) -> float:
    values = case.values(kernel)
    outputs = [argument for argument in kernel.arguments if argument.kind == "output"]
    elements = sum(prod(int(values[dim]) for dim in argument.shape) for argument in outputs)
    return float(kernel.work_flop.amount(values)) / max(elements, 1)


def _grid_names(template: TemplateSpec, point: Resolved) -> set[str]:
    return {
        name
        for launch in template.launched(point.values)
        for size in launch.grid
        for name in size.names
    }


def _bounds_grids_only(template: TemplateSpec, point: Resolved) -> bool:
    names = _grid_names(template, point)
    known = {name for name, local in template.locals if SM_COUNT in local.names}
    return (
        bool(names & {SM_COUNT, *known})
        and SM_COUNT not in template.text
        and not tuple(template.scratch(point.values))
    )


def _same_text(point: Resolved, few: Resolved) -> bool:
    """Whether both give the template the same values, but for the number itself."""
    return _without_count(point.values) == _without_count(few.values)


def _without_count(values: Mapping[str, Value]) -> dict[str, Value]:
    return {name: value for name, value in values.items() if name != SM_COUNT}


def _shrinks(
    kernel: KernelSpec, template: TemplateSpec, case: Case, point: Resolved, few: Resolved
) -> float:
    """How many times as many blocks the case has on the whole device; 0 if it cannot run."""
    values = case.values(kernel)
    try:
        whole = launches(template, {**values, **point.values})
        small = launches(template, {**values, **few.values})
    except SpecError:
        return 0.0
    if not whole or len(small) != len(whole):
        return 0.0
    return max(prod(a.grid) / prod(b.grid) for a, b in zip(whole, small, strict=True))
