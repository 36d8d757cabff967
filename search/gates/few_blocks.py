"""One more case for grids that the device's multiprocessors bound: the same launch on very few.

Blocks of a persistent grid walk tiles until none is left. A check has fewer tiles than a GPU has
multiprocessors, so that each block would walk one, and what a block does between two tiles would
never run. On a device with a few multiprocessors the same source walks many.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from greenfast.search.errors import SpecError
from greenfast.search.gates.base import Subject
from greenfast.search.kernels.expressions import SM_COUNT, Value
from greenfast.search.kernels.spec import KernelSpec, TemplateSpec
from greenfast.search.oracle.cases import Case
from greenfast.search.oracle.problem import launches
from greenfast.search.space.space import Resolved, Space, resolve

MULTIPROCESSORS = (1, 2, 4, 8)  # the first on which every launch has a block


def few_blocks_case(subject: Subject, cases: Sequence[Case]) -> tuple[Case, Resolved] | None:
    """The case whose grid shrinks most, and the point on a device with few multiprocessors.

    None where no grid shrinks, where the text or a workspace follows from their number (another
    number is then another kernel), or where the point is invalid on so few.
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
        most = max(cases, key=lambda case: shrunk[case.dims], default=None)
        if most is not None and shrunk[most.dims] > 1.0:
            plural = "s" if count > 1 else ""
            return replace(most, name=f"{most.name}_on_{count}_multiprocessor{plural}"), few
    return None


def _bounds_grids_only(template: TemplateSpec, point: Resolved) -> bool:
    names = {
        name
        for launch in template.launched(point.values)
        for size in launch.grid
        for name in size.names
    }
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
    """How many times as many blocks the case has on the whole device; 0 where it cannot run."""
    values = case.values(kernel)
    try:
        whole = launches(template, {**values, **point.values})
        small = launches(template, {**values, **few.values})
    except SpecError:
        return 0.0
    if not whole or len(small) != len(whole):
        return 0.0
    return max(prod(a.grid) / prod(b.grid) for a, b in zip(whole, small, strict=True))
